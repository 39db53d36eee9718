// SPDX-License-Identifier: Apache-2.0
// Choices of the sm_90 implementation: pure functions of the problem and the device, compiled without nvcc and tested on the CPU.
#pragma once

#include <cstdint>
#include <span>

#include "core/problem.hpp"
#include "cuda/common/l2_policy.hpp"
#include "cuda/common/pair_tiling.hpp"
#include "cuda/sm90/triangle_contraction/variants.hpp"

namespace trimul::cuda::sm90 {

/// Kernels that are launched programmatically dependent on the one before them on the stream.
enum Overlap : unsigned { kOverlapInputProjection = 1, kOverlapTriangleContraction = 2, kOverlapOutputProjection = 4, kOverlapAll = 7 };

/// What of a plan may be chosen; every choice computes bitwise the same.
struct Knobs {
  int k1_parts = 1;  // blocks that share the output channels of a tile of the input projection: 1 or 2
  ContractionVariant k2_tile = ContractionVariant::kPingPong128x128;
  unsigned overlap = kOverlapAll;  // added up out of Overlap
  friend bool operator==(const Knobs&, const Knobs&) = default;
};

/// One row of the table: the choice for this many tokens and up to the next row's.
struct HeuristicsRow {
  std::int64_t tokens_from;
  Knobs knobs;
};

/// Rows by ascending tokens, the first from 1. B >= 4 has its own: tiles of several samples fill multiprocessors that one leaves idle.
std::span<const HeuristicsRow> heuristics_table(std::int64_t batch);

/// The row at or below `tokens`, but for a few at `c` (both widths) = 256. `direction` does not change the choice: the directions have been
/// measured to prefer the same.
Knobs recommend(std::int64_t tokens, std::int64_t c, std::int64_t batch, core::Direction direction);

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

/// Elements between the planes of two channels: B N n_pad, up to a multiple of 256 bytes.
std::int64_t channel_pitch(std::int64_t batch, std::int64_t tokens);

/// For the contraction's loads of a and b and the output projection's of y, which are their last.
L2Policy plane_policy(std::int64_t batch, std::int64_t tokens, std::int64_t c);

}  // namespace trimul::cuda::sm90
