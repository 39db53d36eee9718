// SPDX-License-Identifier: Apache-2.0
// LayerNorm of rows that lie in registers as the A operand of a tensor-core product (ldmatrix layout): thread t of a warp holds, of the
// warp's 16 rows, row t / 4 in the even registers and row t / 4 + 8 in the odd ones; register 4 k + {0, 1} covers channels
// 16 k + 2 (t % 4) + {0, 1}, register 4 k + {2, 3} those 8 further on. The four threads of a quad share two rows.
//
// Two passes, fp32: E[x^2] - E[x]^2 cancels when |mean| >> std (docs/numerics.md). The mean is a sum of x / width, which cannot overflow.
#pragma once

#include <cuda_bf16.h>

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

/// Means of the two rows.
template <int kRegisters>
__device__ __forceinline__ RowPair fragment_means(const std::uint32_t (&rows)[kRegisters]) {
  constexpr UnpackByShift kUnpack;
  constexpr float kInverseWidth = 1.0F / (4 * kRegisters);
  float sums[4] = {0.0F, 0.0F, 0.0F, 0.0F};
#pragma unroll
  for (int i = 0; i < kRegisters; i += 2) {
    sums[0] = fmaf(kUnpack.low(rows[i]), kInverseWidth, sums[0]);
    sums[1] = fmaf(kUnpack.high(rows[i]), kInverseWidth, sums[1]);
    sums[2] = fmaf(kUnpack.low(rows[i + 1]), kInverseWidth, sums[2]);
    sums[3] = fmaf(kUnpack.high(rows[i + 1]), kInverseWidth, sums[3]);
  }
  return {quad_sum(sums[0] + sums[1]), quad_sum(sums[2] + sums[3])};
}

/// 1 / sqrt(variance + eps), for rows that are nearly constant cut to 16 bits. A bf16 value times that is exact in fp32, and so is the mean
/// of a constant row: its deviations cancel to zero, where a full scale would leave |mean| 2e-5.
__device__ __forceinline__ float row_scale(float variance, float eps, float mean) {
  const float scale = rsqrtf(variance + eps);
  const bool is_nearly_constant = variance < 1e-6F * mean * mean;
  return is_nearly_constant ? __uint_as_float(__float_as_uint(scale) & 0xffffff00U) : scale;
}

/// Scale and shift of the two rows. Deviations must stay below 1e19: see scale_down_huge_rows.
template <typename Unpack, int kRegisters>
__device__ __forceinline__ RowAffine fragment_affine(const std::uint32_t (&rows)[kRegisters], Unpack unpack, RowPair mean, RowPair eps) {
  constexpr float kInverseWidth = 1.0F / (4 * kRegisters);
  float squares[4] = {0.0F, 0.0F, 0.0F, 0.0F};
#pragma unroll
  for (int i = 0; i < kRegisters; i += 2) {
    const float deviations[4] = {unpack.low(rows[i]) - mean.first, unpack.high(rows[i]) - mean.first, unpack.low(rows[i + 1]) - mean.second,
                                 unpack.high(rows[i + 1]) - mean.second};
#pragma unroll
    for (int k = 0; k < 4; ++k) squares[k] = fmaf(deviations[k], deviations[k], squares[k]);
  }
  const RowPair scale = {row_scale(quad_sum(squares[0] + squares[1]) * kInverseWidth, eps.first, mean.first),
                         row_scale(quad_sum(squares[2] + squares[3]) * kInverseWidth, eps.second, mean.second)};
  return {scale, {-mean.first * scale.first, -mean.second * scale.second}};
}

/// What rows were multiplied by, and the eps that goes with it.
struct RowFactors {
  RowPair factor, eps;
};

/// Rows with an element from 2^62 on, whose squares would overflow, are multiplied by 2^-70, exactly; eps vanishes beside them. The test is
/// one packed maximum per register.
template <int kRegisters>
__device__ __forceinline__ RowFactors scale_down_huge_rows(std::uint32_t (&rows)[kRegisters], float eps) {
  constexpr std::uint32_t kHuge = (127 + 62) << 7;  // bits of the bf16 2^62
  std::uint32_t largest[2] = {rows[0], rows[1]};
#pragma unroll
  for (int i = 2; i < kRegisters; i += 2) {
    largest[0] = ptx::max_magnitude_bf16x2(largest[0], rows[i]);
    largest[1] = ptx::max_magnitude_bf16x2(largest[1], rows[i + 1]);
  }
  const auto is_huge = [](std::uint32_t pair) { return (pair & 0x7fffU) >= kHuge || ((pair >> 16) & 0x7fffU) >= kHuge; };
  RowFactors result{{1.0F, 1.0F}, {eps, eps}};
  if (!__any_sync(0xffffffffU, is_huge(largest[0]) || is_huge(largest[1]))) return result;
  constexpr std::uint32_t kOne = 0x3f803f80U;
  constexpr std::uint32_t kDown = ((127U - 70U) << 7) * 0x10001U;
  const unsigned quad = 0xfU << (threadIdx.x % 32 & 28U);
  const bool first = (__ballot_sync(0xffffffffU, is_huge(largest[0])) & quad) != 0;
  const bool second = (__ballot_sync(0xffffffffU, is_huge(largest[1])) & quad) != 0;
#pragma unroll
  for (int i = 0; i < kRegisters; i += 2) {
    rows[i] = ptx::multiply_bf16x2(rows[i], first ? kDown : kOne);
    rows[i + 1] = ptx::multiply_bf16x2(rows[i + 1], second ? kDown : kOne);
  }
  constexpr float kNegligible = 1e-30F;  // but not zero: the variance of a constant row is
  if (first) result.factor.first = 0x1p-70F, result.eps.first = kNegligible;
  if (second) result.factor.second = 0x1p-70F, result.eps.second = kNegligible;
  return result;
}

/// rows = bf16(affine(row) * weight + bias), in place. norm[channel] = (weight, bias), in shared memory.
template <typename Unpack, int kRegisters>
__device__ __forceinline__ void fragment_normalise(std::uint32_t (&rows)[kRegisters], Unpack unpack, const RowAffine& affine,
                                                   const float2* norm, int lane) {
#pragma unroll
  for (int i = 0; i < kRegisters; i += 2) {
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

}  // namespace trimul::cuda
