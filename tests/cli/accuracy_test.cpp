// SPDX-License-Identifier: Apache-2.0
// Bounds of `trimul verify`: which one a precision has, and that a sample's rule for single values passes right kernels and no others.
#include "accuracy.hpp"

#include <gtest/gtest.h>

#include <utility>

#include "kernel_cell_rule.hpp"
#include "support/random.hpp"

namespace trimul::cli {
namespace {

Bounds bounds(std::string_view implementation, std::string_view line) {
  return bounds_of(implementation, parse_problem_line(line, "a test"));
}

TEST(Bounds, FollowTheArithmeticOfThePrecision) {
  struct Row {
    std::string_view line;
    double cpu, gpu;
    bool has_kernel;
  };
  constexpr Row kRows[] = {
      {"1 9 32 32 bf16 outgoing", 2.5e-3, 1e-2, true},          {"1 9 32 32 bf16 outgoing all", 2.5e-3, 2e-2, true},
      {"1 9 32 32 bf16 outgoing tf32", 2.5e-3, 1e-2, true},     {"1 9 32 32 bf16 outgoing ieee", 2.5e-3, 2.5e-3, false},
      {"1 9 32 32 bf16 outgoing bfloat16", 2.5e-3, 1e-2, true}, {"1 9 32 32 fp16 outgoing", 5e-4, 2e-3, false},
      {"1 9 32 32 fp16 outgoing tf32x3", 5e-4, 2e-3, false},    {"1 9 32 32 fp16 outgoing ieee", 5e-4, 5e-4, false},
      {"1 9 32 32 fp16 outgoing bfloat16", 2.5e-3, 1e-2, true}, {"1 9 32 32 fp32 outgoing", 1e-5, 1e-5, false},
      {"1 9 32 32 fp32 outgoing tf32", 1e-5, 1e-3, false},      {"1 9 32 32 fp32 outgoing tf32x3", 1e-5, 1e-5, false},
      {"1 9 32 32 fp32 outgoing ieee", 1e-5, 1e-5, false},      {"1 9 32 32 fp32 outgoing all bfloat16", 2.5e-3, 2e-2, true},
  };
  for (const Row& row : kRows) {
    EXPECT_EQ(bounds("cpu", row.line).to_none, row.cpu) << row.line;
    EXPECT_FALSE(bounds("cpu", row.line).to_kernel) << row.line;
    for (const char* const gpu : {"cuda:sm80", "cuda:sm90"}) {
      EXPECT_EQ(bounds(gpu, row.line).to_none, row.gpu) << row.line;
      EXPECT_EQ(bounds(gpu, row.line).to_kernel.has_value(), row.has_kernel) << row.line;
    }
  }
}

/// A reference of unit RMS, and a result that is right but for `pairs` pairs, of whose 128 values each lies `off` past |ref| / 64 in
/// `values`.
struct Sample {
  std::vector<double> reference, got;
  Sample(int pairs, int values, double off) : reference(8192) {
    testing::Random random(testing::base_seed());
    for (double& value : reference) value = random.normal();
    got = reference;
    for (int pair = 0; pair < pairs; ++pair)
      for (int k = 0; k < values; ++k) {
        const auto at = static_cast<std::size_t>(pair * 256 + k * 5);
        got[at] += off + std::abs(reference[at]) / 64;
      }
  }
};

TEST(JudgeCells, OneRoundingOfYThatFallsTheOtherWayMovesManyValuesOfItsPair) {
  for (const auto& [pairs, values] : {std::pair{1, 11}, std::pair{2, 6}, std::pair{12, 1}})
    EXPECT_EQ(judge_cells(Sample(pairs, values, 6e-3).got, Sample(pairs, values, 6e-3).reference), "") << pairs << " x " << values;
}

TEST(JudgeCells, RejectsWhatRoundingDoesNotExplain) {
  for (const auto& [pairs, values] : {std::pair{2, 12}, std::pair{4, 5}, std::pair{30, 1}})
    EXPECT_NE(judge_cells(Sample(pairs, values, 6e-3).got, Sample(pairs, values, 6e-3).reference), "") << pairs << " x " << values;
  EXPECT_NE(judge_cells(Sample(1, 1, 3e-2).got, Sample(1, 1, 3e-2).reference), "") << "a single value";
}

TEST(JudgeCells, TheShareOfAWholeResultStaysThatOfTheContract) {
  // 300 in a million: what is added for a sample's scatter vanishes beside it.
  EXPECT_LT(most_beyond_near(100'000'000), 1.05 * 30'000);
  EXPECT_GE(most_beyond_near(100'000'000), 30'000);
}

}  // namespace
}  // namespace trimul::cli
