// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/common/fast_division.hpp"
#include "cuda/common/l2_policy.hpp"
#include "cuda/host/chain.hpp"
#include "cuda/sm90/limits.hpp"
#include "cuda/sm90/triangle_contraction/variants.hpp"

namespace trimul::cuda::sm90 {

struct TriangleContractionParams {
  CUtensorMap a;              // [C, B, N, N] of the padded planes; boxes of 64 along k (outgoing) or 64 x 64 (incoming)
  CUtensorMap b;              // likewise
  CUtensorMap y;              // [C, B, N, n_pad], boxes of 64 x 64
  FastDivisor batch;          // planes are numbered c B + b
  std::int32_t tokens;        // N
  L2Policy load_policy;       // of a and b: plane_policy
  std::int32_t k_stages;      // stages of 64 along k
  std::int32_t last_k_steps;  // 1..4 steps of 16 in the last of them: what lies past N is not multiplied
  std::int32_t tiles_m;       // tiles down a plane
  std::int32_t tiles_n;       // tiles across: wide_tiles_n of the full width, then narrow ones
  std::int32_t wide_tiles_n;
  std::int32_t total_tiles;  // of all planes
  std::int32_t rotation;     // how far a block's place moves from wave to wave, so that it does not meet the same tile of a plane again
  bool overlaps_projection;  // host: launched programmatically dependent on the input projection
  bool skips_empty_rows;     // the second 64 rows of a tile that lie past N are left out
};

/// Launches on `stream`. Throws DEVICE_ERROR. The boxes of params.a and b must be those of the variant.
void launch_triangle_contraction(ContractionVariant variant, bool incoming, const TriangleContractionParams& params, int num_sms,
                                 Chain& chain);

/// Sets the kernels' shared-memory attributes on the current device. Throws DEVICE_ERROR.
void prepare_triangle_contraction();

}  // namespace trimul::cuda::sm90
