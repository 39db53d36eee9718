// SPDX-License-Identifier: Apache-2.0
// Rows of the pair tensor in registers as an operand of 16-bit products, for the kernels that keep all weights in shared memory.
//
// A quad has a row; its thread t loads the 16-byte chunks t, t + 4, ... of it, one load each. The eight channels of a chunk are four
// registers, which serve as the two halves of two k steps: register r of chunk t + 4 j is half r % 2 of step 2 j + r / 2. So k runs over
// the channels in another order, in which the weights are packed too (PackedLayout).
#pragma once

#include <cstdint>

#include "cuda/ptx/shared_address.cuh"
#include "cuda/sm80/operand.cuh"
#include "cuda/sm80/pair_rows.cuh"
#include "cuda/sm80/weight_ring.cuh"

namespace trimul::cuda::sm80 {

template <Arithmetic kArithmetic>
__device__ __forceinline__ float low_half(std::uint32_t pair) {
  if constexpr (kArithmetic == Arithmetic::kBf16) return __uint_as_float(pair << 16);
  return __half2float(__ushort_as_half(static_cast<unsigned short>(pair & 0xffffU)));
}
template <Arithmetic kArithmetic>
__device__ __forceinline__ float high_half(std::uint32_t pair) {
  if constexpr (kArithmetic == Arithmetic::kBf16) return __uint_as_float(pair & 0xffff0000U);
  return __half2float(__ushort_as_half(static_cast<unsigned short>(pair >> 16)));
}
/// value * sigmoid(gate) of products whose weights were packed halved (bf16) or as they are (fp16), in two steps: what the gate comes to,
/// and its product with the value.
template <Arithmetic kArithmetic>
__device__ __forceinline__ float gate_factor(float gate) {
  if constexpr (kArithmetic == Arithmetic::kBf16) return ptx::tanh_approx(gate);
  return ptx::reciprocal_approx(1.0F + __expf(-gate));  // 0 where the power is infinite
}
template <Arithmetic kArithmetic>
__device__ __forceinline__ float gated_packed(float value, float factor) {
  if constexpr (kArithmetic == Arithmetic::kBf16) return fmaf(value, factor, value);
  return value * factor;
}

/// 1 / kWidth, twice.
template <Arithmetic kArithmetic, int kWidth>
inline constexpr std::uint32_t kInverseWidths = 0x10001U * (kArithmetic == Arithmetic::kBf16 ? (kWidth == 64 ? 0x3c80U : 0x3c00U)
                                                                                             : (kWidth == 64 ? 0x2400U : 0x2000U));

/// How a row is normalised: x scale + shift.
struct Affine {
  float scale, shift;
};

/// Eight consecutive 16-bit elements.
__device__ __forceinline__ void load_words(const std::uint16_t* from, bool is_vectorised, std::uint32_t* words) {
  if (is_vectorised) {
    const uint4 chunk = *reinterpret_cast<const uint4*>(from);  // not __ldg: out may be x
    words[0] = chunk.x, words[1] = chunk.y, words[2] = chunk.z, words[3] = chunk.w;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = from[2 * i] | std::uint32_t{from[2 * i + 1]} << 16;
  }
}

/// One thread's part of a row of kWidth channels, 64 or 128.
template <Arithmetic kArithmetic, int kWidth>
struct FragmentRow {
  static constexpr int kChunks = kWidth / 32;
  static constexpr int kRegisters = 4 * kChunks;
  static constexpr int kSteps = kWidth / 16;
  using Registers = std::uint32_t[kRegisters];

  /// `row`: of x, in memory. `t`: of the quad.
  static __device__ __forceinline__ void load(const void* row, bool is_vectorised, int t, Registers& values) {
#pragma unroll
    for (int j = 0; j < kChunks; ++j)
      load_words(static_cast<const std::uint16_t*>(row) + (t + 4 * j) * kOctet, is_vectorised, values + 4 * j);
  }

  // Rows on their way through shared memory: every chunk has a place of its own for the lane that copies and later reads it, so that
  // neither needs a barrier. `place`: the row's first chunk of the lane.
  static constexpr int kPlaceBytes = kChunkBytes * 32;  // from a lane's chunk to its next
  static constexpr int kFeedBytes = kChunks * kPlaceBytes;

