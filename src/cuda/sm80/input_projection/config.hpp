// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector_types.h>

#include <cstdint>

#include "cuda/common/mask_params.hpp"
#include "cuda/host/chain.hpp"
#include "cuda/sm80/arithmetic.hpp"
#include "cuda/sm80/heuristics.hpp"
#include "cuda/sm80/pair_tensor.hpp"
#include "cuda/sm80/positions.hpp"

namespace trimul::cuda::sm80 {

struct InputProjectionParams {
  PairTensor x;
  const std::uint8_t* weights;  // images of kInChunkRows rows, [chunks][slabs]
  const float2* norm;           // [C_z]: weight, bias; zero behind
  const float* bias;            // [chunks kInChunkRows], interleaved as the weights; null without biases and of scaled operands
  const float2* affine;         // the same for scaled operands: what a sum is multiplied by, and the bias
  const float* mask_scale;      // of scaled operands: [B][n_pad], for token i (outgoing) or k (incoming) of a mask element; null: 1
  std::uint8_t* planes;         // [2C][pitch]: a, then b
  MaskParams mask;
  Positions positions;
  std::int64_t num_tiles;
  std::int32_t channels;  // 2C
  std::int32_t chunks;
  std::int32_t slabs;           // of C_z
  std::int32_t resident_slabs;  // of them in shared memory at a time
  std::int32_t stages;          // of the weights' ring
  std::int32_t parts;           // of the resident kernel: blocks that share a tile's chunks
  std::int32_t groups;          // of such blocks; set at the launch
  std::int32_t weight_bytes;    // of a block of the resident kernel
  bool is_incoming;             // the direction
  bool is_fed;                  // of the resident kernel: warps have room for the rows of their next tile
  float eps;
};

/// Adds the kernel to `chain`. Throws DEVICE_ERROR.
void launch_input_projection(const InputProjectionParams& params, Arithmetic arithmetic, const ProjectionConfig& config, int num_sms,
                             Chain& chain);

/// Allows the kernel `smem_bytes` of shared memory on the current device: all there is, since plans with other needs share it. Throws
/// DEVICE_ERROR.
void prepare_input_projection(Arithmetic arithmetic, std::int64_t c_z, bool has_bias, const ProjectionConfig& config,
                              std::size_t smem_bytes);

}  // namespace trimul::cuda::sm80
