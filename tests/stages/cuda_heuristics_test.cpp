// SPDX-License-Identifier: Apache-2.0
// The Hopper implementation's choices: pure functions, tested without a GPU and without nvcc.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "cuda/sm90/heuristics.hpp"

namespace trimul::cuda::sm90 {
namespace {

constexpr std::int64_t kMostTokens = 2100;
constexpr int kNumSms = 132;  // H200

std::vector<ContractionVariant> all_variants() {
  std::vector<ContractionVariant> variants;
  for (int k = 0; k < kNumContractionVariants; ++k) variants.push_back(static_cast<ContractionVariant>(k));
  return variants;
}

/// First column past the tiles of a plane.
std::int64_t columns_covered(const TriangleContractionConfig& config, const ContractionTiling& tiling) {
  const std::int64_t narrow = tiling.tiles_n - tiling.wide_tiles_n;
  return tiling.wide_tiles_n * std::int64_t{config.tile_n} + narrow * config.narrow_tile_n;
}

TEST(Sm90Heuristics, EveryVariantFitsItsMultiprocessor) {
  for (const ContractionVariant variant : all_variants()) {
    const TriangleContractionConfig config = contraction_config(variant);
    SCOPED_TRACE(contraction_variant_name(variant));
    EXPECT_LE(config.smem_bytes(), kMaxSmemBytes / config.blocks_per_sm);
    EXPECT_LE(config.threads(), 1024);
    EXPECT_LE(config.launch_registers(), 255);
    EXPECT_LE(config.launch_registers() * config.threads() * config.blocks_per_sm, kRegistersPerSm);
    EXPECT_GE(config.stages, 2);
    if (config.reallocates_registers()) {
      // setmaxnreg: multiples of 8 from 24 to 256, together no more than the launch gave.
      for (const int registers : {config.producer_registers(), config.consumer_registers()}) {
        EXPECT_EQ(registers % 8, 0);
        EXPECT_GE(registers, 24);
        EXPECT_LE(registers, 256);
      }
      EXPECT_LE(kWarpgroupThreads * (config.producer_registers() + config.consumer_warpgroups * config.consumer_registers()),
                config.launch_registers() * config.threads());
    }
    // Accumulators: row blocks of 64 times tile_n in fp32 over 128 threads.
    EXPECT_LT(config.row_blocks * 64 * config.tile_n / kWarpgroupThreads, config.consumer_registers());
  }
}

TEST(Sm90Heuristics, NamesOfVariantsDiffer) {
  std::set<std::string> names;
  for (const ContractionVariant variant : all_variants()) names.insert(contraction_variant_name(variant));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kNumContractionVariants));
  EXPECT_FALSE(names.contains("unknown"));
}

TEST(Sm90Heuristics, TilesCoverEveryCellOnce) {
  for (const ContractionVariant variant : all_variants()) {
    const TriangleContractionConfig config = contraction_config(variant);
    for (std::int64_t n = 1; n <= kMostTokens; ++n) {
      const ContractionTiling tiling = tile_contraction(variant, n, 128, kNumSms);
      SCOPED_TRACE(::testing::Message() << contraction_variant_name(variant) << ", N = " << n);
      // Rows and columns: tiles follow each other without a gap, so that the count decides; the last ones begin inside.
      ASSERT_GE(tiling.tiles_m * std::int64_t{config.tile_m()}, n);
      ASSERT_LT((tiling.tiles_m - 1) * std::int64_t{config.tile_m()}, n);
      ASSERT_GE(columns_covered(config, tiling), n);
      ASSERT_GE(tiling.wide_tiles_n, 0);
      ASSERT_LE(tiling.wide_tiles_n, tiling.tiles_n);
      ASSERT_TRUE(config.narrow_tile_n > 0 || tiling.wide_tiles_n == tiling.tiles_n);
      const int last = tiling.wide_tiles_n < tiling.tiles_n ? config.narrow_tile_n : config.tile_n;
      ASSERT_LT(columns_covered(config, tiling) - last, n) << "the last tile holds no column";
      ASSERT_EQ(tiling.total_tiles, std::int64_t{128} * tiling.tiles_m * tiling.tiles_n);
      // Along k: stages of 64 and steps of 16 reach N and no further than the step that holds its last token.
      const std::int64_t k_end = (tiling.k_stages - 1) * std::int64_t{64} + tiling.last_k_steps * std::int64_t{16};
      ASSERT_TRUE(1 <= tiling.last_k_steps && tiling.last_k_steps <= 4);
      ASSERT_TRUE(k_end >= n && k_end - n < 16);
    }
  }
}

TEST(Sm90Heuristics, MixedWidthsOvershootAsLittleAsAnyMixCould) {
  const TriangleContractionConfig config = contraction_config(ContractionVariant::kPingPong128x192);
  ASSERT_GT(config.narrow_tile_n, 0);
  for (std::int64_t n = 1; n <= kMostTokens; ++n) {
    std::int64_t least = columns_covered(config, tile_contraction(ContractionVariant::kPingPong128x192, n, 1, kNumSms));
    for (std::int64_t wide = 0; wide * config.tile_n <= n + config.tile_n; ++wide)
      for (std::int64_t narrow = 0; wide * config.tile_n + narrow * config.narrow_tile_n <= n + config.tile_n; ++narrow)
        if (const std::int64_t covered = wide * config.tile_n + narrow * config.narrow_tile_n; covered >= n) {
          ASSERT_GE(covered, least) << "N = " << n << ", " << wide << " wide and " << narrow << " narrow tiles";
        }
  }
}

