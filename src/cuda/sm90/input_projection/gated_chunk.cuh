// SPDX-License-Identifier: Apache-2.0
// What both kernels of the input projection do with the products of a chunk of weights: 64 value rows and their 64 gate rows, interleaved
// by eight, for the 64 positions of a warpgroup's tile. With halved weights v' = v / 2 and g' = g / 2 the product v sigmoid(g) is
// v' + v' tanh(g'), one FFMA.
#pragma once

#include <cstdint>

#include "cuda/common/fragment_norm.cuh"
#include "cuda/common/mask.cuh"
#include "cuda/ptx/matrix.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/sm90/limits.hpp"

namespace trimul::cuda::sm90 {

inline constexpr int kInChunkRows = 128;                                       // rows of the weights per product
inline constexpr int kInChunkChannels = kInChunkRows / 2;                      // channels of a or b that a chunk yields
inline constexpr int kInStagingBytes = kInChunkChannels * kTilePositions * 2;  // [64 channels][128 bytes], swizzled
using InChunkSums = float[kInChunkRows / 2];                                   // a thread's part of the products
inline constexpr int kInChunkPairs = kInChunkRows / 2;                         // of neighbouring biases

/// Offset in the staging buffer of the row that a lane passes to stmatrix for the first two octets of channels.
__device__ __forceinline__ std::uint32_t staging_row_offset(int warp, int lane) {
  const int matrix = lane / 8;
  const int row = lane % 8;
  return static_cast<std::uint32_t>((8 * (matrix / 2) + row) * kSwizzleRowBytes + (((2 * warp + (matrix & 1)) ^ row) << 4));
}

/// acc = the biases of a chunk, out of those of all chunks.
__device__ __forceinline__ void start_from_bias(const float2* pairs, int chunk, int lane, InChunkSums& acc) {
#pragma unroll
  for (int j = 0; j < kInChunkRows / 8; ++j) {
    const float2 pair = pairs[(chunk * kInChunkRows + 8 * j) / 2 + (lane & 3)];
    acc[4 * j] = pair.x, acc[4 * j + 1] = pair.y, acc[4 * j + 2] = pair.x, acc[4 * j + 3] = pair.y;
  }
}

/// The masks of a thread's two rows.
struct RowMasks {
  RowPair factor;
  bool keeps_first, keeps_second;  // the factor is not 0
  bool are_selections;             // every factor of the warp is 0 or 1
  bool keep_all;                   // no factor of the warp is 0
};

/// Lanes hold the factors of 16 positions of two tiles, the `half`-th of which is meant.
__device__ __forceinline__ RowMasks spread_mask(float of_lane, int lane, int half) {
  const int source = 16 * half + lane / 4;
  RowMasks mask;
  mask.factor = {__shfl_sync(0xffffffffU, of_lane, source), __shfl_sync(0xffffffffU, of_lane, source + 8)};
  mask.keeps_first = mask.factor.first != 0.0F;
  mask.keeps_second = mask.factor.second != 0.0F;
  mask.are_selections = !__any_sync(0xffffffffU, of_lane != 0.0F && of_lane != 1.0F);
  mask.keep_all = __all_sync(0xffffffffU, of_lane != 0.0F);
  return mask;
}

/// Without biases a row of zeros yields zeros, whatever x held: cheaper than selecting every output.
template <int kRegisters>
__device__ __forceinline__ void drop_masked_rows(const RowMasks& mask, std::uint32_t (&z)[kRegisters]) {
  if (mask.keep_all) return;
#pragma unroll
  for (int i = 0; i < kRegisters; i += 2) {
    z[i] = mask.keeps_first ? z[i] : 0U;
    z[i + 1] = mask.keeps_second ? z[i + 1] : 0U;
  }
}

/// Fractional masks: the values of a chunk times the mask, before the gate and before any rounding. Rare, and so out of the hot code.
__device__ __forceinline__ void scale_values(const RowMasks& mask, InChunkSums& acc) {
#pragma unroll
  for (int octet = 0; octet < kInChunkChannels / 8; ++octet)
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[8 * octet + i] *= i < 2 ? mask.factor.first : mask.factor.second;
}

/// value * sigmoid(gate) of one chunk for a warp's 16 positions, transposed into the staging buffer. A zero mask selects zero, whatever
/// the value is (drop_masked_rows has seen to that where there are no biases).
template <bool kHasBias>
__device__ __forceinline__ void gate_chunk(std::uint32_t staging_row, const InChunkSums& acc, const RowMasks& mask) {
#pragma unroll
  for (int octet = 0; octet < kInChunkChannels / 8; octet += 2) {
    std::uint32_t packed[4];
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      // values, then gates: (row, channel), (row, channel + 1), (row + 8, channel), (row + 8, channel + 1)
      const float* const v = &acc[8 * (octet + u)];
      float gated[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) gated[i] = fmaf(v[i], ptx::tanh_approx(v[i + 4]), v[i]);
      packed[2 * u] = !kHasBias || mask.keeps_first ? pack_bf16(gated[0], gated[1]) : 0U;
      packed[2 * u + 1] = !kHasBias || mask.keeps_second ? pack_bf16(gated[2], gated[3]) : 0U;
    }
    ptx::stmatrix_x4_trans(staging_row + static_cast<unsigned>(8 * octet * kSwizzleRowBytes), packed);
  }
}

}  // namespace trimul::cuda::sm90
