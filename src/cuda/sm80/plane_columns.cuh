// SPDX-License-Identifier: Apache-2.0
// Positions of y, whose channels lie a plane apart: their LayerNorm over the channels, and the normalised rows as an operand in shared
// memory.
//
// One, two or four threads share a position and take its octets of channels in turn; a warp reads consecutive positions of a plane.
// Statistics as in pair_rows.cuh.
#pragma once

#include "cuda/sm80/pair_rows.cuh"

namespace trimul::cuda::sm80 {

template <Arithmetic kArithmetic, int kPositions>
struct NormalisedColumns {
  static constexpr int kThreads = projection_threads(kArithmetic, kPositions);
  static constexpr int kShare = kThreads / kPositions;  // threads of a position
  static constexpr int kSlabBytes = kPositions * kSlabRowBytes;
  // Of a thread that holds its channels in registers between the passes: 128 channels, but in the largest tile of 32-bit operands 64.
  static constexpr int kShortOctets = operand_bytes(kArithmetic) == 4 && kShare == 1 ? 8 : 16 / kShare;

  // Octets are added up in four sums, whatever the number of threads, so that results do not depend on the tile.
  static constexpr int kParts = 4;
  static constexpr int kOwnParts = kParts / kShare;

  // Pairs lose bits of what is far below their bound sooner than single parts do.
  static constexpr bool kIsEnlarged = kArithmetic == Arithmetic::kPairs;

  using Sums = float[3][kOwnParts][kThreads];

  const std::uint8_t* y;  // channel 0 of the tile's first position
  std::int64_t pitch_bytes;
  int channels;
  bool is_valid;  // this thread's position is a pair
  const float2* norm;
  float inverse_width;
  float eps;
  Sums* sums;  // in shared memory
  const std::int32_t* is_unbiased;

  static __device__ __forceinline__ int position() { return static_cast<int>(threadIdx.x) % kPositions; }
  static __device__ __forceinline__ int part() { return static_cast<int>(threadIdx.x) / kPositions; }

  /// Eight channels of a position, bf16 ones two to a register.
  struct Octet {
    static constexpr bool kIsBf16 = y_bytes(kArithmetic) == 2;
    using Words = std::uint32_t[kIsBf16 ? kOctet / 2 : kOctet];
    static __device__ __forceinline__ void widen(const Words& words, float (&v)[kOctet]) {
#pragma unroll
      for (int i = 0; i < kOctet; ++i) {
        if constexpr (kIsBf16)
          v[i] = __uint_as_float(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xffff0000U);
        else
          v[i] = __uint_as_float(words[i]);
      }
    }
  };

  /// Channels first .. first + 7 of the thread's position; zero where there are none.
  __device__ __forceinline__ void read(int first, typename Octet::Words& words) const {
    const std::uint8_t* from = y + first * pitch_bytes + position() * y_bytes(kArithmetic);
#pragma unroll
    for (int i = 0; i < kOctet; ++i, from += pitch_bytes) {
      const bool exists = is_valid && first + i < channels;
      if constexpr (Octet::kIsBf16) {
        const std::uint32_t bits = exists ? *reinterpret_cast<const std::uint16_t*>(from) : 0U;
        words[i / 2] = i % 2 == 0 ? bits : words[i / 2] | bits << 16;
      } else {
        words[i] = exists ? *reinterpret_cast<const std::uint32_t*>(from) : 0U;
      }
    }
  }
  __device__ __forceinline__ void load(int first, float (&v)[kOctet]) const {
    typename Octet::Words words;
    read(first, words);
    Octet::widen(words, v);
  }

  /// Sum over the threads of a position. Whole block; `slot` 0, 1 and 2 in turn. Part k of a thread is its k-th, (kOwnParts + k)-th, ...
  /// octet.
  [[nodiscard]] __device__ __forceinline__ float total(int slot, const float (&values)[kOwnParts]) const {
    float parts[kParts];
    if constexpr (kShare == 1) {
#pragma unroll
      for (int k = 0; k < kParts; ++k) parts[k] = values[k];
    } else {
#pragma unroll
      for (int k = 0; k < kOwnParts; ++k) (*sums)[slot][k][threadIdx.x] = values[k];
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kParts; ++k) parts[k] = (*sums)[slot][k / kShare][k % kShare * kPositions + position()];
    }
    return (parts[0] + parts[1]) + (parts[2] + parts[3]);
  }

  /// Where eps exceeds the variance by far, a normalised position is far below the bound that operands are scaled by (scaled_weights.cu).
  /// It gets another power of two there, whose inverse is left for the sums of its products; without biases, beside which it would not
  /// count.
  __device__ __forceinline__ void enlarge(RowStatistics& s, float variance) const {
    constexpr float kSmall = 0x1p-8F;
    constexpr int kMost = 60;
    const float square = variance * s.scale * s.scale;  // of the normalised position's deviation
    float inverse = 1.0F;
    if (square > 0.0F && square < kSmall && *is_unbiased != 0) {
      const int exponent = min((127 - static_cast<int>(__float_as_uint(square) >> 23)) / 2, kMost);
      s.scale *= __int_as_float((127 + exponent) << 23);
      inverse = __int_as_float((127 - exponent) << 23);
    }
    if (part() == 0) factor_of(*sums, position()) = inverse;
  }
  /// What the sums of a position's products are to be multiplied by; behind a barrier.
  static __device__ __forceinline__ float& factor_of(Sums& sums, int position) {
    return sums[0][0][position];
  }

