// SPDX-License-Identifier: Apache-2.0
// What the two kernels that pack weights share.
#pragma once

#include "cuda/common/parameter_source.cuh"
#include "cuda/sm80/packed_weights.hpp"

namespace trimul::cuda::sm80 {

struct PackParams {
  ParameterSources from;
  std::uint8_t* packed;
  Arithmetic arithmetic;
  std::int64_t c_z, c_hidden;
  PackedLayout layout;
};

/// Adds to `chain` the kernel that packs weights for scaled operands (is_scaled).
void pack_scaled_weights(const PackParams& params, Chain& chain);

/// Channel of a chunk of the output projection that row `row` of its images belongs to: a thread that holds the columns 2 t, 2 t + 1 of
/// each of four n-tiles has the eight channels from 8 t on.
__device__ __forceinline__ int out_channel_of(int row) {
  const int ni = row % 32 / 8;
  const int c = row % 8;
  return row / 32 * 32 + 8 * (c / 2) + 2 * ni + c % 2;
}

/// An infinite weight of a gate makes it 0 or 1, and so does this largest number, which two parts can hold.
__device__ __forceinline__ float finite_weight(float value) {
  return isinf(value) ? copysignf(0x1.ffcp127F, value) : value;
}

}  // namespace trimul::cuda::sm80
