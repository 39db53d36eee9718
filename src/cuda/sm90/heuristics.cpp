// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/heuristics.hpp"

#include <algorithm>
#include <numeric>

#include "core/checked.hpp"

namespace trimul::cuda::sm90 {

using core::ceil_div;
using core::round_up;

ContractionVariant recommend_contraction(std::int64_t tokens) {
  if (tokens <= 64) return ContractionVariant::kSmall64x64;
  if (tokens <= 128) return ContractionVariant::kPingPong128x128;
  if (tokens <= 192) return ContractionVariant::kShared192x192;
  if (tokens <= 384) return ContractionVariant::kPingPong128x128;
  // Tiles of 192 and 128 columns fit what 128 alone would overshoot, and from 900 tokens on the wider tile saves shared-memory traffic.
  if (tokens >= 900 || round_up(tokens, 128) > round_up(tokens, 64)) return ContractionVariant::kPingPong128x192;
  return ContractionVariant::kPingPong128x128;
}

int input_projection_parts(std::uint32_t tiles, int num_sms) {
  // H200, us with 2 parts / 1: N = 64 (64 tiles) 6.9 / 8.8, 128 (256 tiles) 9.4 / 8.9, 192 17.2 / 17.0, 217 21.8 / 19.9. Two parts halve
  // the weights a block waits for and the chunks of a tile, but repeat its LayerNorm: worth it while multiprocessors have idle warpgroups.
  return tiles <= static_cast<std::uint32_t>(num_sms) ? 2 : 1;
}

bool overlaps_projection(std::int64_t tokens) {
  // H200, us with / without: N = 64 15.0 / 16.0, 128 19.6 / 20.1, 192 36.5 / 36.5, 256 51.4 / 51.0, 384 117.8 / 113.5, 512 211.6 / 205.0,
  // 768 508 / 507, 1024 993 / 993. Why it loses in the middle is not known.
  return tokens <= 192;
}

namespace {

/// The mix of wide and narrow columns that overshoots N least, with the most wide ones among equals.
void choose_columns(const TriangleContractionConfig& config, std::int64_t tokens, ContractionTiling& tiling) {
  if (config.narrow_tile_n == 0) {
    tiling.tiles_n = tiling.wide_tiles_n = static_cast<std::int32_t>(ceil_div(tokens, config.tile_n));
    return;
  }
  const std::int64_t columns = ceil_div(tokens, 64);
  const std::int64_t wide = config.tile_n / 64;
  const std::int64_t narrow = config.narrow_tile_n / 64;
  std::int64_t least_over = columns + wide + narrow;
  for (std::int64_t wide_tiles = 0; wide_tiles <= ceil_div(columns, wide); ++wide_tiles) {
    const std::int64_t left = std::max<std::int64_t>(columns - wide_tiles * wide, 0);
    const std::int64_t narrow_tiles = ceil_div(left, narrow);
    const std::int64_t over = wide_tiles * wide + narrow_tiles * narrow - columns;
    if (over > least_over) continue;
    least_over = over;
    tiling.wide_tiles_n = static_cast<std::int32_t>(wide_tiles);
    tiling.tiles_n = static_cast<std::int32_t>(wide_tiles + narrow_tiles);
  }
}

}  // namespace

ContractionTiling tile_contraction(ContractionVariant variant, std::int64_t tokens, std::int64_t planes, int num_sms) {
  const TriangleContractionConfig config = contraction_config(variant);
  ContractionTiling tiling{};
  tiling.k_stages = static_cast<std::int32_t>(ceil_div(tokens, 64));
  tiling.last_k_steps = static_cast<std::int32_t>(ceil_div(tokens - (tiling.k_stages - 1) * 64, 16));
  tiling.tiles_m = static_cast<std::int32_t>(ceil_div(tokens, config.tile_m()));
  choose_columns(config, tokens, tiling);
  tiling.total_tiles = planes * tiling.tiles_m * tiling.tiles_n;
  tiling.skips_empty_rows = config.ping_pong && tokens < 640 && tiling.tiles_m * config.tile_m() - tokens >= 64;
  // Where tiles of a plane differ in cost, consecutive waves must not give a block the same one: step by a number that shares no factor
  // with the cycle of the costs.
  const bool mixes_widths = tiling.wide_tiles_n > 0 && tiling.wide_tiles_n < tiling.tiles_n;
  const std::int32_t cycle = tiling.skips_empty_rows ? tiling.tiles_m * tiling.tiles_n : mixes_widths ? tiling.tiles_n : 1;
  const int blocks = num_sms * config.blocks_per_sm;
  while (std::gcd(blocks + tiling.rotation, cycle) != 1) ++tiling.rotation;
  return tiling;
}

PairTiling tile_pairs(std::int64_t batch, std::int64_t tokens) {
  const std::int64_t padded = padded_tokens(tokens);
  PairTiling tiling;
  tiling.tokens = static_cast<std::uint32_t>(tokens);
  tiling.rows = static_cast<std::uint32_t>(batch * tokens);
  tiling.num_tiles = static_cast<std::uint32_t>(channel_pitch(batch, tokens) / kTilePositions);
  tiling.units_per_row = FastDivisor(static_cast<std::uint32_t>(padded / kUnitPositions));
  tiling.tokens_per_sample = FastDivisor(static_cast<std::uint32_t>(tokens));
  tiling.copy = padded == tokens ? TileCopy::kFlat : padded % kTilePositions == 0 ? TileCopy::kRow : TileCopy::kUnits;
  return tiling;
}

std::int64_t channel_pitch(std::int64_t batch, std::int64_t tokens) {
  return round_up(batch * tokens * padded_tokens(tokens), 2 * kTilePositions);
}

}  // namespace trimul::cuda::sm90
