// SPDX-License-Identifier: Apache-2.0
// What trimul.hpp adds to the C ABI beyond the programs under examples/.
#include <gtest/gtest.h>

#include "support/call.hpp"
#include "trimul/trimul.hpp"

namespace trimul::testing {
namespace {

const Problem kProblem{.tokens = 500, .c_z = 128, .c_hidden = 128, .x_dtype = trimul::DType::kBf16};

TEST(Interface, RecommendedKnobsAreThoseOfAPlanThatIsGivenNone) {
  const auto knobs = recommended_knobs(kProblem);
  ASSERT_EQ(knobs.size(), 1U);
  EXPECT_EQ(knobs[0].first, "threads");
  EXPECT_EQ(Plan(kProblem).explain(), Plan(kProblem, {.knobs = knobs}).explain());
  EXPECT_THROW((void)recommended_knobs(kProblem, {.implementation = "nothing"}), Error);
}

TEST(Interface, ACpuPlanHasNoStages) {
  const Plan plan({.tokens = 3, .c_z = 8, .c_hidden = 6});
  EXPECT_TRUE(plan.stages().empty());
}

/// Needs no GPU: the plan is for an architecture.
TEST(Interface, StagesAddUpToThePlan) {
  Problem problem = kProblem;
  problem.device = {TRIMUL_CUDA, 0};
  const PlanOptions options{.implementation = "cuda:sm90", .arch = "sm90"};
  std::optional<Plan> plan;
  try {
    plan.emplace(problem, options);
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();  // not in this build
  }
  double flop = 0, floor_us = 0;
  std::int64_t bytes = 0;
  ASSERT_EQ(plan->stages().size(), 3U);
  for (const StageInfo& stage : plan->stages()) {
    flop += stage.flop;
    floor_us += stage.floor_us;
    bytes += stage.traffic_bytes;
  }
  EXPECT_EQ(flop, plan->flop());
  EXPECT_EQ(floor_us, plan->floor_us());
  EXPECT_EQ(bytes, plan->traffic_bytes());
  EXPECT_EQ(recommended_knobs(problem, options).size(), trimul_implementation_num_knobs("cuda:sm90"));
}

}  // namespace
}  // namespace trimul::testing
