// SPDX-License-Identifier: Apache-2.0
// Rows of the pair tensor: reading them in octets of channels whatever dtype and alignment they have, their LayerNorm, and the normalised
// rows as an operand in shared memory.
//
// Eight lanes share a row and take every eighth octet. The mean is a sum of x / width, which cannot overflow; the deviations from it are
// formed, their own mean is taken off, and then they are squared: E[x^2] - E[x]^2 cancels where |mean| >> std, and so does the first mean
// alone in fp32 (docs/numerics.md). Rows whose squares overflow, or whose mean is huge, are multiplied by 2^-70 and eps with them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/matrix.cuh"
#include "cuda/sm80/operand.cuh"
#include "cuda/sm80/pair_tensor.hpp"
#include "cuda/sm80/positions.hpp"

namespace trimul::cuda::sm80 {

/// Eight consecutive elements of a dtype as they lie in memory.
struct RawOctet {
  uint4 words[2];  // the second of 32-bit elements only
};

template <core::DType kDType>
__device__ __forceinline__ void widen(const RawOctet& raw, float (&values)[kOctet]) {
  const std::uint32_t words[8] = {raw.words[0].x, raw.words[0].y, raw.words[0].z, raw.words[0].w,
                                  raw.words[1].x, raw.words[1].y, raw.words[1].z, raw.words[1].w};
#pragma unroll
  for (int i = 0; i < kOctet; ++i) {
    if constexpr (kDType == core::DType::kF32) {
      values[i] = __uint_as_float(words[i]);
    } else if constexpr (kDType == core::DType::kBf16) {
      values[i] = __uint_as_float(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xffff0000U);
    } else {
      const auto half = static_cast<unsigned short>(i % 2 == 0 ? words[i / 2] & 0xffffU : words[i / 2] >> 16);
      values[i] = __half2float(__ushort_as_half(half));
    }
  }
}

/// Elements first .. first + 7 of the row at `row`, which must all be there and start on 16 bytes.
template <core::DType kDType>
__device__ __forceinline__ RawOctet read_octet(const void* row, int first) {
  constexpr int kBytes = kDType == core::DType::kF32 ? 4 : 2;
  const auto* const from = reinterpret_cast<const uint4*>(static_cast<const std::uint8_t*>(row) + std::int64_t{first} * kBytes);
  RawOctet raw{};
  raw.words[0] = *from;  // not __ldg: out may be x
  if constexpr (kBytes == 4) raw.words[1] = from[1];
  return raw;
}

__device__ __forceinline__ float read_element(core::DType dtype, const void* row, int index) {
  switch (dtype) {
    case core::DType::kBf16: return __bfloat162float(static_cast<const __nv_bfloat16*>(row)[index]);
    case core::DType::kF16: return __half2float(static_cast<const __half*>(row)[index]);
    default: return static_cast<const float*>(row)[index];
  }
}

__device__ __forceinline__ std::int64_t row_bytes(const PairTensor& tensor) {
  return std::int64_t{tensor.width} * (tensor.dtype == core::DType::kF32 ? 4 : 2);
}
/// Address of row `index` of a tensor.
__device__ __forceinline__ std::uint8_t* row_address(const PairTensor& tensor, std::int64_t index) {
  return static_cast<std::uint8_t*>(tensor.data) + index * row_bytes(tensor);
}

/// Channels first .. first + 7 of a row, zero from `width` on, whatever the tensor's dtype.
__device__ __forceinline__ void load_octet(const PairTensor& x, const void* row, int first, float (&values)[kOctet]) {
  if (x.is_vectorised && first + kOctet <= x.width) {
    switch (x.dtype) {
      case core::DType::kBf16: widen<core::DType::kBf16>(read_octet<core::DType::kBf16>(row, first), values); break;
      case core::DType::kF16: widen<core::DType::kF16>(read_octet<core::DType::kF16>(row, first), values); break;
      default: widen<core::DType::kF32>(read_octet<core::DType::kF32>(row, first), values);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kOctet; ++i) values[i] = first + i < x.width ? read_element(x.dtype, row, first + i) : 0.0F;
  }
  if (x.is_rounded_to_bf16) {
#pragma unroll
    for (float& value : values) value = __bfloat162float(__float2bfloat16_rn(value));
  }
}

/// The same elements of a result; those from `width` on stay unwritten.
__device__ __forceinline__ void store_octet(const PairTensor& out, void* row, int first, const float (&values)[kOctet]) {
  if (out.dtype == core::DType::kF32) {
    float* const to = static_cast<float*>(row) + first;
    if (out.is_vectorised && first + kOctet <= out.width) {
      reinterpret_cast<float4*>(to)[0] = make_float4(values[0], values[1], values[2], values[3]);
      reinterpret_cast<float4*>(to)[1] = make_float4(values[4], values[5], values[6], values[7]);
    } else {
#pragma unroll
      for (int i = 0; i < kOctet; ++i)
        if (first + i < out.width) to[i] = values[i];
    }
    return;
  }
  std::uint32_t words[kOctet / 2];
#pragma unroll
  for (int i = 0; i < kOctet / 2; ++i)
    words[i] = out.dtype == core::DType::kBf16 ? pack_pair<Arithmetic::kBf16>(values[2 * i], values[2 * i + 1])
                                               : pack_pair<Arithmetic::kFp16>(values[2 * i], values[2 * i + 1]);
  auto* const to = static_cast<std::uint16_t*>(row) + first;
  if (out.is_vectorised && first + kOctet <= out.width) {
    *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
  } else {
#pragma unroll
    for (int i = 0; i < kOctet; ++i)
      if (first + i < out.width) to[i] = static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16));
  }
}