  /// Starts the copies of a row, whose first chunk of the thread is `from`, on 16 bytes; zeros where it is not valid.
  static __device__ __forceinline__ void start(std::uint32_t place, const std::uint8_t* from, bool is_valid) {
#pragma unroll
    for (int j = 0; j < kChunks; ++j)
      ptx::cp_async_16(place + static_cast<unsigned>(j * kPlaceBytes), from + 4 * j * kChunkBytes, is_valid ? kChunkBytes : 0);
  }
  /// What they brought, behind cp.async.wait_group.
  static __device__ __forceinline__ void take(std::uint32_t place, Registers& values) {
#pragma unroll
    for (int j = 0; j < kChunks; ++j) {
      const uint4 chunk = ptx::load_shared_uint4(place + static_cast<unsigned>(j * kPlaceBytes));
      values[4 * j] = chunk.x, values[4 * j + 1] = chunk.y, values[4 * j + 2] = chunk.z, values[4 * j + 3] = chunk.w;
    }
  }

  /// Means of rows as a B operand, one row a thread: products with 1 / kWidth, exact, on the tensor cores. Whole warp.
  static __device__ __forceinline__ float mean_as_b(const Registers& values, int lane) {
    constexpr std::uint32_t kInverse = kInverseWidths<kArithmetic, kWidth>;
    constexpr std::uint32_t kInverses[4] = {kInverse, kInverse, kInverse, kInverse};
    float sums[4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) mma_16bit<kArithmetic>(sums, kInverses, values[2 * step], values[2 * step + 1]);
    // Columns 2 t and 2 t + 1 of the product are with thread t; the row here is column g.
    const int source = lane / 4 * 4 + lane / 8;
    const float even = __shfl_sync(0xffffffffU, sums[0], source);
    const float odd = __shfl_sync(0xffffffffU, sums[1], source);
    return lane / 4 % 2 == 0 ? even : odd;
  }

  /// A thread's sum of the squared deviations. Pairs are taken apart in another way than everywhere else, or ptxas would hold all values of
  /// the rows until they are normalised (fragment_norm.cuh).
  static __device__ __forceinline__ float squares(const Registers& values, float mean) {
    float parts[2] = {0.0F, 0.0F};
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) {
      float low = 0.0F;
      float high = 0.0F;
      if constexpr (kArithmetic == Arithmetic::kBf16)
        low = UnpackByPermute{}.low(values[i]) - mean, high = UnpackByPermute{}.high(values[i]) - mean;
      else
        low = ptx::widen_low_half(values[i]) - mean, high = ptx::widen_high_half(values[i]) - mean;
      parts[0] = fmaf(low, low, parts[0]);
      parts[1] = fmaf(high, high, parts[1]);
    }
    return parts[0] + parts[1];
  }

