// SPDX-License-Identifier: Apache-2.0
// The boundary itself: NULLs, struct sizes, names, the per-thread message.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "support/call.hpp"

namespace trimul::testing {
namespace {

TEST(CApi, NamesStatusesAndVersion) {
  EXPECT_STREQ(trimul_status_name(TRIMUL_OK), "OK");
  EXPECT_STREQ(trimul_status_name(TRIMUL_INVALID_ARGUMENT), "INVALID_ARGUMENT");
  EXPECT_STREQ(trimul_status_name(TRIMUL_UNSUPPORTED), "UNSUPPORTED");
  EXPECT_STREQ(trimul_status_name(TRIMUL_OUT_OF_MEMORY), "OUT_OF_MEMORY");
  EXPECT_STREQ(trimul_status_name(TRIMUL_DEVICE_ERROR), "DEVICE_ERROR");
  EXPECT_STREQ(trimul_status_name(TRIMUL_INTERNAL), "INTERNAL");
  EXPECT_STREQ(trimul_status_name(static_cast<trimul_status>(7)), "UNKNOWN");
  EXPECT_EQ(trimul_version(),
            std::to_string(TRIMUL_VERSION_MAJOR) + "." + std::to_string(TRIMUL_VERSION_MINOR) + "." + std::to_string(TRIMUL_VERSION_PATCH));
}

TEST(CApi, NullHandlesAreHarmless) {
  trimul_plan_destroy(nullptr);
  trimul_weights_destroy(nullptr);
  EXPECT_EQ(trimul_plan_workspace_bytes(nullptr), 0U);
  EXPECT_EQ(trimul_plan_workspace_bytes_with_parameters(nullptr), 0U);
  EXPECT_EQ(trimul_plan_packed_bytes(nullptr), 0U);
  EXPECT_EQ(trimul_weights_bytes(nullptr), 0U);
  EXPECT_EQ(trimul_plan_traffic_bytes(nullptr), 0);
  EXPECT_EQ(trimul_plan_flop(nullptr), 0.0);
  EXPECT_EQ(trimul_plan_floor_us(nullptr), 0.0);
  EXPECT_EQ(trimul_plan_num_stages(nullptr), 0U);
  EXPECT_STREQ(trimul_plan_explain(nullptr), "");
  EXPECT_STREQ(trimul_plan_implementation(nullptr), "");
}

TEST(CApi, NullArgumentsAreNamed) {
  Call call(kSmall);
  const trimul_problem problem = call.data.problem();
  trimul_plan* plan = nullptr;
  trimul_weights* weights = nullptr;
  const char* reason = nullptr;
  EXPECT_EQ(outcome(trimul_plan_create(nullptr, nullptr, &plan)), "INVALID_ARGUMENT: problem: is NULL, expected a struct");
  EXPECT_EQ(outcome(trimul_plan_create(&problem, nullptr, nullptr)), "INVALID_ARGUMENT: plan: is NULL, expected a place for the result");
  EXPECT_EQ(outcome(trimul_weights_create(nullptr, &call.bound.parameters, nullptr, &weights)), "INVALID_ARGUMENT: plan: is NULL");
  EXPECT_EQ(outcome(trimul_weights_create(call.plan.get(), nullptr, nullptr, &weights)),
            "INVALID_ARGUMENT: parameters: is NULL, expected a struct");
  EXPECT_EQ(outcome(trimul_weights_create(call.plan.get(), &call.bound.parameters, nullptr, nullptr)),
            "INVALID_ARGUMENT: weights: is NULL, expected a place for the result");
  EXPECT_EQ(outcome(trimul_execute(nullptr, &call.args)), "INVALID_ARGUMENT: plan: is NULL");
  EXPECT_EQ(outcome(trimul_execute(call.plan.get(), nullptr)), "INVALID_ARGUMENT: args: is NULL, expected a struct");
  trimul_stage_info info = TRIMUL_STAGE_INFO_INIT;
  EXPECT_EQ(outcome(trimul_plan_stage(nullptr, 0, &info)), "INVALID_ARGUMENT: plan: is NULL");
  EXPECT_EQ(outcome(trimul_execute_stage(nullptr, 0, &call.args)), "INVALID_ARGUMENT: plan: is NULL");
  EXPECT_EQ(outcome(trimul_execute_stage(call.plan.get(), 0, nullptr)), "INVALID_ARGUMENT: args: is NULL, expected a struct");
  EXPECT_EQ(outcome(trimul_update(nullptr)), "INVALID_ARGUMENT: args: is NULL, expected a struct");
  trimul_update_args args = call.bound.update_args(call.data);
  EXPECT_EQ(outcome(trimul_update(&args)), "INVALID_ARGUMENT: out: is missing, expected a tensor");
  args.parameters = nullptr;
  EXPECT_EQ(outcome(trimul_update(&args)), "INVALID_ARGUMENT: parameters: is NULL, expected a struct");
  EXPECT_EQ(outcome(trimul_implementation_can_run(nullptr, &problem, nullptr, &reason)), "INVALID_ARGUMENT: implementation: name is NULL");
  EXPECT_EQ(outcome(trimul_implementation_can_run("cpu", &problem, nullptr, nullptr)),
            "INVALID_ARGUMENT: reason: is NULL, expected a place for the result");
  trimul_plan_options options = TRIMUL_PLAN_OPTIONS_INIT;
  options.num_knobs = 2;
  EXPECT_EQ(outcome(trimul_plan_create(&problem, &options, &plan)), "INVALID_ARGUMENT: options: knobs is NULL, expected 2 knobs");
  const trimul_knob nameless{nullptr, 1};
  options.knobs = &nameless;
  options.num_knobs = 1;
  EXPECT_EQ(outcome(trimul_plan_create(&problem, &options, &plan)), "INVALID_ARGUMENT: options: the name of knob 0 is NULL");
}

TEST(CApi, AStructOfZeroSizeIsRefused) {
  Call call(kSmall);
  trimul_problem problem = call.data.problem();
  trimul_plan* plan = nullptr;
  problem.struct_size = 0;
  EXPECT_EQ(outcome(trimul_plan_create(&problem, nullptr, &plan)),
            "INVALID_ARGUMENT: problem: struct_size is 0, expected " + std::to_string(sizeof(trimul_problem)));
  call.args.struct_size = 4;
  EXPECT_EQ(call.execute(), "INVALID_ARGUMENT: args: struct_size is 4, expected " + std::to_string(sizeof(trimul_execute_args)));
  trimul_plan_options options = TRIMUL_PLAN_OPTIONS_INIT;
  options.struct_size = 0;
  problem = call.data.problem();
  EXPECT_TRUE(contains(outcome(trimul_plan_create(&problem, &options, &plan)), "options: struct_size is 0"));
  call.bound.parameters.struct_size = 0;
  trimul_weights* weights = nullptr;
  EXPECT_TRUE(
      contains(outcome(trimul_weights_create(call.plan.get(), &call.bound.parameters, nullptr, &weights)), "parameters: struct_size is 0"));
}

TEST(CApi, AnOlderCallersShorterStructMeansZerosBeyondIt) {
  const Case data({.n = 3, .c_z = 8, .c = 6, .mask = MaskKind::kNone, .absent = kProjectionBiases});
  trimul_problem problem = data.problem();
  problem.has_mask = problem.has_in_bias = problem.has_out_bias = problem.residual = 1;  // not part of the older struct
  problem.struct_size = offsetof(trimul_problem, has_mask);
  trimul_plan* plan = nullptr;
  ASSERT_EQ(trimul_plan_create(&problem, nullptr, &plan), TRIMUL_OK) << trimul_last_error();
  EXPECT_TRUE(contains(trimul_plan_explain(plan), "problem: B=1 N=3 C_z=8 C=6 fp32 outgoing\n")) << trimul_plan_explain(plan);
  trimul_plan_destroy(plan);
}

TEST(CApi, ANewerCallersLongerStructMustBeZeroBeyondTheKnownFields) {
  struct Newer {
    trimul_problem known;
    std::int64_t added[4];
  } newer{};
  newer.known = Case(kSmall).problem();
  newer.known.struct_size = sizeof(Newer);
  trimul_plan* plan = nullptr;
  EXPECT_EQ(outcome(trimul_plan_create(&newer.known, nullptr, &plan)), "OK");
  trimul_plan_destroy(plan);
  newer.added[2] = 1;
  EXPECT_EQ(outcome(trimul_plan_create(&newer.known, nullptr, &plan)),
            "INVALID_ARGUMENT: problem: struct_size is " + std::to_string(sizeof(Newer)) + ", this library knows " +
                std::to_string(sizeof(trimul_problem)) + " bytes and the rest is not zero");
}

TEST(CApi, AnAbsurdStructSizeIsRefusedBeforeItIsRead) {
  trimul_problem problem = Case(kSmall).problem();
  trimul_plan* plan = nullptr;
  for (const std::size_t size : {std::size_t{1} << 20, ~std::size_t{0}}) {
    problem.struct_size = size;
    EXPECT_EQ(outcome(trimul_plan_create(&problem, nullptr, &plan)),
              "INVALID_ARGUMENT: problem: struct_size is " + std::to_string(size) + ", expected " + std::to_string(sizeof(trimul_problem)));
  }
}

TEST(CApi, AFailedCreateLeavesNullBehind) {
  Call call(kSmall);
  trimul_problem problem = call.data.problem();
  problem.direction = 9;
  auto* plan = reinterpret_cast<trimul_plan*>(1);
  EXPECT_EQ(trimul_plan_create(&problem, nullptr, &plan), TRIMUL_INVALID_ARGUMENT);
  EXPECT_EQ(plan, nullptr);
  call.bound.parameters.p_in_weight = nullptr;
  auto* weights = reinterpret_cast<trimul_weights*>(1);
  EXPECT_EQ(trimul_weights_create(call.plan.get(), &call.bound.parameters, nullptr, &weights), TRIMUL_INVALID_ARGUMENT);
  EXPECT_EQ(weights, nullptr);
}

TEST(CApi, TheLastErrorIsPerThreadAndSurvivesSuccess) {
  trimul_problem bad = Case(kSmall).problem();
  bad.direction = 5;
  trimul_plan* plan = nullptr;
  ASSERT_NE(trimul_plan_create(&bad, nullptr, &plan), TRIMUL_OK);
  const std::string mine = trimul_last_error();
  std::string before, after;
  std::thread([&] {
    before = trimul_last_error();
    trimul_problem other = Case(kSmall).problem();
    other.precision = 42;
    EXPECT_EQ(trimul_plan_create(&other, nullptr, &plan), TRIMUL_INVALID_ARGUMENT);
    after = trimul_last_error();
  }).join();
  EXPECT_EQ(before, "");
  EXPECT_TRUE(contains(after, "precision is 42")) << after;
  EXPECT_EQ(trimul_last_error(), mine);
  const trimul_problem good = Case(kSmall).problem();
  const PlanPtr served = make_plan(good);
  EXPECT_EQ(trimul_last_error(), mine);
}

TEST(CApi, ACpuPlanHasNoStages) {
  Call call(kSmall);
  trimul_stage_info info = TRIMUL_STAGE_INFO_INIT;
  EXPECT_EQ(trimul_plan_num_stages(call.plan.get()), 0U);
  const std::string refusal = "INVALID_ARGUMENT: stage: is 0, but implementation cpu does not divide its work into stages";
  EXPECT_EQ(outcome(trimul_plan_stage(call.plan.get(), 0, &info)), refusal);
  EXPECT_EQ(outcome(trimul_execute_stage(call.plan.get(), 0, &call.args)), refusal);
  call.args.weights = nullptr;
  EXPECT_EQ(outcome(trimul_execute_stage(call.plan.get(), 0, &call.args)),
            "INVALID_ARGUMENT: weights: is NULL, expected weights of trimul_weights_create");
}

/// Needs no GPU: the plan is for an architecture.
TEST(CApi, StagesOfTheHopperPlanDescribeThemselves) {
  trimul_problem problem = Case(gpu_spec({.n = 64, .mask = MaskKind::kNone})).problem();
  problem.device = {TRIMUL_CUDA, 0};
  trimul_plan_options options = TRIMUL_PLAN_OPTIONS_INIT;
  options.implementation = "cuda:sm90";
  options.arch = "sm90";
  trimul_plan* made = nullptr;
  if (trimul_plan_create(&problem, &options, &made) == TRIMUL_UNSUPPORTED) GTEST_SKIP() << trimul_last_error();  // not in this build
  const PlanPtr plan(made);
  ASSERT_EQ(trimul_plan_num_stages(plan.get()), 3U);
  const char* const names[] = {"input_projection", "triangle_contraction", "output_projection"};
  for (std::size_t stage = 0; stage < 3; ++stage) {
    trimul_stage_info info = TRIMUL_STAGE_INFO_INIT;
    ASSERT_EQ(trimul_plan_stage(plan.get(), stage, &info), TRIMUL_OK) << trimul_last_error();
    EXPECT_STREQ(info.name, names[stage]);
    EXPECT_EQ(info.struct_size, sizeof(info));
    EXPECT_EQ(info.traffic_bytes, 6 * 128 * 64 * 64);
    EXPECT_GT(info.flop, 0);
    EXPECT_GT(info.floor_us, 0);
    // An older caller's struct ends earlier: what lies behind it stays.
    info.floor_us = -1;
    info.struct_size = offsetof(trimul_stage_info, floor_us);
    ASSERT_EQ(trimul_plan_stage(plan.get(), stage, &info), TRIMUL_OK) << trimul_last_error();
    EXPECT_EQ(info.floor_us, -1);
  }
  trimul_stage_info info = TRIMUL_STAGE_INFO_INIT;
  EXPECT_EQ(outcome(trimul_plan_stage(plan.get(), 3, &info)), "INVALID_ARGUMENT: stage: is 3, expected 0 to 2");
  EXPECT_EQ(outcome(trimul_plan_stage(plan.get(), 0, nullptr)), "INVALID_ARGUMENT: info: is NULL, expected a struct");
}

TEST(CApi, KnobsHaveNamesAndRanges) {
  EXPECT_EQ(trimul_implementation_num_knobs("cpu"), 1U);
  EXPECT_EQ(trimul_implementation_num_knobs("reference"), 1U);
  // 0 where the build has no CUDA.
  for (const char* const name : {"cuda:sm90", "cuda:sm80"}) {
    const std::size_t num_knobs = trimul_implementation_num_knobs(name);
    EXPECT_TRUE(num_knobs == 0U || num_knobs == 3U) << name << ": " << num_knobs;
  }
  EXPECT_EQ(trimul_implementation_num_knobs("nothing"), 0U);
  EXPECT_EQ(trimul_implementation_num_knobs(nullptr), 0U);
  trimul_knob_range range = TRIMUL_KNOB_RANGE_INIT;
  ASSERT_EQ(trimul_implementation_knob("cpu", 0, &range), TRIMUL_OK);
  EXPECT_STREQ(range.name, "threads");
  EXPECT_EQ(range.least, 1);
  EXPECT_EQ(range.most, 4096);
  EXPECT_EQ(outcome(trimul_implementation_knob("cpu", 1, &range)),
            "INVALID_ARGUMENT: knob: index is 1, expected below 1 (the knobs of cpu)");
  EXPECT_TRUE(contains(outcome(trimul_implementation_knob("nothing", 0, &range)), "'nothing' is unknown")) << trimul_last_error();
  EXPECT_EQ(outcome(trimul_implementation_knob(nullptr, 0, &range)), "INVALID_ARGUMENT: implementation: name is NULL");
  EXPECT_EQ(outcome(trimul_implementation_knob("cpu", 0, nullptr)), "INVALID_ARGUMENT: range: is NULL, expected a struct");
}

TEST(CApi, RecommendsAValueForEveryKnob) {
  const trimul_problem problem = Case(kSmall).problem();
  trimul_knob knobs[8] = {};
  std::size_t num_knobs = 0;
  ASSERT_EQ(trimul_recommend_knobs(&problem, nullptr, nullptr, knobs, 8, &num_knobs), TRIMUL_OK) << trimul_last_error();
  ASSERT_EQ(num_knobs, 1U);
  EXPECT_STREQ(knobs[0].name, "threads");
  EXPECT_GE(knobs[0].value, 1);
  knobs[0] = {"mine", -5};
  EXPECT_EQ(trimul_recommend_knobs(&problem, "reference", nullptr, nullptr, 0, &num_knobs), TRIMUL_OK) << trimul_last_error();
  EXPECT_EQ(num_knobs, 1U) << "how many there are, whatever the room";
  EXPECT_STREQ(knobs[0].name, "mine");
  EXPECT_EQ(outcome(trimul_recommend_knobs(&problem, nullptr, nullptr, nullptr, 2, &num_knobs)),
            "INVALID_ARGUMENT: knobs: is NULL, expected room for 2 knobs");
  EXPECT_EQ(outcome(trimul_recommend_knobs(&problem, nullptr, nullptr, knobs, 8, nullptr)),
            "INVALID_ARGUMENT: num_knobs: is NULL, expected a place for the result");
  EXPECT_TRUE(contains(outcome(trimul_recommend_knobs(&problem, "cuda:sm80", nullptr, knobs, 8, &num_knobs)), "UNSUPPORTED: "));
  EXPECT_EQ(num_knobs, 0U);
  EXPECT_TRUE(contains(outcome(trimul_recommend_knobs(&problem, "nothing", nullptr, knobs, 8, &num_knobs)), "'nothing' is unknown"));
}

/// Needs no GPU: the plan is for an architecture.
/// `every_knob_chooses`: at this width each has another choice than the plan's own.
void expect_recommended_plan(const char* implementation, const char* arch, std::int64_t width, bool every_knob_chooses) {
  SCOPED_TRACE(std::string(implementation) + " on " + arch);
  trimul_problem problem = Case(gpu_spec({.n = 1, .mask = MaskKind::kNone})).problem();
  problem.tokens = 500;
  problem.c_z = width;
  problem.c_hidden = width;
  problem.device = {TRIMUL_CUDA, 0};
  trimul_knob knobs[8] = {};
  std::size_t num_knobs = 0;
  const trimul_status status = trimul_recommend_knobs(&problem, implementation, arch, knobs, 8, &num_knobs);
  if (status == TRIMUL_UNSUPPORTED) return;  // not in this build
  ASSERT_EQ(status, TRIMUL_OK) << trimul_last_error();
  ASSERT_EQ(num_knobs, trimul_implementation_num_knobs(implementation));
  trimul_plan_options options = TRIMUL_PLAN_OPTIONS_INIT;
  options.implementation = implementation;
  options.arch = arch;
  const auto explanation = [&](const std::vector<trimul_knob>& given) {
    options.knobs = given.data();
    options.num_knobs = given.size();
    trimul_plan* plan = nullptr;
    EXPECT_EQ(trimul_plan_create(&problem, &options, &plan), TRIMUL_OK) << trimul_last_error();
    const PlanPtr owner(plan);
    return std::string(trimul_plan_explain(plan));
  };
  const std::string by_itself = explanation({});
  EXPECT_EQ(by_itself, explanation({knobs, knobs + num_knobs}));
  for (std::size_t k = 0; k < num_knobs; ++k) {
    trimul_knob_range range = TRIMUL_KNOB_RANGE_INIT;
    ASSERT_EQ(trimul_implementation_knob(implementation, k, &range), TRIMUL_OK) << trimul_last_error();
    EXPECT_STREQ(range.name, knobs[k].name);
    EXPECT_TRUE(range.least <= knobs[k].value && knobs[k].value <= range.most) << range.name;
    EXPECT_TRUE(contains(by_itself, std::string("\n") + range.name + ": " + std::to_string(knobs[k].value))) << by_itself;
    const std::string other = explanation({{range.name, knobs[k].value == range.least ? range.most : range.least}});
    EXPECT_TRUE(other != by_itself || !every_knob_chooses) << range.name;
  }
}

TEST(CApi, RecommendsForAnArchitectureWhatItsPlanTakes) {
  expect_recommended_plan("cuda:sm90", "sm90", 128, true);
  // A tile is bounded by a knob, and by shared memory as well, which decides where there is less of it.
  for (const char* const arch : {"sm80", "sm86", "sm89", "sm90", "sm100", "sm120"})
    expect_recommended_plan("cuda:sm80", arch, 256, arch == std::string_view("sm90") || arch == std::string_view("sm100"));
}

/// Needs no GPU. Rows that no block's shared memory holds are explained as such; in place they want room for copies of x.
TEST(CApi, PlansOfThePortableImplementationSayWhenRowsAreWide) {
  for (const char* const arch : {"sm80", "sm86", "sm89", "sm90", "sm100", "sm120"})
    for (const std::int32_t dtype : {TRIMUL_BF16, TRIMUL_F16, TRIMUL_F32})
      for (const std::int64_t c_z : {1, 48, 128, 256, 2048, 4096})
        for (const std::int64_t c : {std::int64_t{1}, std::int64_t{48}, c_z}) {
          SCOPED_TRACE(::testing::Message() << arch << ", dtype " << dtype << ", " << c_z << " x " << c);
          trimul_problem problem = TRIMUL_PROBLEM_INIT;
          problem.device = {TRIMUL_CUDA, 0};
          problem.tokens = 20;
          problem.c_z = c_z;
          problem.c_hidden = c;
          problem.x_dtype = dtype;
          trimul_plan_options options = TRIMUL_PLAN_OPTIONS_INIT;
          options.implementation = "cuda:sm80";
          options.arch = arch;
          std::size_t workspace[2] = {};
          bool is_wide = false;
          for (const std::int32_t residual : {0, 1}) {
            problem.residual = residual;
            trimul_plan* made = nullptr;
            const trimul_status status = trimul_plan_create(&problem, &options, &made);
            if (status == TRIMUL_UNSUPPORTED) GTEST_SKIP() << trimul_last_error();  // not in this build
            ASSERT_EQ(status, TRIMUL_OK) << trimul_last_error();
            const PlanPtr plan(made);
            workspace[residual] = trimul_plan_workspace_bytes(made);
            is_wide = contains(trimul_plan_explain(made), "rows: normalised part by part");
          }
          EXPECT_TRUE(c_z > 256 || !is_wide);
          EXPECT_TRUE(is_wide || c_z < 4096 || (c == 1 && dtype != TRIMUL_F32));
          EXPECT_TRUE(workspace[1] == workspace[0] || is_wide);
          EXPECT_GE(workspace[1], workspace[0]);
        }
}

TEST(CApi, CeilingsAreKnownWhereTheyHaveBeenMeasured) {
  double bytes_per_us = -1, flop_per_us = -1;
  ASSERT_EQ(trimul_device_ceilings({TRIMUL_CPU, 0}, &bytes_per_us, &flop_per_us), TRIMUL_OK) << trimul_last_error();
  EXPECT_EQ(bytes_per_us, 0);
  EXPECT_EQ(flop_per_us, 0);
  EXPECT_EQ(outcome(trimul_device_ceilings({TRIMUL_CPU, 0}, nullptr, &flop_per_us)),
            "INVALID_ARGUMENT: bytes_per_us: is NULL, expected a place for the result");
  EXPECT_EQ(outcome(trimul_device_ceilings({TRIMUL_CPU, 0}, &bytes_per_us, nullptr)),
            "INVALID_ARGUMENT: flop_per_us: is NULL, expected a place for the result");
  EXPECT_NE(trimul_device_ceilings({TRIMUL_CUDA, trimul_cuda_device_count()}, &bytes_per_us, &flop_per_us), TRIMUL_OK);
}

TEST(CApi, WeightsKnowTheirBytes) {
  Call call(kSmall);
  // 12 vectors and matrices of fp32: norms 2 * (8 + 6), projections (2 * 12 + 6 + 8) * 8, biases 2 * 12 + 2 * 8.
  EXPECT_EQ(trimul_weights_bytes(call.weights.get()), 4U * (2 * (8 + 6) + (2 * 12 + 6 + 8) * 8 + 2 * 12 + 2 * 8));
}

TEST(CApi, TheReferenceRefusesWhatItDoesNotKnow) {
  Call call(kSmall);
  std::vector<double> result(call.data.x.values().size());
  trimul_update_args args = call.bound.update_args(call.data);
  EXPECT_EQ(outcome(trimul_reference(&args, TRIMUL_ROUNDING_NONE, nullptr, 0, nullptr)),
            "INVALID_ARGUMENT: result: is NULL, expected a place for the values");
  EXPECT_EQ(outcome(trimul_reference(&args, TRIMUL_ROUNDING_NONE, nullptr, 0, result.data())), "OK");
  const std::int64_t cell[3] = {0, 0, 0};
  EXPECT_EQ(outcome(trimul_reference(&args, TRIMUL_ROUNDING_NONE, cell, 0, nullptr)), "OK") << "no cells, no result";
  args.precision = TRIMUL_PRECISION_MXFP8;
  EXPECT_TRUE(contains(outcome(trimul_reference(&args, TRIMUL_ROUNDING_NONE, nullptr, 0, result.data())), "UNSUPPORTED: precision mxfp8"))
      << trimul_last_error();
  args = call.bound.update_args(call.data);
  trimul_tensor x = call.bound.x;
  x.device = {TRIMUL_CUDA, 0};
  args.x = &x;
  EXPECT_EQ(outcome(trimul_reference(&args, TRIMUL_ROUNDING_NONE, nullptr, 0, result.data())),
            "INVALID_ARGUMENT: x: device is a GPU, expected the CPU");
}

TEST(CApi, DescribesTheMachineAndTheBuild) {
  EXPECT_TRUE(contains(trimul_device_description({TRIMUL_CPU, 0}), "CPU, ")) << trimul_device_description({TRIMUL_CPU, 0});
  EXPECT_EQ(trimul_device_description({TRIMUL_CPU, 1}), nullptr);
  EXPECT_EQ(trimul_device_description({99, 0}), nullptr);
  EXPECT_EQ(trimul_device_description({TRIMUL_CUDA, trimul_cuda_device_count()}), nullptr);
  EXPECT_EQ(trimul_device_description({TRIMUL_CUDA, -1}), nullptr);
  for (const char* key : {"version: ", "commit: ", "compiler: ", "onednn: ", "cuda: "})
    EXPECT_TRUE(contains(trimul_build_info(), key)) << trimul_build_info();
}

}  // namespace
}  // namespace trimul::testing