/// Stores eight values of consecutive k as elements of an operand: chunk or chunks of the octet in the row of a slab at `row_smem`.
/// `octet`: in the slab.
template <Arithmetic kArithmetic>
__device__ __forceinline__ void store_operand(std::uint32_t row_smem, int octet, int key, const float (&v)[kOctet]) {
  if constexpr (kArithmetic == Arithmetic::kPairs) {
    const OctetParts parts = split_octet(v);
    ptx::store_shared(row_smem + static_cast<unsigned>(((2 * octet) ^ key) << 4), parts.high);
    ptx::store_shared(row_smem + static_cast<unsigned>(((2 * octet + 1) ^ key) << 4), parts.low);
  } else if constexpr (operand_bytes(kArithmetic) == 2) {
    const uint4 chunk = make_uint4(pack_pair<kArithmetic>(v[0], v[1]), pack_pair<kArithmetic>(v[2], v[3]),
                                   pack_pair<kArithmetic>(v[4], v[5]), pack_pair<kArithmetic>(v[6], v[7]));
    ptx::store_shared(row_smem + static_cast<unsigned>((octet ^ key) << 4), chunk);
  } else {
    std::uint32_t words[kOctet];
#pragma unroll
    for (int i = 0; i < kOctet; ++i) words[i] = __float_as_uint(v[i]);
    ptx::store_shared(row_smem + static_cast<unsigned>(((2 * octet) ^ key) << 4), make_uint4(words[0], words[1], words[2], words[3]));
    ptx::store_shared(row_smem + static_cast<unsigned>(((2 * octet + 1) ^ key) << 4), make_uint4(words[4], words[5], words[6], words[7]));
  }
}

/// Octets in a slab: 8 or 4.
template <Arithmetic kArithmetic>
inline constexpr int kOctetsPerSlab = slab_elements(kArithmetic) / kOctet;

/// How a row is normalised: ((x factor - mean) - rest) scale.
struct RowStatistics {
  float mean, rest, scale, factor;
  [[nodiscard]] __device__ __forceinline__ float apply(float value) const { return (fmaf(value, factor, -mean) - rest) * scale; }
};

inline constexpr int kLanesPerRow = 8;

__device__ __forceinline__ float row_sum(float value) {
#pragma unroll
  for (int step = 1; step < kLanesPerRow; step *= 2) value += __shfl_xor_sync(0xffffffffU, value, step);
  return value;
}

/// Statistics of one row for each group of eight lanes. `octets(visit)` calls visit(values, count) with this lane's octets and how many of
/// their elements count, the same ones every time. Whole warp.
template <typename Octets>
__device__ __forceinline__ RowStatistics row_statistics(const Octets& octets, float inverse_width, float eps) {
  constexpr float kHugeMean = 0x1p40F;
  constexpr float kFinite = 0x1p127F;
  constexpr float kLeastEps = 1e-30F;  // negligible beside any variance of a huge row, but not zero: the variance of a constant row is
  RowStatistics s{0.0F, 0.0F, 0.0F, 1.0F};
  float row_eps = eps;
#pragma unroll 1
  for (int attempt = 0;; ++attempt) {
    float sum = 0.0F;
    octets([&](const float(&v)[kOctet], int count) {
#pragma unroll
      for (int i = 0; i < kOctet; ++i)
        if (i < count) sum = fmaf(v[i] * s.factor, inverse_width, sum);
    });
    s.mean = row_sum(sum);
    float rest = 0.0F;
    octets([&](const float(&v)[kOctet], int count) {
#pragma unroll
      for (int i = 0; i < kOctet; ++i)
        if (i < count) rest += fmaf(v[i], s.factor, -s.mean);
    });
    s.rest = row_sum(rest) * inverse_width;
    float squares = 0.0F;
    octets([&](const float(&v)[kOctet], int count) {
#pragma unroll
      for (int i = 0; i < kOctet; ++i)
        if (i < count) {
          const float deviation = fmaf(v[i], s.factor, -s.mean) - s.rest;
          squares = fmaf(deviation, deviation, squares);
        }
    });
    squares = row_sum(squares);
    const bool is_safe = squares < kFinite && fabsf(s.mean) < kHugeMean;
    if (attempt > 0 || __all_sync(0xffffffffU, is_safe)) {
      s.scale = rsqrtf(squares * inverse_width + row_eps);
      return s;
    }
    if (!is_safe) {
      s.factor = 0x1p-70F;
      row_eps = fmaxf(eps * s.factor * s.factor, kLeastEps);
    }
  }
}

