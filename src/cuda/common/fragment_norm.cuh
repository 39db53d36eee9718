// SPDX-License-Identifier: Apache-2.0
// LayerNorm of rows that lie in registers as the A operand of a tensor-core product (ldmatrix layout): thread t of a warp holds, of the
// warp's 16 rows, row t / 4 in the even registers and row t / 4 + 8 in the odd ones; register 4 k + {0, 1} covers channels
// 16 k + 2 (t % 4) + {0, 1}, register 4 k + {2, 3} those 8 further on. The four threads of a quad share two rows.
//
// Two passes, fp32: E[x^2] - E[x]^2 cancels when |mean| >> std (docs/numerics.md). The mean is a sum of x / width, which cannot overflow.
#pragma once

#include <cuda_bf16.h>

#include <bit>
#include <cstdint>

#include "cuda/ptx/matrix.cuh"

namespace trimul::cuda {

/// One number for each of a thread's two rows.
struct RowPair {
  float first, second;
};

/// (row - mean) / sqrt(var + eps) as row * scale + shift.
struct RowAffine {
  RowPair scale, shift;
};

// Three ways to take a bf16 pair apart. They compute the same; where registers are short, using another one in each pass keeps ptxas from
// holding 64 unpacked values from one pass to the next.
struct UnpackByShift {
  __device__ __forceinline__ float low(std::uint32_t pair) const { return __uint_as_float(pair << 16); }
  __device__ __forceinline__ float high(std::uint32_t pair) const { return __uint_as_float(pair & 0xffff0000U); }
};
struct UnpackByPermute {
  __device__ __forceinline__ float low(std::uint32_t pair) const { return __uint_as_float(ptx::permute_bytes<0x1044>(pair)); }
  __device__ __forceinline__ float high(std::uint32_t pair) const { return __uint_as_float(ptx::permute_bytes<0x3244>(pair)); }
};
/// Shift and mask as kernel arguments, unknown to the compiler.
struct UnpackByArgument {
  std::uint32_t shift = 16;
  std::uint32_t mask = 0xffff0000U;
  __device__ __forceinline__ float low(std::uint32_t pair) const { return __uint_as_float(pair << shift); }
  __device__ __forceinline__ float high(std::uint32_t pair) const { return __uint_as_float(pair & mask); }
};

__device__ __forceinline__ float quad_sum(float value) {
  value += __shfl_xor_sync(0xffffffffU, value, 1);
  return value + __shfl_xor_sync(0xffffffffU, value, 2);
}

__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

/// Means of the two rows: a product with 1 / width on the tensor cores, exact products (1 / width is a power of two) and fp32 sums.
template <int kRegisters>
__device__ __forceinline__ RowPair fragment_means(const std::uint32_t (&rows)[kRegisters]) {
  constexpr std::uint32_t kWidth = 4 * kRegisters;
  static_assert((kWidth & (kWidth - 1)) == 0, "1 / width as bf16");
  constexpr std::uint32_t kInverseWidth = ((127U - static_cast<std::uint32_t>(std::bit_width(kWidth) - 1)) << 7) * 0x10001U;
  float sums[2][4] = {};  // two chains: a product waits for the one before
#pragma unroll
  for (int i = 0; i < kRegisters; i += 4) ptx::mma_m16n8k16(sums[(i / 4) % 2], &rows[i], kInverseWidth, kInverseWidth);
  return {sums[0][0] + sums[1][0], sums[0][2] + sums[1][2]};
}

/// 1 / sqrt(variance + eps), for rows that are nearly constant cut to 16 bits. A bf16 value times that is exact in fp32, and so is the mean
/// of a constant row: its deviations cancel to zero, where a full scale would leave |mean| 2e-5.
__device__ __forceinline__ float row_scale(float variance, float eps, float mean) {
  const float scale = rsqrtf(variance + eps);
  const bool is_nearly_constant = variance < 1e-6F * mean * mean;
  return is_nearly_constant ? __uint_as_float(__float_as_uint(scale) & 0xffffff00U) : scale;
}

/// Sums of the squared deviations of the two rows.
template <typename Unpack, int kRegisters>
__device__ __forceinline__ RowPair fragment_squares(const std::uint32_t (&rows)[kRegisters], Unpack unpack, RowPair mean) {
  float squares[4] = {0.0F, 0.0F, 0.0F, 0.0F};
#pragma unroll
  for (int i = 0; i < kRegisters; i += 2) {
    const float deviations[4] = {unpack.low(rows[i]) - mean.first, unpack.high(rows[i]) - mean.first, unpack.low(rows[i + 1]) - mean.second,
                                 unpack.high(rows[i + 1]) - mean.second};
#pragma unroll
    for (int k = 0; k < 4; ++k) squares[k] = fmaf(deviations[k], deviations[k], squares[k]);
  }
  return {quad_sum(squares[0] + squares[1]), quad_sum(squares[2] + squares[3])};
}

/// Rows whose mean is as large as this are scaled down, and with them every row that has an element as large.
constexpr float kHugeElement = 0x1p40F;

/// Multiplies rows that have an element from kHugeElement on by 2^-70, exactly, and returns what the two rows were multiplied by.
template <int kRegisters>
__device__ __forceinline__ RowPair scale_down_huge_rows(std::uint32_t (&rows)[kRegisters]) {
  constexpr std::uint32_t kHuge = (127 + 40) << 7;  // bits of the bf16 kHugeElement
  constexpr std::uint32_t kOne = 0x3f803f80U;
  constexpr std::uint32_t kDown = ((127U - 70U) << 7) * 0x10001U;
  bool first_is_huge = false;
  bool second_is_huge = false;
  const auto is_huge = [](std::uint32_t pair) { return (pair & 0x7fffU) >= kHuge || ((pair >> 16) & 0x7fffU) >= kHuge; };
#pragma unroll
  for (int i = 0; i < kRegisters; i += 2) {
    first_is_huge |= is_huge(rows[i]);
    second_is_huge |= is_huge(rows[i + 1]);
  }
  const unsigned quad = 0xfU << (threadIdx.x % 32 & 28U);
  first_is_huge = (__ballot_sync(0xffffffffU, first_is_huge) & quad) != 0;
  second_is_huge = (__ballot_sync(0xffffffffU, second_is_huge) & quad) != 0;
#pragma unroll
  for (int i = 0; i < kRegisters; i += 2) {
    rows[i] = ptx::multiply_bf16x2(rows[i], first_is_huge ? kDown : kOne);
    rows[i + 1] = ptx::multiply_bf16x2(rows[i + 1], second_is_huge ? kDown : kOne);
  }
  return {first_is_huge ? 0x1p-70F : 1.0F, second_is_huge ? 0x1p-70F : 1.0F};
}

/// How to normalise the two rows: affine applies to rows that have been multiplied by factor, a power of two.
struct RowNorm {
  RowAffine affine;
  RowPair factor;
};

/// Works out how to normalise the rows. Where a sum of squares overflows, or the mean times the scale might (or anything is NaN), huge rows
/// are first scaled down in place, and eps with them; rare, and so out of the hot code.
template <typename Unpack, int kRegisters>
__device__ __forceinline__ RowNorm fragment_norm(std::uint32_t (&rows)[kRegisters], Unpack unpack, RowPair mean, float eps) {
  constexpr float kInverseWidth = 1.0F / (4 * kRegisters);
  constexpr float kFinite = 0x1p127F;
  RowPair squares = fragment_squares(rows, unpack, mean);
  RowPair factor = {1.0F, 1.0F};
  RowPair row_eps = {eps, eps};
  const bool first_is_safe = squares.first < kFinite && fabsf(mean.first) < kHugeElement;
  const bool second_is_safe = squares.second < kFinite && fabsf(mean.second) < kHugeElement;
  if (!__all_sync(0xffffffffU, first_is_safe && second_is_safe)) {
    constexpr float kLeastEps = 1e-30F;  // negligible beside any variance here, but not zero: the variance of a constant row is
    factor = scale_down_huge_rows(rows);
    if (factor.first != 1.0F) row_eps.first = fmaxf(eps * factor.first * factor.first, kLeastEps);
    if (factor.second != 1.0F) row_eps.second = fmaxf(eps * factor.second * factor.second, kLeastEps);
    mean = fragment_means(rows);
    squares = fragment_squares(rows, unpack, mean);
  }
  const RowPair scale = {row_scale(squares.first * kInverseWidth, row_eps.first, mean.first),
                         row_scale(squares.second * kInverseWidth, row_eps.second, mean.second)};
  return {{scale, {-mean.first * scale.first, -mean.second * scale.second}}, factor};
}

/// rows = bf16(affine(row) * weight + bias), in place. norm[channel] = (weight, bias), in shared memory. Registers kFirst to before kEnd.
template <int kFirst, int kEnd, typename Unpack, int kRegisters>
__device__ __forceinline__ void fragment_normalise_part(std::uint32_t (&rows)[kRegisters], Unpack unpack, const RowAffine& affine,
                                                        const float2* norm, int lane) {
#pragma unroll
  for (int i = kFirst; i < kEnd; i += 2) {
    const int channel = (i / 4) * 16 + ((i & 2) != 0 ? 8 : 0) + 2 * (lane & 3);
    const float4 n = *reinterpret_cast<const float4*>(&norm[channel]);  // weight, bias, next channel's weight, bias
    const float low0 = fmaf(unpack.low(rows[i]), affine.scale.first, affine.shift.first);
    const float high0 = fmaf(unpack.high(rows[i]), affine.scale.first, affine.shift.first);
    const float low1 = fmaf(unpack.low(rows[i + 1]), affine.scale.second, affine.shift.second);
    const float high1 = fmaf(unpack.high(rows[i + 1]), affine.scale.second, affine.shift.second);
    rows[i] = pack_bf16(fmaf(low0, n.x, n.y), fmaf(high0, n.z, n.w));
    rows[i + 1] = pack_bf16(fmaf(low1, n.x, n.y), fmaf(high1, n.z, n.w));
  }
}

/// The same for all registers.
template <typename Unpack, int kRegisters>
__device__ __forceinline__ void fragment_normalise(std::uint32_t (&rows)[kRegisters], Unpack unpack, const RowAffine& affine,
                                                   const float2* norm, int lane) {
  fragment_normalise_part<0, kRegisters>(rows, unpack, affine, norm, lane);
}

/// The same of long rows in four parts, each a loop of `once` rounds, which is 1 and unknown to ptxas: it moves no code over a loop, else
/// it unpacks all rows and requests all of `norm` at once, and spills what it has no registers for.
template <typename Unpack, int kRegisters>
__device__ __forceinline__ void fragment_normalise_in_parts(std::uint32_t (&rows)[kRegisters], Unpack unpack, const RowAffine& affine,
                                                            const float2* norm, int lane, int once) {
  constexpr int kPart = kRegisters / 4;
#pragma unroll 1
  for (int k = 0; k < once; ++k) fragment_normalise_part<0, kPart>(rows, unpack, affine, norm, lane);
#pragma unroll 1
  for (int k = 0; k < once; ++k) fragment_normalise_part<kPart, 2 * kPart>(rows, unpack, affine, norm, lane);
#pragma unroll 1
  for (int k = 0; k < once; ++k) fragment_normalise_part<2 * kPart, 3 * kPart>(rows, unpack, affine, norm, lane);
#pragma unroll 1
  for (int k = 0; k < once; ++k) fragment_normalise_part<3 * kPart, kRegisters>(rows, unpack, affine, norm, lane);
}

}  // namespace trimul::cuda
