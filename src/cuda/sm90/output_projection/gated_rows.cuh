// SPDX-License-Identifier: Apache-2.0
// What both kernels of the output projection do with the products of 64 output channels. With halved weights v' = v / 2 and g' = g / 2 the
// product v sigmoid(g) is v' + v' tanh(g').
#pragma once

#include <cstdint>

#include "cuda/common/fragment_norm.cuh"
#include "cuda/ptx/matrix.cuh"
#include "cuda/sm90/tile_copy.cuh"

namespace trimul::cuda::sm90 {

inline constexpr int kOutChunk = 64;  // output channels per product of values

/// acc = the biases of the output channels from `bias` on.
template <int kCount>
__device__ __forceinline__ void start_from_bias(const float* bias, int lane, float (&acc)[kCount]) {
#pragma unroll
  for (int j = 0; j < kCount / 4; ++j) {
    const float2 pair = *reinterpret_cast<const float2*>(&bias[8 * j + 2 * (lane & 3)]);
    acc[4 * j] = pair.x, acc[4 * j + 1] = pair.y, acc[4 * j + 2] = pair.x, acc[4 * j + 3] = pair.y;
  }
}

/// value' + value' tanh(gate') [+ x] of a chunk for a warp's 16 positions, over x in its tile.
template <bool kHasResidual>
__device__ __forceinline__ void gate_rows(std::uint32_t lane_address, int chunk, const float (&value)[kOutChunk / 2], const float* gate) {
#pragma unroll
  for (int octet = 0; octet < kOutChunk / 8; octet += 2) {
    const std::uint32_t address = fragment_address(lane_address, chunk * (kOutChunk / 16) + octet / 2);
    std::uint32_t x[4] = {0, 0, 0, 0};
    if constexpr (kHasResidual) ptx::ldmatrix_x4(x, address);
    std::uint32_t packed[4];
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      const int i = 4 * octet + 2 * u;
      float low = fmaf(value[i], ptx::tanh_approx(gate[i]), value[i]);
      float high = fmaf(value[i + 1], ptx::tanh_approx(gate[i + 1]), value[i + 1]);
      if constexpr (kHasResidual) {
        low += UnpackByShift{}.low(x[u]);
        high += UnpackByShift{}.high(x[u]);
      }
      packed[u] = pack_bf16(low, high);
    }
    ptx::stmatrix_x4(address, packed);
  }
}

}  // namespace trimul::cuda::sm90