/// (x - mean) / std * weight + bias of an octet; norm[channel] = (weight, bias), 16-byte aligned, zero from the width on.
__device__ __forceinline__ void normalise(const RowStatistics& s, const float2* norm, int first, float (&v)[kOctet]) {
  const auto* const pairs = reinterpret_cast<const float4*>(norm + first);
#pragma unroll
  for (int i = 0; i < kOctet; i += 2) {
    const float4 n = __ldg(pairs + i / 2);
    v[i] = fmaf(s.apply(v[i]), n.x, n.y);
    v[i + 1] = fmaf(s.apply(v[i + 1]), n.z, n.w);
  }
}

/// The normalised rows of a tile of kPositions positions, as slabs [kPositions][128 bytes] in shared memory, and how to make them again
/// where not all slabs fit.
template <Arithmetic kArithmetic, int kPositions, bool kSpread>
struct NormalisedRows {
  static constexpr int kWarpRows = kPositions / (projection_threads(kArithmetic, kPositions) / 32);  // positions that a warp normalises
  static constexpr int kRowsAtOnce = 32 / kLanesPerRow;
  static constexpr int kSlabBytes = kPositions * kSlabRowBytes;
  static constexpr core::DType kNativeDType = kArithmetic == Arithmetic::kBf16   ? core::DType::kBf16
                                              : kArithmetic == Arithmetic::kFp16 ? core::DType::kF16
                                                                                 : core::DType::kF32;

  PairTensor x;
  Positions positions;
  const std::uint8_t* copy;  // of the tile's rows, which are read from there; null: there is none
  const float2* norm;
  float inverse_width;
  float eps;

  static __device__ __forceinline__ int key(int row) {
    if constexpr (kSpread) return spread_key(row);
    return row & 7;
  }

  /// Can the rows be held in registers between the passes?
  [[nodiscard]] __device__ __forceinline__ bool is_short(int octets_per_lane) const {
    return x.dtype == kNativeDType && x.is_vectorised && !x.is_rounded_to_bf16 && x.width % kOctet == 0 &&
           x.width <= octets_per_lane * kLanesPerRow * kOctet;
  }

  [[nodiscard]] __device__ __forceinline__ const std::uint8_t* row_of(const Positions::Start& begin, int position, bool& is_valid) const {
    const Positions::Pair pair = positions.pair(begin, position);
    is_valid = pair.is_valid;
    if (copy != nullptr) return copy + position * row_bytes(x);
    return row_address(x, pair.is_valid ? pair.index(positions.tokens) : 0);
  }