TEST(Sm90Heuristics, RotationSharesNoFactorWithTheCycleOfCosts) {
  for (const ContractionVariant variant : all_variants())
    for (const int num_sms : {1, 16, 66, 114, 132})
      for (std::int64_t n = 1; n <= kMostTokens; ++n) {
        const ContractionTiling tiling = tile_contraction(variant, n, 128, num_sms);
        const int step = num_sms * contraction_config(variant).blocks_per_sm + tiling.rotation;
        const bool mixes = tiling.wide_tiles_n > 0 && tiling.wide_tiles_n < tiling.tiles_n;
        const int cycle = tiling.skips_empty_rows ? tiling.tiles_m * tiling.tiles_n : mixes ? tiling.tiles_n : 1;
        ASSERT_EQ(std::gcd(step, cycle), 1) << contraction_variant_name(variant) << ", N = " << n << ", " << num_sms << " multiprocessors";
        ASSERT_LT(tiling.rotation, std::max(cycle, 1));
      }
}

TEST(Sm90Heuristics, OnlyRowsPastNAreSkipped) {
  for (const ContractionVariant variant : all_variants())
    for (std::int64_t n = 1; n <= kMostTokens; ++n) {
      const ContractionTiling tiling = tile_contraction(variant, n, 128, kNumSms);
      if (tiling.skips_empty_rows) {
        ASSERT_GE(tiling.tiles_m * std::int64_t{contraction_config(variant).tile_m()} - n, 64);
      }
    }
}

Knobs recommended(std::int64_t tokens, std::int64_t batch = 1) {
  return recommend(tokens, kHiddenWidth, batch, core::Direction::kOutgoing);
}