  /// Works out how to normalise rows; `means_of(means)` of them as they stand. The mean of equal 16-bit values is exact; where a row is
  /// nearly constant the scale is cut short enough for its products with them to be exact too (fragment_norm.cuh). Whole warp. Rows whose
  /// squares overflow, or whose mean is huge, are multiplied by 2^-70 in place, and eps with them.
  template <int kRows, typename MeansOf>
  static __device__ __forceinline__ void statistics(Registers (&rows)[kRows], float eps, const MeansOf& means_of, Affine (&affine)[kRows]) {
    constexpr float kInverseWidth = 1.0F / kWidth;
    constexpr std::uint32_t kCut = kArithmetic == Arithmetic::kBf16 ? 0xffffff00U : 0xfffff800U;
    bool is_scaled[kRows] = {};
#pragma unroll 1
    while (true) {
      float means[kRows];
      means_of(means);
      float sums[kRows];
#pragma unroll
      for (int row = 0; row < kRows; ++row) sums[row] = squares(rows[row], means[row]);
#pragma unroll
      for (int row = 0; row < kRows; ++row) sums[row] = quad_sum(sums[row]);
      if constexpr (kArithmetic == Arithmetic::kBf16) {
        bool is_new = false;
        bool is_unsafe[kRows];
#pragma unroll
        for (int row = 0; row < kRows; ++row) {
          is_unsafe[row] = !is_scaled[row] && !(sums[row] < 0x1p127F && fabsf(means[row]) < kHugeElement);
          is_new = is_new || is_unsafe[row];
        }
        if (__any_sync(0xffffffffU, is_new)) {
#pragma unroll
          for (int row = 0; row < kRows; ++row) {
            const float factor = is_unsafe[row] ? 0x1p-70F : 1.0F;
            is_scaled[row] = is_scaled[row] || is_unsafe[row];
#pragma unroll
            for (int i = 0; i < kRegisters; ++i)
              rows[row][i] =
                  pack_pair<kArithmetic>(low_half<kArithmetic>(rows[row][i]) * factor, high_half<kArithmetic>(rows[row][i]) * factor);
          }
          continue;
        }
      }
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        const float row_eps = is_scaled[row] ? fmaxf(eps * 0x1p-70F * 0x1p-70F, 1e-30F) : eps;
        const float variance = sums[row] * kInverseWidth;
        float scale = rsqrtf(variance + row_eps);
        if (variance < 1e-6F * means[row] * means[row]) scale = __uint_as_float(__float_as_uint(scale) & kCut);
        affine[row] = {scale, -means[row] * scale};
      }
      return;
    }
  }

  /// Starts the copies of norm[channel] = (weight, bias) into shared memory, in the order of `normalise`: what the threads of a quad read
  /// at a time lies together. Whole block.
  static __device__ __forceinline__ void copy_norm(std::uint32_t to, const float2* norm) {
    const int i = static_cast<int>(threadIdx.x);           // 16 j + 4 r + t
    const int pair = i / 16 * 16 + i % 4 * 4 + i / 4 % 4;  // 16 j + 4 t + r
    if (i < kWidth / 2) ptx::cp_async_16(to + static_cast<unsigned>(i * kChunkBytes), norm + 2 * pair);
  }

  /// values = (values scale + shift) weight + bias, rounded, in place; norm: of copy_norm. Several rows at
  /// once, so that the pairs are read once.
  template <int kRows>
  static __device__ __forceinline__ void normalise(Registers (&rows)[kRows], const Affine (&affine)[kRows], const float2* norm, int t) {
    const std::uint32_t own = ptx::shared_address(norm + 2 * t);
#pragma unroll
    for (int j = 0; j < kChunks; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float4 n = ptx::load_shared_float4(own + static_cast<unsigned>((4 * j + r) * 4 * kChunkBytes));
#pragma unroll
        for (int row = 0; row < kRows; ++row) {
          const std::uint32_t pair = rows[row][4 * j + r];
          const float low = fmaf(low_half<kArithmetic>(pair), affine[row].scale, affine[row].shift);
          const float high = fmaf(high_half<kArithmetic>(pair), affine[row].scale, affine[row].shift);
          rows[row][4 * j + r] = pack_pair<kArithmetic>(fmaf(low, n.x, n.y), fmaf(high, n.z, n.w));
        }
      }
  }
};

/// Means of two rows as rows g and g + 8 of an A operand, registers 2 step + h of each its halves: as FragmentRow::mean_as_b. Whole warp.
template <Arithmetic kArithmetic, int kWidth>
__device__ __forceinline__ void means_as_a(const std::uint32_t (&rows)[2][kWidth / 8], float (&means)[2]) {
  constexpr std::uint32_t kInverse = kInverseWidths<kArithmetic, kWidth>;
  float sums[4] = {};
#pragma unroll
  for (int step = 0; step < kWidth / 16; ++step) {
    const std::uint32_t a[4] = {rows[0][2 * step], rows[1][2 * step], rows[0][2 * step + 1], rows[1][2 * step + 1]};
    mma_16bit<kArithmetic>(sums, a, kInverse, kInverse);
  }
  means[0] = sums[0], means[1] = sums[2];
}

/// Copies `bytes`, a multiple of 16, into shared memory by the whole block; visible after wait_group<0> and a barrier.
__device__ __forceinline__ void copy_to_shared(std::uint32_t to, const std::uint8_t* from, int bytes) {
  for (int at = static_cast<int>(threadIdx.x) * kChunkBytes; at < bytes; at += static_cast<int>(blockDim.x) * kChunkBytes)
    ptx::cp_async_16(to + static_cast<unsigned>(at), from + at);
}

}  // namespace trimul::cuda::sm80
