// SPDX-License-Identifier: Apache-2.0
// Choices of the sm_90 implementation: pure functions of the problem and the device, compiled without nvcc and tested on the CPU.
#pragma once

#include <cstdint>

#include "cuda/common/pair_tiling.hpp"
#include "cuda/sm90/triangle_contraction/variants.hpp"

namespace trimul::cuda::sm90 {

/// The contraction's variant by token count; the table stands in heuristics.cpp with the measurement behind each row.
ContractionVariant recommend_contraction(std::int64_t tokens);

/// Blocks that share the output channels of the input projection: 2 where there are few tiles, else 1.
int input_projection_parts(std::uint32_t tiles, int num_sms);

/// Whether the contraction is launched programmatically dependent on the input projection.
bool overlaps_projection(std::int64_t tokens);

/// How a plane of N x N is cut into tiles, and in which order blocks take them.
struct ContractionTiling {
  std::int32_t k_stages, last_k_steps;
  std::int32_t tiles_m, tiles_n, wide_tiles_n;
  std::int64_t total_tiles;
  std::int32_t rotation;
  bool skips_empty_rows;
};

ContractionTiling tile_contraction(ContractionVariant variant, std::int64_t tokens, std::int64_t planes, int num_sms);

/// Positions and tiles of the two projections.
PairTiling tile_pairs(std::int64_t batch, std::int64_t tokens);

/// Elements between the planes of two channels: B N n_pad, up to a multiple of two tiles.
std::int64_t channel_pitch(std::int64_t batch, std::int64_t tokens);

}  // namespace trimul::cuda::sm90