TEST(Sm90Heuristics, TheTableServesEveryNAndEveryBatch) {
  for (const std::int64_t batch : {1, 2, 3, 4, 16, 1000}) {
    const auto table = heuristics_table(batch);
    ASSERT_FALSE(table.empty());
    EXPECT_EQ(table.front().tokens_from, 1);
    for (std::size_t row = 0; row < table.size(); ++row) {
      const auto& [from, knobs] = table[row];
      EXPECT_TRUE(row == 0 || table[row - 1].tokens_from < from) << "row " << row << " is out of order";
      EXPECT_TRUE(row == 0 || !(table[row - 1].knobs == knobs)) << "row " << row << " repeats the one before";
      EXPECT_TRUE(knobs.k1_parts == 1 || knobs.k1_parts == 2) << from;
      EXPECT_TRUE(0 <= static_cast<int>(knobs.k2_tile) && static_cast<int>(knobs.k2_tile) < kNumContractionVariants) << from;
      EXPECT_LE(knobs.overlap, unsigned{kOverlapAll}) << from;
      // A row serves from its N up to the next row's.
      EXPECT_EQ(recommended(from, batch), knobs);
      EXPECT_EQ(recommended(row + 1 < table.size() ? table[row + 1].tokens_from - 1 : 100'000, batch), knobs);
    }
  }
  EXPECT_EQ(recommended(0), recommended(1)) << "an empty problem has knobs too";
}

TEST(Sm90Heuristics, BatchesOfFourAndMoreHaveTheirOwnRows) {
  EXPECT_EQ(heuristics_table(1).data(), heuristics_table(3).data());
  EXPECT_NE(heuristics_table(3).data(), heuristics_table(4).data());
  EXPECT_EQ(heuristics_table(4).data(), heuristics_table(1000).data());
}

TEST(Sm90Heuristics, BothDirectionsTakeTheSameRow) {
  for (std::int64_t n = 1; n <= kMostTokens; ++n) ASSERT_EQ(recommended(n), recommend(n, kHiddenWidth, 1, core::Direction::kIncoming)) << n;
}

TEST(Sm90Heuristics, TheContractionsTileFitsN) {
  // Tiles at the ends of their rows: one tile where there is one of that size, narrow columns where 128 would overshoot by 64.
  const std::pair<std::int64_t, ContractionVariant> kTiles[] = {
      {1, ContractionVariant::kSmall64x64},        {64, ContractionVariant::kSmall64x64},
      {65, ContractionVariant::kPingPong128x128},  {96, ContractionVariant::kSmall64x64},
      {97, ContractionVariant::kPingPong128x128},  {127, ContractionVariant::kPingPong128x128},
      {128, ContractionVariant::kSmall64x64},      {129, ContractionVariant::kShared192x192},
      {192, ContractionVariant::kShared192x192},   {193, ContractionVariant::kPingPong128x128},
      {256, ContractionVariant::kPingPong128x128}, {257, ContractionVariant::kPingPong128x192},
      {320, ContractionVariant::kPingPong128x192}, {384, ContractionVariant::kPingPong128x128},
      {1024, ContractionVariant::kPingPong128x192}};
  for (const auto& [n, variant] : kTiles) EXPECT_EQ(recommended(n).k2_tile, variant) << n;
  for (std::int64_t n = 385; n <= 704; ++n)
    ASSERT_EQ(recommended(n).k2_tile, (n + 63) / 64 % 2 == 1 ? ContractionVariant::kPingPong128x192 : ContractionVariant::kPingPong128x128)
        << n;
}

TEST(Sm90Heuristics, BlocksShareTilesOnlyWhereMultiprocessorsWouldIdle) {
  for (const std::int64_t batch : {1, 4})
    for (std::int64_t n = 8; n <= kMostTokens; n += 8)  // between them padding moves the limit by a few N
      ASSERT_EQ(recommended(n, batch).k1_parts, 2 * static_cast<int>(tile_pairs(batch, n).num_tiles) <= 3 * kNumSms ? 2 : 1)
          << batch << ", " << n;
}

TEST(Sm90Heuristics, RowsThatNeedPaddingFillLinesFrom65On) {
  const std::pair<std::int64_t, std::int64_t> kPadded[] = {{1, 8},     {63, 64},   {64, 64},   {65, 128},  {72, 72},
                                                           {100, 128}, {104, 104}, {217, 256}, {256, 256}, {264, 320}};
  for (const auto& [n, padded] : kPadded) EXPECT_EQ(padded_tokens(n), padded) << n;
}

TEST(Sm90Heuristics, PlanesAreEvictedFirstWhereTheyFillTheL2AndFit) {
  const auto evicts = [](std::int64_t batch, std::int64_t n) { return plane_policy(batch, n, kHiddenWidth) == L2Policy::kEvictFirst; };
  for (const std::int64_t n : {144, 160, 192, 217, 256}) EXPECT_TRUE(evicts(1, n)) << n;
  for (const std::int64_t n : {1, 64, 128, 200, 288, 384, 512, 1024}) EXPECT_FALSE(evicts(1, n)) << n;
  EXPECT_TRUE(evicts(4, 128) && evicts(8, 64));
  EXPECT_FALSE(evicts(8, 128) || evicts(3, 256) || evicts(4, 64));
  // Planes of twice the channels are as many bytes as those of two samples.
  for (std::int64_t n = 1; n <= kMostTokens; ++n)
    for (const std::int64_t batch : {1, 2, 5}) ASSERT_EQ(plane_policy(batch, n, kWideWidth), plane_policy(2 * batch, n, kHiddenWidth)) << n;
}

TEST(Sm90Heuristics, WidePlanesTakeSmallTilesOnlyWhereTheyAreOneTile) {
  for (const std::int64_t batch : {1, 2, 4, 7})
    for (std::int64_t n = 1; n <= kMostTokens; ++n) {
      const Knobs wide = recommend(n, kWideWidth, batch, core::Direction::kOutgoing);
      Knobs expected = recommended(n, batch);
      if (n > 64 && expected.k2_tile == ContractionVariant::kSmall64x64) expected.k2_tile = ContractionVariant::kPingPong128x128;
      ASSERT_EQ(wide, expected) << batch << ", " << n;
      if (n <= 64) {
        ASSERT_EQ(wide.k2_tile, ContractionVariant::kSmall64x64) << batch << ", " << n;
      }
    }
}

TEST(Sm90Heuristics, PositionsOfTilesAreThePairsEachOnce) {
  for (const auto& [batch, n] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 1}, {3, 1}, {1, 5}, {2, 8}, {3, 17}, {1, 63}, {2, 64}, {1, 65}, {1, 100}, {1, 256}, {2, 257}, {1, 320}, {1, 385}}) {
    const PairTiling tiling = tile_pairs(batch, n);
    const std::int64_t padded = padded_tokens(n);
    EXPECT_EQ(padded % 8, 0);
    EXPECT_TRUE(padded >= n && padded - n < 64);
    EXPECT_EQ(tiling.copy == TileCopy::kFlat, padded == n);
    EXPECT_EQ(std::int64_t{tiling.num_tiles} * kTilePositions, channel_pitch(batch, n));
    EXPECT_GE(channel_pitch(batch, n), batch * n * padded);
    EXPECT_EQ(tiling.num_tiles % 2, 0U) << "planes start on 256 bytes";
    std::vector<int> met(static_cast<std::size_t>(batch * n * n));
    for (std::uint32_t tile = 0; tile < tiling.num_tiles; ++tile)
      for (std::uint32_t k = 0; k < kTilePositions / kUnitPositions; ++k) {
        const PairTiling::Unit unit = tiling.unit(tile, k);
        for (std::uint32_t column = unit.column; column < unit.column + kUnitPositions; ++column)
          if (unit.row < tiling.rows && column < tiling.tokens) ++met[unit.row * static_cast<std::size_t>(n) + column];
      }
    EXPECT_TRUE(std::all_of(met.begin(), met.end(), [](int count) { return count == 1; })) << batch << ", " << n;
  }
}

}  // namespace
}  // namespace trimul::cuda::sm90
