// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/heuristics.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "core/checked.hpp"

namespace trimul::cuda::sm90 {

using core::ceil_div;
using core::round_up;

namespace {

constexpr ContractionVariant kSmall64x64 = ContractionVariant::kSmall64x64;
constexpr ContractionVariant kPingPong128x128 = ContractionVariant::kPingPong128x128;
constexpr ContractionVariant kShared192x192 = ContractionVariant::kShared192x192;
constexpr ContractionVariant kPingPong128x192 = ContractionVariant::kPingPong128x192;

// `trimul bench --sweep` prints these tables from measurements. H200, us.
//
// k1_parts: 2 halve the weights a block waits for and the chunks of a tile, but repeat its LayerNorm: worth it while multiprocessors have
// idle warpgroups. Input projection with 2 / 1: N = 64 6.9 / 8.8, 128 9.4 / 8.9, 192 17.2 / 17.0, 217 21.8 / 19.9.
// k2_tile: 128 x 192 mixes in narrow tiles of 128: it fits N that 128 alone would overshoot by 64, and from 897 on the wider tile saves
// shared-memory traffic.
// overlap: 7 all three kernels, 5 all but the contraction. With / without the contraction's: N = 64 15.0 / 16.0, 128 19.6 / 20.1,
// 192 36.5 / 36.5, 256 51.4 / 51.0, 384 117.8 / 113.5, 512 211.6 / 205.0, 768 508 / 507, 1024 993 / 993. Why it loses in the middle is not
// known.
constexpr HeuristicsRow kOneSample[] = {
    {1, {2, kSmall64x64, 7}},        {65, {2, kPingPong128x128, 7}},  {89, {1, kPingPong128x128, 7}},  {129, {1, kShared192x192, 7}},
    {193, {1, kPingPong128x128, 5}}, {385, {1, kPingPong128x192, 5}}, {449, {1, kPingPong128x128, 5}}, {513, {1, kPingPong128x192, 5}},
    {577, {1, kPingPong128x128, 5}}, {641, {1, kPingPong128x192, 5}}, {705, {1, kPingPong128x128, 5}}, {769, {1, kPingPong128x192, 5}},
    {833, {1, kPingPong128x128, 5}}, {897, {1, kPingPong128x192, 5}},
};
constexpr HeuristicsRow kFourSamples[] = {
    {1, {2, kSmall64x64, 7}},        {45, {1, kSmall64x64, 7}},       {65, {1, kPingPong128x128, 7}},  {129, {1, kShared192x192, 7}},
    {193, {1, kPingPong128x128, 5}}, {385, {1, kPingPong128x192, 5}}, {449, {1, kPingPong128x128, 5}}, {513, {1, kPingPong128x192, 5}},
    {577, {1, kPingPong128x128, 5}}, {641, {1, kPingPong128x192, 5}}, {705, {1, kPingPong128x128, 5}}, {769, {1, kPingPong128x192, 5}},
    {833, {1, kPingPong128x128, 5}}, {897, {1, kPingPong128x192, 5}},
};

}  // namespace

std::span<const HeuristicsRow> heuristics_table(std::int64_t batch) {
  if (batch >= 4) return kFourSamples;
  return kOneSample;
}

Knobs recommend(std::int64_t tokens, std::int64_t, std::int64_t batch, core::Direction) {
  const auto table = heuristics_table(batch);
  const auto above =
      std::upper_bound(table.begin(), table.end(), tokens, [](std::int64_t n, const HeuristicsRow& row) { return n < row.tokens_from; });
  return above == table.begin() ? table.front().knobs : std::prev(above)->knobs;
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