  /// As row_statistics, of the whole block's positions at once.
  template <typename Octets>
  [[nodiscard]] __device__ __forceinline__ RowStatistics statistics(const Octets& octets) const {
    constexpr float kHugeMean = 0x1p40F;
    constexpr float kFinite = 0x1p127F;
    constexpr float kLeastEps = 1e-30F;
    RowStatistics s{0.0F, 0.0F, 0.0F, 1.0F};
    float row_eps = eps;
#pragma unroll 1
    for (int attempt = 0;; ++attempt) {
      float sum[kOwnParts] = {};
      octets(
          [&](const float(&v)[kOctet], int count, float(&part)[kOwnParts], int k) {
#pragma unroll
            for (int i = 0; i < kOctet; ++i)
              if (i < count) part[k] = fmaf(v[i] * s.factor, inverse_width, part[k]);
          },
          sum);
      s.mean = total(0, sum);
      float rest[kOwnParts] = {};
      octets(
          [&](const float(&v)[kOctet], int count, float(&part)[kOwnParts], int k) {
#pragma unroll
            for (int i = 0; i < kOctet; ++i)
              if (i < count) part[k] += fmaf(v[i], s.factor, -s.mean);
          },
          rest);
      s.rest = total(1, rest) * inverse_width;
      float squared[kOwnParts] = {};
      octets(
          [&](const float(&v)[kOctet], int count, float(&part)[kOwnParts], int k) {
#pragma unroll
            for (int i = 0; i < kOctet; ++i)
              if (i < count) {
                const float deviation = fmaf(v[i], s.factor, -s.mean) - s.rest;
                part[k] = fmaf(deviation, deviation, part[k]);
              }
          },
          squared);
      const float squares = total(2, squared);
      const bool is_safe = squares < kFinite && fabsf(s.mean) < kHugeMean;
      if (attempt > 0 || __syncthreads_and(is_safe)) {
        s.scale = rsqrtf(squares * inverse_width + row_eps);
        if constexpr (kIsEnlarged) enlarge(s, squares * inverse_width);
        return s;
      }
      if (!is_safe) {
        s.factor = 0x1p-70F;
        row_eps = fmaxf(eps * s.factor * s.factor, kLeastEps);
      }
    }
  }

  __device__ __forceinline__ void store(const RowStatistics& s, int octet, std::uint32_t rows_smem, int octet_in_slabs,
                                        float (&v)[kOctet]) const {
    normalise(s, norm, octet * kOctet, v);
    store_operand<kArithmetic>(
        rows_smem + static_cast<unsigned>(octet_in_slabs / kOctetsPerSlab<kArithmetic> * kSlabBytes + position() * kSlabRowBytes),
        octet_in_slabs % kOctetsPerSlab<kArithmetic>, position() & 7, v);
  }

  /// Slabs first_slab .. first_slab + num_slabs - 1, which follow from the statistics.
  __device__ __forceinline__ void fill(const RowStatistics& s, int first_slab, int num_slabs, std::uint32_t rows_smem) const {
#pragma unroll 1
    for (int octet = part(); octet < num_slabs * kOctetsPerSlab<kArithmetic>; octet += kShare) {
      const int channel_octet = first_slab * kOctetsPerSlab<kArithmetic> + octet;
      float v[kOctet];
      load(channel_octet * kOctet, v);
      store(s, channel_octet, rows_smem, octet, v);
    }
  }

  /// Statistics and, where all `slabs` fit, the slabs; these are visible after a barrier.
  template <bool kIsWhole>
  [[nodiscard]] __device__ __forceinline__ RowStatistics prepare(int slabs, int resident_slabs, std::uint32_t rows_smem) const {
    if (kIsWhole && channels <= kShare * kShortOctets * kOctet) {
      typename Octet::Words words[kShortOctets];
#pragma unroll
      for (int j = 0; j < kShortOctets; ++j) read((part() + kShare * j) * kOctet, words[j]);
      const RowStatistics s = statistics([&](auto&& visit, float(&sums_of_parts)[kOwnParts]) {
#pragma unroll
        for (int j = 0; j < kShortOctets; ++j) {
          float v[kOctet];
          Octet::widen(words[j], v);
          visit(v, channels - (part() + kShare * j) * kOctet, sums_of_parts, j % kOwnParts);
        }
      });
#pragma unroll
      for (int j = 0; j < kShortOctets; ++j) {
        const int octet = part() + kShare * j;
        if (octet >= slabs * kOctetsPerSlab<kArithmetic>) continue;
        float v[kOctet];
        Octet::widen(words[j], v);
        store(s, octet, rows_smem, octet, v);
      }
      return s;
    }
    const RowStatistics s = statistics([&](auto&& visit, float(&sums_of_parts)[kOwnParts]) {
#pragma unroll 1
      for (int first = part() * kOctet; first < channels; first += kParts * kOctet) {
#pragma unroll
        for (int k = 0; k < kOwnParts; ++k) {
          const int channel = first + k * kShare * kOctet;
          if (channel >= channels) continue;
          float v[kOctet];
          load(channel, v);
          visit(v, channels - channel, sums_of_parts, k);
        }
      }
    });
    if (resident_slabs == slabs) fill(s, 0, slabs, rows_smem);
    return s;
  }
};

}  // namespace trimul::cuda::sm80
