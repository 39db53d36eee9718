// SPDX-License-Identifier: Apache-2.0
// Blocked fp32 matrix product for builds without oneDNN. Private to row_kernels.cpp, which is compiled once per instruction set; the
// anonymous namespace gives each of them its own copy.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trimul::cpu {
namespace {

// A register block of kRows x kCols sums: as many vector accumulators as cover the latency of the multiply-add and leave
// registers for one row of B and a broadcast of A.
#if defined(__AVX512F__)
constexpr std::int64_t kLanes = 16, kRows = 12, kCols = 32;
#elif defined(__AVX2__)
constexpr std::int64_t kLanes = 8, kRows = 6, kCols = 16;
#else
constexpr std::int64_t kLanes = 4, kRows = 4, kCols = 8;
#endif
constexpr std::int64_t kBlockK = 256;         // a panel of B, kBlockK x kCols, stays in L1
constexpr std::int64_t kBlockM = 8 * kRows;   // a block of A, kBlockM x kBlockK, stays in L2
constexpr std::int64_t kBlockN = 16 * kCols;  // a block of B, kBlockK x kBlockN
constexpr std::int64_t kGemmScratchFloats = kBlockM * kBlockK + kBlockK * kBlockN;

typedef float Vector __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));

/// Copies op(source)[first_row.., first_col..] into panels of `panel` rows: packed[k * panel + r], rows past the end become zero.
/// The operand's element (row, k) lies at source[row * row_stride + k * k_stride].
inline void pack(const float* source, std::int64_t row_stride, std::int64_t k_stride, std::int64_t rows, std::int64_t depth,
                 std::int64_t panel, float* packed) {
  for (std::int64_t first = 0; first < rows; first += panel) {
    const std::int64_t present = rows - first < panel ? rows - first : panel;
    const float* from = source + first * row_stride;
    for (std::int64_t k = 0; k < depth; ++k, packed += panel) {
      for (std::int64_t r = 0; r < present; ++r) packed[r] = from[r * row_stride + k * k_stride];
      for (std::int64_t r = present; r < panel; ++r) packed[r] = 0.0F;
    }
  }
}

/// One register block over `depth` terms. Adds to C when `accumulate`, else overwrites. Only rows x cols of it are written.
inline void micro_kernel(std::int64_t depth, const float* a, const float* b, float* c, std::int64_t ldc, std::int64_t rows,
                         std::int64_t cols, bool accumulate) {
  constexpr std::int64_t kVectors = kCols / kLanes;
  Vector sum[kRows][kVectors] = {};
  for (std::int64_t k = 0; k < depth; ++k, a += kRows, b += kCols) {
    Vector row_of_b[kVectors];
    for (std::int64_t v = 0; v < kVectors; ++v) row_of_b[v] = *reinterpret_cast<const Vector*>(b + v * kLanes);
#pragma GCC unroll 16
    for (std::int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (std::int64_t v = 0; v < kVectors; ++v) sum[r][v] += a[r] * row_of_b[v];
  }
  if (rows == kRows && cols == kCols) {
    for (std::int64_t r = 0; r < kRows; ++r)
      for (std::int64_t v = 0; v < kVectors; ++v) {
        // Not `auto*`: deduction drops the typedef's alignment of 4, and rows of C are aligned to no more than that.
        Vector* to = reinterpret_cast<Vector*>(c + r * ldc + v * kLanes);
        *to = accumulate ? *to + sum[r][v] : sum[r][v];
      }
    return;
  }
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t col = 0; col < cols; ++col) {
      const float value = sum[r][col / kLanes][col % kLanes];
      c[r * ldc + col] = accumulate ? c[r * ldc + col] + value : value;
    }
}

void gemm_blocked(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda,
                  const float* b, std::int64_t ldb, float* c, std::int64_t ldc, float* scratch) {
  const auto smaller = [](std::int64_t left, std::int64_t right) { return left < right ? left : right; };
  float* const packed_a = scratch;
  float* const packed_b = scratch + kBlockM * kBlockK;
  const std::int64_t a_row = transpose_a ? 1 : lda, a_k = transpose_a ? lda : 1;
  const std::int64_t b_col = transpose_b ? ldb : 1, b_k = transpose_b ? 1 : ldb;
  for (std::int64_t n0 = 0; n0 < n; n0 += kBlockN)
    for (std::int64_t k0 = 0; k0 < k; k0 += kBlockK) {
      const std::int64_t cols = smaller(kBlockN, n - n0);
      const std::int64_t depth = smaller(kBlockK, k - k0);
      pack(b + n0 * b_col + k0 * b_k, b_col, b_k, cols, depth, kCols, packed_b);
      for (std::int64_t m0 = 0; m0 < m; m0 += kBlockM) {
        const std::int64_t rows = smaller(kBlockM, m - m0);
        pack(a + m0 * a_row + k0 * a_k, a_row, a_k, rows, depth, kRows, packed_a);
        for (std::int64_t j = 0; j < cols; j += kCols)
          for (std::int64_t i = 0; i < rows; i += kRows)
            micro_kernel(depth, packed_a + i * depth, packed_b + j * depth, c + (m0 + i) * ldc + n0 + j, ldc, smaller(kRows, rows - i),
                         smaller(kCols, cols - j), k0 > 0);
      }
    }
}

}  // namespace
}  // namespace trimul::cpu
