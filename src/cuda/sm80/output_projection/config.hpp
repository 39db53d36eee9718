// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector_types.h>

#include <cstdint>

#include "cuda/host/chain.hpp"
#include "cuda/sm80/arithmetic.hpp"
#include "cuda/sm80/heuristics.hpp"
#include "cuda/sm80/pair_tensor.hpp"
#include "cuda/sm80/positions.hpp"

namespace trimul::cuda::sm80 {

struct OutputProjectionParams {
  PairTensor x;
  PairTensor out;
  const std::uint8_t* y;        // [C][pitch]
  const std::uint8_t* weights;  // images of kOutChunkRows rows, [chunks][slabs of g_out, slabs of p_out]
  const float2* norm_in;        // [C_z]: weight, bias; zero behind
  const float2* norm_out;       // [C]
  const float* p_bias;          // [chunks kOutChunkRows]; null without biases
  const float* g_bias;
  const float2* p_affine;  // of scaled operands, in place of biases: what a sum is multiplied by, and the bias
  const float2* g_affine;
  const std::int32_t* is_unbiased;  // of scaled operands: whether the biases of norm_out are all zero
  std::uint8_t* copies;  // for each block the rows of x of its tile, which it overwrites while it still needs them; null: it does not
  Positions positions;
  std::int64_t num_tiles;
  std::int32_t channels;  // C
  std::int32_t chunks;
  std::int32_t x_slabs, y_slabs;                    // of C_z, of C
  std::int32_t resident_x_slabs, resident_y_slabs;  // of them in shared memory at a time
  std::int32_t stages;                              // of the weights' ring
  bool has_residual;
  float eps;
};

/// Adds the kernel to `chain`. `most_blocks`: of the grid, where params.copies has room for no more. `overlaps`: with
/// the end of the kernel before it. Throws DEVICE_ERROR.
void launch_output_projection(const OutputProjectionParams& params, Arithmetic arithmetic, const ProjectionConfig& config,
                              std::int64_t most_blocks, int num_sms, bool overlaps, Chain& chain);

/// As prepare_input_projection. Returns whether the kernel can overlap with the one before it.
bool prepare_output_projection(Arithmetic arithmetic, std::int64_t c_z, std::int64_t c_hidden, bool has_bias,
                               const ProjectionConfig& config, std::size_t smem_bytes);

}  // namespace trimul::cuda::sm80
