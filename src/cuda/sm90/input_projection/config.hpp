// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>
#include <vector_types.h>

#include <cstdint>

#include "cuda/common/mask_params.hpp"
#include "cuda/common/pair_tiling.hpp"
#include "cuda/host/chain.hpp"
#include "cuda/sm90/limits.hpp"

namespace trimul::cuda::sm90 {

struct InputProjectionConfig {
  int warpgroups = 4;  // autonomous; each owns a tile of 64 positions at a time
  int parts = 1;       // blocks that share a tile's output channels; more than one where there are too few tiles for all blocks
  bool has_bias = false;
  constexpr int threads() const { return kWarpgroupThreads * warpgroups; }
};

// Kernels take the type and not the value: nvcc 13.0 cannot write the host stub of a kernel whose template argument is a class value.
template <int kParts, bool kHasBias>
struct InputProjectionVariant {
  static constexpr InputProjectionConfig kCfg{.parts = kParts, .has_bias = kHasBias};
};

/// Of the kernel for kWideWidth, beside the one that has the producer.
inline constexpr int kStreamingInputWarpgroups = 3;

struct InputProjectionParams {
  CUtensorMap x;        // [B N N, C_z] as PairTiling::copy says
  CUtensorMap weights;  // [4C, C_z]: value and gate rows interleaved by 8, both halved
  CUtensorMap planes;   // [2C, positions]: a, then b
  const float2* norm;   // [C_z]: weight, bias
  const float* bias;    // [4C], interleaved and halved as the weights; null without biases
  float2* statistics;   // [positions]: scale and shift that normalise a row of x, for the output projection
  MaskParams mask;
  PairTiling tiling;
  int parts;                  // 1 or 2: blocks that share a tile's output channels
  std::uint32_t part_blocks;  // streaming kernel: blocks of a part, and chunks of the weights that are theirs
  std::int32_t part_chunks;
  float eps;
  std::int32_t once = 1;  // a constant that ptxas must not know: fragment_norm.cuh, fragment_normalise_in_parts
};

/// Adds the kernel for C_z = C = `width` to `chain`. `overlaps`: programmatically dependent on the kernel before it. Throws DEVICE_ERROR.
void launch_input_projection(const InputProjectionParams& params, int width, bool overlaps, int num_sms, Chain& chain);
void launch_streaming_input_projection(const InputProjectionParams& params, bool overlaps, int num_sms, Chain& chain);

/// Sets the shared-memory attributes of the kernels for C_z = C = `width` on the current device. Throws DEVICE_ERROR.
void prepare_input_projection(int width);
void prepare_streaming_input_projection();

}  // namespace trimul::cuda::sm90