  /// Statistics and every slab in one reading of x: rows of at most 8 kOctets octets, in registers. `rows_smem`: slab 0.
  template <int kOctets>
  __device__ __forceinline__ void fill_short(const Positions::Start& begin, std::uint32_t rows_smem) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int warp = static_cast<int>(threadIdx.x / 32);
    const int num_octets = x.width / kOctet;
    const int slab_octets = (num_octets + kOctetsPerSlab<kArithmetic> - 1) / kOctetsPerSlab<kArithmetic> * kOctetsPerSlab<kArithmetic>;
    constexpr int kPasses = kWarpRows / kRowsAtOnce;
    constexpr int kMostBatch = kOctets <= 2 ? 4 : 2;
    constexpr int kBatch = kPasses < kMostBatch ? kPasses : kMostBatch;  // rows whose loads are under way at once
#pragma unroll
    for (int first_pass = 0; first_pass < kPasses; first_pass += kBatch) {
      RawOctet raw[kBatch][kOctets];
#pragma unroll
      for (int pass = 0; pass < kBatch; ++pass) {
        bool is_valid;
        const int position = kWarpRows * warp + (first_pass + pass) * kRowsAtOnce + lane / kLanesPerRow;
        const std::uint8_t* const row = row_of(begin, position, is_valid);
#pragma unroll
        for (int j = 0; j < kOctets; ++j) {
          const int octet = lane % kLanesPerRow + j * kLanesPerRow;
          raw[pass][j] = RawOctet{};
          if (is_valid && octet < num_octets) raw[pass][j] = read_octet<kNativeDType>(row, octet * kOctet);
        }
      }
#pragma unroll
      for (int pass = 0; pass < kBatch; ++pass) {
        const int position = kWarpRows * warp + (first_pass + pass) * kRowsAtOnce + lane / kLanesPerRow;
        const auto octets = [&](auto&& visit) {
#pragma unroll
          for (int j = 0; j < kOctets; ++j) {
            float v[kOctet];
            widen<kNativeDType>(raw[pass][j], v);
            if (lane % kLanesPerRow + j * kLanesPerRow < num_octets) visit(v, kOctet);
          }
        };
        const RowStatistics s = row_statistics(octets, inverse_width, eps);
#pragma unroll
        for (int j = 0; j < kOctets; ++j) {
          const int octet = lane % kLanesPerRow + j * kLanesPerRow;
          if (octet >= slab_octets) continue;
          float v[kOctet];
          widen<kNativeDType>(raw[pass][j], v);
          normalise(s, norm, octet * kOctet, v);
          store_operand<kArithmetic>(
              rows_smem + static_cast<unsigned>(octet / kOctetsPerSlab<kArithmetic> * kSlabBytes + position * kSlabRowBytes),
              octet % kOctetsPerSlab<kArithmetic>, key(position), v);
        }
      }
    }
  }

  /// Statistics of every row of the tile, into shared memory; visible after a barrier.
  __device__ __forceinline__ void find_statistics(const Positions::Start& begin, RowStatistics* statistics) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll 1
    for (int pass = 0; pass < kWarpRows / kRowsAtOnce; ++pass) {
      const int position = kWarpRows * warp + pass * kRowsAtOnce + lane / kLanesPerRow;
      bool is_valid;
      const std::uint8_t* const row = row_of(begin, position, is_valid);
      const auto octets = [&](auto&& visit) {
#pragma unroll 1
        for (int first = lane % kLanesPerRow * kOctet; is_valid && first < x.width; first += kLanesPerRow * kOctet) {
          float v[kOctet];
          load_octet(x, row, first, v);
          visit(v, min(kOctet, x.width - first));
        }
        __syncwarp();
      };
      const RowStatistics s = row_statistics(octets, inverse_width, eps);
      if (lane % kLanesPerRow == 0) statistics[position] = s;
    }
  }

  /// Slabs first_slab .. first_slab + num_slabs - 1 of the rows, whose statistics are known.
  __device__ __forceinline__ void fill(const Positions::Start& begin, const RowStatistics* statistics, int first_slab, int num_slabs,
                                       std::uint32_t rows_smem) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll 1
    for (int pass = 0; pass < kWarpRows / kRowsAtOnce; ++pass) {
      const int position = kWarpRows * warp + pass * kRowsAtOnce + lane / kLanesPerRow;
      bool is_valid;
      const std::uint8_t* const row = row_of(begin, position, is_valid);
      const RowStatistics s = statistics[position];
#pragma unroll 1
      for (int octet = lane % kLanesPerRow; octet < num_slabs * kOctetsPerSlab<kArithmetic>; octet += kLanesPerRow) {
        const int first = (first_slab * kOctetsPerSlab<kArithmetic> + octet) * kOctet;
        float v[kOctet] = {};
        if (is_valid && first < x.width) {
          load_octet(x, row, first, v);
          normalise(s, norm, first, v);
        }
        store_operand<kArithmetic>(
            rows_smem + static_cast<unsigned>(octet / kOctetsPerSlab<kArithmetic> * kSlabBytes + position * kSlabRowBytes),
            octet % kOctetsPerSlab<kArithmetic>, key(position), v);
      }
    }
  }

  /// Statistics and, where they fit, all `slabs`: kIsWhole knows that they do. Ends with a barrier.
  template <bool kIsWhole>
  __device__ __forceinline__ void prepare(const Positions::Start& begin, RowStatistics* statistics, int slabs, std::uint32_t rows_smem,
                                          bool fits = kIsWhole) const {
    if (kIsWhole && is_short(2)) {
      fill_short<2>(begin, rows_smem);
    } else if (kIsWhole && is_short(4)) {
      fill_short<4>(begin, rows_smem);
    } else {
      find_statistics(begin, statistics);
      __syncthreads();
      if (fits) fill(begin, statistics, 0, slabs, rows_smem);
    }
    __syncthreads();
  }
};

}  // namespace trimul::cuda::sm80
