// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>
#include <vector_types.h>

#include <cstdint>

#include "cuda/common/l2_policy.hpp"
#include "cuda/common/pair_tiling.hpp"
#include "cuda/host/chain.hpp"
#include "cuda/sm90/limits.hpp"

namespace trimul::cuda::sm90 {

struct OutputProjectionConfig {
  int warpgroups = 3;  // autonomous; each owns a tile of 64 positions at a time
  bool has_residual = false;
  constexpr int threads() const { return kWarpgroupThreads * warpgroups; }
};

// Types instead of values: see input_projection/config.hpp.
struct OutputProjectionPlain {
  static constexpr OutputProjectionConfig kCfg{};
};
struct OutputProjectionResidual {
  static constexpr OutputProjectionConfig kCfg{.has_residual = true};
};

/// Of the kernel for kWideWidth, beside the one that has the producer.
inline constexpr int kStreamingOutputWarpgroups = 2;

struct OutputProjectionParams {
  CUtensorMap x;             // [B N N, C_z] as PairTiling::copy says
  CUtensorMap y;             // [C, positions]
  CUtensorMap p_weight;      // [C_z, C], halved
  CUtensorMap g_weight;      // [C_z, C_z], halved
  CUtensorMap out;           // [B N N, C_z]; x's memory when in place
  const float2* statistics;  // [positions]: scale and shift that normalise a row of x
  const float2* norm_in;     // [C_z]: weight, bias
  const float2* norm_out;    // [C]: weight, bias
  const float* bias;         // [2, C_z]: p_out_bias, g_out_bias, halved; zeros without biases
  PairTiling tiling;
  L2Policy y_policy;  // plane_policy
  float eps;
  std::uint32_t unpack_shift = 16;  // constants that ptxas must not know: fragment_norm.cuh, UnpackByArgument
  std::uint32_t unpack_mask = 0xffff0000U;
  std::int32_t once = 1;  // likewise: fragment_normalise_in_parts
};

/// What chooses the kernel.
struct OutputProjectionForm {
  int width;  // C_z = C
  bool has_residual, has_bias;
};

/// Adds the kernel of a form to `chain`. `overlaps`: programmatically dependent on the contraction; x must then be complete before the
/// contraction starts. Throws DEVICE_ERROR.
void launch_output_projection(const OutputProjectionParams& params, const OutputProjectionForm& form, bool overlaps, int num_sms,
                              Chain& chain);
void launch_streaming_output_projection(const OutputProjectionParams& params, const OutputProjectionForm& form, bool overlaps, int num_sms,
                                        Chain& chain);

/// Sets the shared-memory attributes of the kernels for C_z = C = `width` on the current device. Throws DEVICE_ERROR.
void prepare_output_projection(int width);
void prepare_streaming_output_projection();

}  // namespace trimul::cuda::sm90
