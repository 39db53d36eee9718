// SPDX-License-Identifier: Apache-2.0
// From measured times to a table of choices (trimul bench --sweep), on times that this test makes up.
#include "sweep_table.hpp"

#include <gtest/gtest.h>

#include <array>

namespace trimul::cli {
namespace {

constexpr std::array kRanges{trimul_knob_range{sizeof(trimul_knob_range), "parts", 1, 2},
                             trimul_knob_range{sizeof(trimul_knob_range), "tile", 0, 1}};
const std::vector<trimul_knob_range> kKnobs(kRanges.begin(), kRanges.end());

/// Combinations (1,0), (1,1), (2,0), (2,1) with these medians; the present choice is (1,0).
SweptProblem measured(std::int64_t tokens, const std::array<double, 4>& us) {
  SweptProblem problem;
  problem.line = {.batch = 1, .tokens = tokens, .c_z = 128, .c_hidden = 128, .dtype = TRIMUL_BF16};
  problem.present = {1, 0};
  for (std::size_t k = 0; k < us.size(); ++k) {
    const KnobValues values{1 + static_cast<std::int64_t>(k / 2), static_cast<std::int64_t>(k % 2)};
    problem.screening[values] = us[k];
    for (const double off : {-0.1, 0.0, 0.1}) problem.times[values].add(us[k] + off);
    problem.finalists.push_back(values);
    problem.add_names(values, kKnobs, values[1] == 0 ? "other: 1\ntile: 0 (ping_pong_128x192)\n" : "tile: 1 (small_64x64)\n");
  }
  return problem;
}

std::string rows_text(const SweepTable& table) {
  std::string text;
  for (const SweepRow& row : table.rows()) {
    text += std::to_string(row.tokens_from) + ":";
    for (const std::int64_t value : row.values) text += " " + std::to_string(value);
    text += "; ";
  }
  return text;
}

TEST(SweepTable, EqualChoicesShareARowAndChangesStandWhereTilesChange) {
  const SweepTable table({measured(256, {30, 20, 40, 50}), measured(64, {20, 30, 40, 10}), measured(100, {20, 30, 40, 10}),
                          measured(160, {10, 20, 30, 40}), measured(217, {10, 20, 30, 40}), measured(250, {30, 20, 40, 50})},
                         kKnobs);
  // 100 -> 160 passes 128; 217 -> 250 passes no multiple of 64.
  EXPECT_EQ(rows_text(table), "1: 2 1; 129: 1 0; 250: 1 1; ");
}

TEST(SweepTable, ABestWithinTheNoiseDoesNotReplaceThePresentChoice) {
  EXPECT_EQ(rows_text(SweepTable({measured(64, {100.9, 100, 101.5, 102})}, kKnobs)), "1: 1 0; ");
  EXPECT_EQ(rows_text(SweepTable({measured(64, {101.1, 100, 101.5, 102})}, kKnobs)), "1: 1 1; ");
  // (2,0) differs from the present (1,0) by two bits, (1,1) by one.
  EXPECT_EQ(rows_text(SweepTable({measured(64, {110, 100.2, 100, 102})}, kKnobs)), "1: 1 1; ");
}

TEST(SweepTable, TheFixedSetLosesLeastOverAllN) {
  // (2,0) is nowhere the best and nowhere bad.
  const SweepTable table({measured(64, {10, 30, 11, 40}), measured(512, {300, 100, 110, 400})}, kKnobs);
  EXPECT_EQ(table.fixed(), (KnobValues{2, 0}));
}

TEST(SweepTable, PrintsRowsAsTheLibraryHoldsThem) {
  const SweepTable table({measured(64, {20, 30, 40, 10}), measured(512, {10, 20, 30, 40})}, kKnobs);
  const std::string text = table.text();
  // One set for all N would be (1,0): 20 at N = 64.
  EXPECT_NE(text.find("\n    {1, {2, kSmall64x64}},  // 64 10 / 20\n    {65, {1, kPingPong128x192}},  // 512 10 / 10\n"), std::string::npos)
      << text;
  // N = 64: 20 by the present choice, 10 by the best one.
  EXPECT_NE(text.find("\n    64     10.00     20.00  100.0% "), std::string::npos) << text;
  EXPECT_NE(text.find("{2, kSmall64x64} ({1, kPingPong128x192})"), std::string::npos) << text;
}

TEST(SweepTable, JsonHoldsEveryCombination) {
  const auto json = SweepTable({measured(64, {20, 30, 40, 10}), measured(512, {10, 20, 30, 40})}, kKnobs).json();
  ASSERT_EQ(json["problems"].size(), 2U);
  EXPECT_EQ(json["problems"][0]["combinations"].size(), 4U);
  EXPECT_EQ(json["problems"][0]["best"], (nlohmann::ordered_json{{"parts", 2}, {"tile", 1}}));
  EXPECT_EQ(json["problems"][0]["present_us"], 20.0);
  EXPECT_EQ(json["rows"].size(), 2U);
  EXPECT_EQ(json["rows"][1]["tokens_from"], 65);
  EXPECT_EQ(json["direction"], "outgoing");
}

TEST(Times, QuantilesLieBetweenTheNearestTimes) {
  Times times;
  EXPECT_EQ(times.median_us(), 0.0);
  for (const double us : {4.0, 1.0, 3.0, 2.0}) times.add(us);
  EXPECT_EQ(times.min_us(), 1.0);
  EXPECT_EQ(times.median_us(), 2.5);
  EXPECT_EQ(times.quantile_us(0.25), 1.75);
  EXPECT_EQ(times.json()["max_us"], 4.0);
  EXPECT_EQ(times.json()["times_us"], (std::vector<double>{1, 2, 3, 4}));
}

}  // namespace
}  // namespace trimul::cli
