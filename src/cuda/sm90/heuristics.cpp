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

// `trimul bench --sweep` prints such tables from measurements. Behind each row: N, us by the row / by the alternative that is named, all
// else equal. NVIDIA H200, replayed graphs back to back, outgoing, commit 7ad235c; N marked with ' at commit 8969773, N marked with " at
// commit bc13045, between which the projections became faster for either choice. At bc13045 no combination was better by more than 2.8 %
// (N = 96, since corrected; docs/performance.md). Incoming prefers the same.
//
// k1_parts: 2 halve the weights a block waits for and the chunks of a tile, but repeat its LayerNorm: worth it up to about three tiles for
// two multiprocessors, beyond which warpgroups would not idle. k2_tile: 128 x 192 mixes in narrow tiles of 128: it fits N that 128
// alone would overshoot by 64, and at large N the wider tile saves shared-memory traffic. overlap: 7 all three kernels, 5 all but the
// contraction. 7 / 5: N = 64 12.3 / 13.4, 128 18.4 / 19.2, 192 32.5 / 33.2, 217 43.8 / 43.5, 256 49.6 / 49.3, 384 121 / 111, 512 218 / 205:
// launched early its blocks run where there is room, which parts the tiles of a plane (docs/kernels/sm90-triangle-contraction.md). The
// input projection's shows only behind another kernel, not in a graph of one call.
constexpr HeuristicsRow kOneSample[] = {
    {1, {2, kSmall64x64, 7}},         // one part: 64 12.3 / 13.6; 128 x 128: 64 12.3 / 13.1
    {65, {2, kPingPong128x128, 7}},   // one part: 112 17.2 / 18.6
    {96, {2, kSmall64x64, 7}},        // 128 x 128: 96" 15.9 / 16.3
    {97, {2, kPingPong128x128, 7}},   // 64 x 64: incoming 97" 17.3 / 17.1, 100" 17.6 / 17.3; outgoing it does not win
    {113, {1, kPingPong128x128, 7}},  // two parts: 127" 18.1 / 18.3
    {128, {1, kSmall64x64, 7}},       // 128 x 128: 128" 17.7 / 18.0
    {129, {1, kShared192x192, 7}},    // 128 x 192: 144 22.2 / 23.4, 192 32.5 / 32.4
    {193, {1, kPingPong128x128, 5}},  // 128 x 192: 217 43.5 / 43.7, 256 49.3 / 49.6
    {257, {1, kPingPong128x192, 5}},  // 128 x 128: 272' 70.6 / 72.6, 300' 79.8 / 81.0, 320' 84.2 / 85.0, 336' 100.2 / 100.8
    {337, {1, kPingPong128x128, 5}},  // 128 x 192: 352' 105.3 / 105.3, 384 111.5 / 111.4
    {385, {1, kPingPong128x192, 5}},  // 128 x 128: 436' 163.3 / 167.5, 448' 165.7 / 167.3
    {449, {1, kPingPong128x128, 5}},  // 128 x 192: 512 205 / 212
    {513, {1, kPingPong128x192, 5}},  // as from 385: N that 128 overshoots by 64
    {577, {1, kPingPong128x128, 5}},  // 128 x 192: 640' 351.2 / 354.8
    {641, {1, kPingPong128x192, 5}},  // 128 x 128: 768' 511.8 / 510.8, 900' 820 / 948, 1024 999 / 1005, 2048' 5561 / 5642
};
constexpr HeuristicsRow kFourSamples[] = {
    {1, {2, kSmall64x64, 7}},         // one part: 48 15.9 / 16.6
    {57, {1, kSmall64x64, 7}},        // two parts: 64 17.8 / 18.1; 128 x 128: 64 17.8 / 19.0
    {65, {1, kPingPong128x128, 7}},   // overlap 5: 96' 36.6 / 37.2, 128 46.7 / 46.5; 128 x 192: 96' 36.6 / 37.5, 128 46.7 / 46.8
    {129, {1, kShared192x192, 7}},    // 128 x 192: 160' 81.7 / 83.7, 192' 110.2 / 112.4
    {193, {1, kPingPong128x128, 5}},  // 128 x 192: 256 186.6 / 189.4
    {257, {1, kPingPong128x192, 5}},  // 128 x 128: 300' 282.3 / 284.5, 320' 302.4 / 303.4
    {337, {1, kPingPong128x128, 5}},  // 128 x 192: 384' 422.8 / 422.8
    {385, {1, kPingPong128x192, 5}},  // as one sample
    {449, {1, kPingPong128x128, 5}},  // 128 x 192: 512' 791.7 / 802.5
    {513, {1, kPingPong128x192, 5}},  // as one sample
    {577, {1, kPingPong128x128, 5}},  // as one sample
    {641, {1, kPingPong128x192, 5}},  // as one sample
};

}  // namespace

std::span<const HeuristicsRow> heuristics_table(std::int64_t batch) {
  if (batch >= 4) return kFourSamples;
  return kOneSample;
}

Knobs recommend(std::int64_t tokens, std::int64_t c, std::int64_t batch, core::Direction) {
  const auto table = heuristics_table(batch);
  const auto above =
      std::upper_bound(table.begin(), table.end(), tokens, [](std::int64_t n, const HeuristicsRow& row) { return n < row.tokens_from; });
  Knobs knobs = above == table.begin() ? table.front().knobs : std::prev(above)->knobs;
  // Small tiles above N = 64 are for planes too few to fill the multiprocessors. C = 256, one sample, us with 64 x 64 / 128 x 128: N = 96
  // 29.2 / 28.1, 128 34.2 / 33.4. All else that was swept at that width (N = 32 to 1024) stays within 2.2 % of the best.
  if (c > kHiddenWidth && tokens > 64 && knobs.k2_tile == kSmall64x64) knobs.k2_tile = kPingPong128x128;
  return knobs;
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

// Evict-first helps where the three planes fill the L2 and still fit: what has been read makes room for what will be. With it / without, us
// at C = 128: N = 128 17.9 / 17.9, 160 24.2 / 24.4, 192 31.5 / 32.3, 217 40.8 / 41.2, 256 45.9 / 47.5, 288 68.1 / 67.8, 384
// 108 / 103; B = 2, N = 128 25.6 / 26.5, B = 4, N = 128 44.5 / 45.1, B = 8, N = 128 86.1 / 85.8, B = 3, N = 256 146 / 139. Rows that share
// a line with their neighbours lose where a plane has several tiles: N = 200 40.0 / 39.6, 208 37.3 / 37.0. NVIDIA H200.
L2Policy plane_policy(std::int64_t batch, std::int64_t tokens, std::int64_t c) {
  const std::int64_t padded = padded_tokens(tokens);
  const std::int64_t bytes = batch * tokens * padded * c * 6;
  constexpr std::int64_t kMb = 1'000'000;
  const bool reads_lines_once = tokens <= 192 || padded % 64 == 0;
  return reads_lines_once && 15 * kMb <= bytes && bytes <= 54 * kMb ? L2Policy::kEvictFirst : L2Policy::kNormal;
}

}  // namespace trimul::cuda::sm90
