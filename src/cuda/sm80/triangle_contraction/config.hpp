// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/host/chain.hpp"
#include "cuda/sm80/arithmetic.hpp"
#include "cuda/sm80/heuristics.hpp"

namespace trimul::cuda::sm80 {

struct TriangleContractionParams {
  const std::uint8_t* a;  // [C][pitch], rows of n_pad
  const std::uint8_t* b;
  std::uint8_t* y;
  const std::int32_t* exponents;  // of scaled operands: [2C], of the powers of two in the planes of a, then of b
  const float* mask_scale;        // of scaled operands: [B][n_pad], the powers of two in row i of a and row j of b; null: 1
  std::int64_t pitch;             // elements between channels
  std::int64_t sample;            // elements between samples: N n_pad
  std::int64_t tokens;            // N
  std::int64_t n_pad;
  std::int64_t batch;
  std::int64_t tiles_m, tiles_n;
  std::int64_t total_tiles;  // of all planes
  std::int32_t channels;     // C
  std::int32_t stages;       // 2 to 4
};

/// Adds the kernel to `chain`. Throws DEVICE_ERROR.
void launch_triangle_contraction(const TriangleContractionParams& params, Arithmetic arithmetic, bool incoming,
                                 const ContractionConfig& config, Chain& chain);

/// As prepare_input_projection.
void prepare_triangle_contraction(Arithmetic arithmetic, bool incoming, const ContractionConfig& config, std::size_t smem_bytes);

}  // namespace trimul::cuda::sm80
