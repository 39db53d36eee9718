// SPDX-License-Identifier: Apache-2.0
// The ordered list: order, names, reasons, forcing.
#include "core/registry.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "support/call.hpp"

namespace trimul::testing {
namespace {

std::string planned(const trimul_problem& problem, const char* implementation, const char* arch = nullptr) {
  trimul_plan_options options = TRIMUL_PLAN_OPTIONS_INIT;
  options.implementation = implementation;
  options.arch = arch;
  trimul_plan* plan = nullptr;
  const trimul_status status = trimul_plan_create(&problem, &options, &plan);
  const PlanPtr owner(plan);
  return status == TRIMUL_OK ? trimul_plan_implementation(plan) : outcome(status);
}

TEST(Registry, ListsBestFirstTheSameNamesInEveryBuild) {
  const char* const expected[] = {"cuda:sm90", "cuda:sm80", "cpu", "reference"};
  ASSERT_EQ(trimul_implementation_count(), 4U);
  for (std::size_t k = 0; k < 4; ++k) {
    EXPECT_STREQ(trimul_implementation_name(k), expected[k]);
    EXPECT_STRNE(trimul_implementation_description(k), "");
  }
  EXPECT_EQ(trimul_implementation_name(4), nullptr);
  EXPECT_EQ(trimul_implementation_description(4), nullptr);
}

TEST(Registry, TheFirstThatAcceptsServes) {
  trimul_problem problem = Case(kSmall).problem();
  EXPECT_EQ(planned(problem, nullptr), "cpu");
  problem.x_dtype = TRIMUL_F64;
  EXPECT_EQ(planned(problem, nullptr), "reference");
}

TEST(Registry, ANameForcesOneImplementationOrSaysWhyNot) {
  trimul_problem problem = Case(kSmall).problem();
  EXPECT_EQ(planned(problem, "reference"), "reference");
  EXPECT_EQ(planned(problem, "cpu"), "cpu");
  const std::string gpu = planned(problem, "cuda:sm90");
  EXPECT_TRUE(contains(
      gpu, "UNSUPPORTED: no implementation serves B=1 N=3 C_z=8 C=6 fp32 outgoing mask in_bias out_bias on CPU\ndeclined cuda:sm90: "))
      << gpu;
  EXPECT_FALSE(contains(gpu, "declined cpu")) << "only what was asked for is tried: " << gpu;
  problem.x_dtype = TRIMUL_F64;
  EXPECT_EQ(planned(problem, "cpu"),
            "UNSUPPORTED: no implementation serves B=1 N=3 C_z=8 C=6 fp64 outgoing mask in_bias out_bias on CPU\n"
            "declined cpu: computes in fp32, x is fp64\n");
}

TEST(Registry, AnUnknownNameIsRefusedListingTheKnown) {
  trimul_problem problem = Case(kSmall).problem();
  const std::string known = "' is unknown, expected one of cuda:sm90, cuda:sm80, cpu, reference";
  EXPECT_EQ(planned(problem, "cup"), "INVALID_ARGUMENT: implementation: 'cup" + known);
  EXPECT_EQ(planned(problem, "CPU"), "INVALID_ARGUMENT: implementation: 'CPU" + known);
  const char* reason = nullptr;
  EXPECT_EQ(outcome(trimul_implementation_can_run("fast", &problem, nullptr, &reason)), "INVALID_ARGUMENT: implementation: 'fast" + known);
  problem.device = {TRIMUL_CUDA, 7};
  EXPECT_EQ(planned(problem, "cup"), "INVALID_ARGUMENT: implementation: 'cup" + known) << "also on a device that is not there";
}

TEST(Registry, NothingServesMxfp8AndEveryoneSaysSo) {
  trimul_problem problem = Case(kSmall).problem();
  problem.precision = TRIMUL_PRECISION_MXFP8;
  const std::string text = planned(problem, nullptr);
  EXPECT_TRUE(contains(text, "UNSUPPORTED: no implementation serves")) << text;
  for (const char* line :
       {"declined cuda:sm90: ", "declined cuda:sm80: ", "declined cpu: precision mxfp8", "declined reference: precision mxfp8"})
    EXPECT_TRUE(contains(text, line)) << text;
}

TEST(Registry, CanRunGivesNothingOrAReason) {
  trimul_problem problem = Case(kSmall).problem();
  const char* reason = "something";
  ASSERT_EQ(trimul_implementation_can_run("cpu", &problem, nullptr, &reason), TRIMUL_OK);
  EXPECT_EQ(reason, nullptr);
  problem.x_dtype = TRIMUL_F64;
  ASSERT_EQ(trimul_implementation_can_run("cpu", &problem, nullptr, &reason), TRIMUL_OK);
  EXPECT_STREQ(reason, "computes in fp32, x is fp64");
  problem.precision = TRIMUL_PRECISION_BF16;
  ASSERT_EQ(trimul_implementation_can_run("cpu", &problem, nullptr, &reason), TRIMUL_OK);
  EXPECT_STREQ(reason, "does not read fp64 x");
  ASSERT_EQ(trimul_implementation_can_run("reference", &problem, nullptr, &reason), TRIMUL_OK);
  EXPECT_EQ(reason, nullptr);
  for (std::size_t k = 0; k < trimul_implementation_count(); ++k) {
    problem.precision = TRIMUL_PRECISION_MXFP8;
    ASSERT_EQ(trimul_implementation_can_run(trimul_implementation_name(k), &problem, nullptr, &reason), TRIMUL_OK);
    ASSERT_NE(reason, nullptr) << trimul_implementation_name(k);
    EXPECT_STRNE(reason, "");
    EXPECT_NE(reason[std::strlen(reason) - 1], '.') << reason;
  }
  problem.direction = 4;
  EXPECT_EQ(trimul_implementation_can_run("cpu", &problem, nullptr, &reason), TRIMUL_INVALID_ARGUMENT);
}

TEST(Registry, TheCpuImplementationsDeclineGpuProblems) {
  trimul_problem problem = Case(kSmall).problem();
  problem.device = {TRIMUL_CUDA, 0};
  for (const char* name : {"cpu", "reference"}) {
    const char* reason = nullptr;
    ASSERT_EQ(trimul_implementation_can_run(name, &problem, "sm90", &reason), TRIMUL_OK);
    EXPECT_STREQ(reason, "runs on the CPU, the problem is on sm90");
  }
}

TEST(Registry, ArchitecturesAreKnownByNameAndNeedAGpuProblem) {
  trimul_problem problem = Case(kSmall).problem();
  EXPECT_EQ(planned(problem, nullptr, "sm90"), "INVALID_ARGUMENT: arch: 'sm90' is a GPU architecture, but the problem's device is the CPU");
  problem.device = {TRIMUL_CUDA, 0};
  EXPECT_EQ(planned(problem, nullptr, "sm99"),
            "INVALID_ARGUMENT: arch: 'sm99' is unknown, expected one of sm80, sm86, sm89, sm90, sm100, sm120");
  if (trimul_cuda_device_count() == 0) {
    EXPECT_TRUE(contains(planned(problem, nullptr), "UNSUPPORTED: device: cuda:0 was asked for")) << planned(problem, nullptr);
  }
}

TEST(Registry, KnobsAreNamedWhenTheyAreUnknownOrOutOfRange) {
  const trimul_problem problem = Case(kSmall).problem();
  const auto with_knob = [&](const char* name, std::int64_t value, const char* implementation) {
    const trimul_knob knob{name, value};
    trimul_plan_options options = TRIMUL_PLAN_OPTIONS_INIT;
    options.knobs = &knob;
    options.num_knobs = 1;
    options.implementation = implementation;
    trimul_plan* plan = nullptr;
    const std::string text = outcome(trimul_plan_create(&problem, &options, &plan));
    trimul_plan_destroy(plan);
    return text;
  };
  for (const char* implementation : {"cpu", "reference"}) {
    EXPECT_EQ(with_knob("thread", 1, implementation), "INVALID_ARGUMENT: knob: 'thread' is unknown here, expected threads");
    for (const std::int64_t value : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{4097}, std::int64_t{1} << 40})
      EXPECT_EQ(with_knob("threads", value, implementation),
                "UNSUPPORTED: knob threads: is " + std::to_string(value) + ", expected 1 to 4096");
    EXPECT_EQ(with_knob("threads", 4096, implementation), "OK");
  }
}

TEST(Registry, SelectionStopsAtTheFirstAcceptorAndKeepsReasons) {
  const auto refuse = [](const core::Problem&, const core::DeviceInfo&) -> std::optional<core::Rejection> {
    return core::Rejection{"too early"};
  };
  const auto accept = [](const core::Problem&, const core::DeviceInfo&) -> std::optional<core::Rejection> { return std::nullopt; };
  const auto entry = [](std::string_view name, auto can_run) {
    return core::Implementation{.name = name, .describe = nullptr, .can_run = can_run, .make_plan = nullptr};
  };
  const std::array list{entry("first", refuse), entry("second", accept), entry("third", accept)};
  const auto selection = core::select_implementation(list, {}, {});
  ASSERT_NE(selection.chosen, nullptr);
  EXPECT_EQ(selection.chosen->name, "second");
  ASSERT_EQ(selection.declined.size(), 1U);
  EXPECT_EQ(selection.declined[0].name, "first");
  EXPECT_EQ(selection.declined[0].reason, "too early");
  EXPECT_EQ(core::select_implementation(std::span(list).first(1), {}, {}).chosen, nullptr);
}

}  // namespace
}  // namespace trimul::testing
