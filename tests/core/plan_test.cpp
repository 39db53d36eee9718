// SPDX-License-Identifier: Apache-2.0
// What a plan knows before there are tensors: workspace, traffic, operations, floor, explanation. All in 64 bits, nothing allocated.
#include "core/plan.hpp"

#include <gtest/gtest.h>

#include "support/call.hpp"
#include "support/scoped_env.hpp"

namespace trimul::testing {
namespace {

trimul_problem problem_of(std::int64_t b, std::int64_t n, std::int64_t c_z, std::int64_t c, std::int32_t dtype = TRIMUL_BF16,
                          bool mask = false) {
  trimul_problem problem = TRIMUL_PROBLEM_INIT;
  problem.batch = b;
  problem.tokens = n;
  problem.c_z = c_z;
  problem.c_hidden = c;
  problem.x_dtype = dtype;
  problem.has_mask = mask ? 1 : 0;
  return problem;
}

class NoWeights final : public core::PackedWeights {
 public:
  [[nodiscard]] std::size_t bytes() const override { return 0; }
  [[nodiscard]] std::vector<core::ByteRange> ranges() const override { return {}; }
};

/// A plan that needs nothing and is not to be executed whole.
template <typename Base>
class IdleBody : public Base {
 public:
  [[nodiscard]] std::size_t workspace_bytes() const override { return 0; }
  [[nodiscard]] std::string explain() const override { return "tiles: none\n"; }
  [[nodiscard]] std::string_view weights_layout() const override { return "none"; }
  [[nodiscard]] std::unique_ptr<core::PackedWeights> pack_weights(const core::Parameters&, void*, void*) const override {
    return std::make_unique<NoWeights>();
  }
  void execute(const core::ExecuteArgs&) const override { ADD_FAILURE() << "executed"; }
};

/// An implementation that accepts GPUs, so that hypothetical architectures can be planned for in any build.
core::Implementation for_gpus() {
  return {
      .name = "gpu",
      .describe = [] { return std::string("for this test"); },
      .can_run = [](const core::Problem&, const core::DeviceInfo& device) -> std::optional<core::Rejection> {
        if (device.sm >= 90) return std::nullopt;
        return core::Rejection{"needs sm90, this is " + device.name};
      },
      .make_plan = [](const core::Problem&, const core::DeviceInfo&, const std::vector<core::Knob>&) -> std::unique_ptr<core::PlanBody> {
        return std::make_unique<IdleBody<core::PlanBody>>();
      }};
}

core::Plan plan_for(trimul_problem problem, const char* arch) {
  static const std::array list{for_gpus()};
  problem.device = {TRIMUL_CUDA, 0};
  return core::Plan(core::validate_problem(problem), {.implementation = {}, .arch = arch, .knobs = {}}, list);
}

TEST(Plan, TrafficIs18BytesPerPairAndChannelPlusTheMask) {
  for (const std::int64_t b : {1, 3})
    for (const std::int64_t n : {1, 17, 256, 2881, 40000})
      for (const std::int64_t c : {32, 128}) {
        EXPECT_EQ(trimul_plan_traffic_bytes(make_plan(problem_of(b, n, c, c)).get()), 18 * n * n * c * b);
        EXPECT_EQ(trimul_plan_traffic_bytes(make_plan(problem_of(b, n, c, c, TRIMUL_F16, true)).get()), 18 * n * n * c * b + 2 * b * n * n);
        EXPECT_EQ(trimul_plan_traffic_bytes(make_plan(problem_of(b, n, c, c, TRIMUL_F32)).get()), 36 * n * n * c * b);
      }
  // C != C_z: x twice, out once, planes a, b and y written and read.
  EXPECT_EQ(trimul_plan_traffic_bytes(make_plan(problem_of(2, 10, 64, 128)).get()), 2 * 100 * 2 * (3 * 64 + 6 * 128));
}

TEST(Plan, FlopCountsTheMatrixProducts) {
  const double b = 2, n = 100, c_z = 64, c = 128;
  EXPECT_EQ(trimul_plan_flop(make_plan(problem_of(2, 100, 64, 128)).get()),
            8 * b * n * n * c_z * c + 2 * b * c * n * n * n + 2 * b * n * n * c_z * (c + c_z));
}

TEST(Plan, FloorOfTheH200IsThatOfThePerformanceNotes) {
  const std::pair<std::int64_t, double> floors[] = {{128, 8.8}, {256, 35}, {512, 141}, {1024, 723}};
  for (const auto& [n, us] : floors) EXPECT_NEAR(plan_for(problem_of(1, n, 128, 128), "sm90").floor_us(), us, 0.006 * us) << n;
  EXPECT_EQ(plan_for(problem_of(1, 256, 128, 128), "sm100").floor_us(), 0) << "nobody has measured";
  EXPECT_EQ(trimul_plan_floor_us(make_plan(problem_of(1, 256, 128, 128)).get()), 0) << "a CPU";
}

TEST(Plan, WorkspaceOfTheReferenceIsTwoPlanesOfDoubles) {
  for (const std::int64_t n : {1, 255, 4095, 4096, 4097, 8192})
    EXPECT_EQ(trimul_plan_workspace_bytes(make_plan(problem_of(5, n, 128, 128), "reference").get()),
              static_cast<std::size_t>(2 * 8 * 128 * n * n));
}

TEST(Plan, StagesAddUpToThePlan) {
  for (const bool mask : {false, true}) {
    const core::Plan plan = plan_for(problem_of(2, 300, 64, 128, TRIMUL_BF16, mask), "sm90");
    std::int64_t bytes = 0;
    double flop = 0, floor_us = 0;
    std::string names;
    for (const core::StageCost& stage : plan.stage_costs()) {
      names += std::string(stage.name) + " ";
      bytes += stage.traffic_bytes;
      flop += stage.flop;
      floor_us += stage.floor_us;
    }
    EXPECT_EQ(names, "input_projection triangle_contraction output_projection ");
    EXPECT_EQ(bytes, plan.traffic_bytes());
    EXPECT_EQ(flop, plan.flop());
    EXPECT_EQ(floor_us, plan.floor_us());
  }
  // 6 bytes per pair and channel in each stage at C = C_z; the mask's two bytes belong to the first and to no floor.
  constexpr std::int64_t kPairs = 512 * 512;
  const core::Plan plan = plan_for(problem_of(1, 512, 128, 128, TRIMUL_BF16, true), "sm90");
  const auto stages = plan.stage_costs();
  EXPECT_EQ(stages[0].traffic_bytes, 6 * 128 * kPairs + 2 * kPairs);
  EXPECT_EQ(stages[1].traffic_bytes, 6 * 128 * kPairs);
  EXPECT_EQ(stages[2].traffic_bytes, 6 * 128 * kPairs);
  EXPECT_EQ(stages[1].flop, 2.0 * 128 * 512 * kPairs);
  EXPECT_NEAR(stages[0].floor_us, 6 * 128 * kPairs / 4.3e6, 1e-9);
  EXPECT_NEAR(plan_for(problem_of(1, 2048, 128, 128), "sm90").stage_costs()[1].floor_us, 2.0 * 128 * 2048.0 * 2048 * 2048 / 790e6, 1e-9);
}

/// Three stages that write their number to out.
core::Implementation in_stages() {
  class Body final : public IdleBody<core::StagedPlanBody> {
   public:
    void execute_stage(core::Stage stage, const core::ExecuteArgs& args) const override {
      *static_cast<float*>(args.out) = 1.0F + static_cast<float>(stage);
    }
  };
  return {.name = "staged",
          .describe = [] { return std::string("for this test"); },
          .can_run = [](const core::Problem&, const core::DeviceInfo&) -> std::optional<core::Rejection> { return std::nullopt; },
          .make_plan = [](const core::Problem&, const core::DeviceInfo&,
                          const std::vector<core::Knob>&) -> std::unique_ptr<core::PlanBody> { return std::make_unique<Body>(); }};
}

TEST(Plan, StagesRunOneByOneAfterTheChecksOfAnExecute) {
  static const std::array list{in_stages()};
  Call call(kSmall);
  const core::Plan plan(core::validate_problem(call.data.problem()), {}, list);
  const auto weights = plan.prepare_weights(call.bound.parameters, nullptr);
  ASSERT_EQ(plan.num_stages(), 3U);
  for (std::size_t stage = 0; stage < 3; ++stage) {
    plan.execute_stage(stage, call.args, *weights);
    EXPECT_EQ(*static_cast<const float*>(call.out_view.data), 1.0F + static_cast<float>(stage));
  }
  EXPECT_EQ(outcome_of([&] { plan.execute_stage(3, call.args, *weights); }), "INVALID_ARGUMENT: stage: is 3, expected 0 to 2");
  call.args.mask = nullptr;
  EXPECT_EQ(outcome_of([&] { plan.execute_stage(0, call.args, *weights); }),
            "INVALID_ARGUMENT: mask: is missing, but the plan was made with it");
  const Case nothing({.lead = {0}, .n = 3, .c_z = 8, .c = 6});
  const Bound bound(nothing);
  const core::Plan idle(core::validate_problem(nothing.problem()), {}, list);
  call.args.x = &bound.x;
  call.args.mask = bound.mask_or_null();
  call.args.out = &bound.x;
  *static_cast<float*>(call.out_view.data) = 7.0F;
  idle.execute_stage(0, call.args, *weights);
  EXPECT_EQ(*static_cast<const float*>(call.out_view.data), 7.0F) << "an empty problem computed something";
}

TEST(Plan, WorkspaceOfTheCpuGrowsThroughTwoToThe31And32) {
  // C N^2 elements around 2^31 and 2^32, and bytes around both.
  std::size_t former = 0;
  for (const std::int64_t n : {2047, 2048, 2049, 2895, 2896, 2897, 4095, 4096, 4097, 5792, 5793, 5794, 8191, 8192, 8193}) {
    const PlanPtr plan = make_plan(problem_of(3, n, 64, 128), "cpu", 1);
    const std::size_t bytes = trimul_plan_workspace_bytes(plan.get());
    const auto planes = static_cast<std::size_t>(2 * 4 * 128 * n * n);
    EXPECT_GE(bytes, planes + static_cast<std::size_t>(4 * n * n));
    EXPECT_LE(bytes, planes + static_cast<std::size_t>(4 * n * n) + (4U << 20));
    EXPECT_GT(bytes, former);
    EXPECT_EQ(bytes % 256, 0U);
    former = bytes;
  }
}

TEST(Plan, WorkspaceDoesNotGrowWithTheBatchAndIsNothingForEmptyProblems) {
  for (const char* implementation : {"cpu", "reference"}) {
    const auto bytes = [&](std::int64_t b, std::int64_t n) {
      return trimul_plan_workspace_bytes(make_plan(problem_of(b, n, 32, 32), implementation, 2).get());
    };
    EXPECT_EQ(bytes(1, 64), bytes(1 << 20, 64));
    EXPECT_EQ(bytes(0, 64), 0U);
    EXPECT_EQ(bytes(4, 0), 0U);
  }
}

TEST(Plan, ExplainsItselfAsKeysAndValues) {
  const PlanPtr plan = make_plan(problem_of(2, 64, 128, 128, TRIMUL_BF16, true), "", 2);
  const std::string text = trimul_plan_explain(plan.get());
  for (const char* line : {"problem: B=2 N=64 C_z=128 C=128 bf16 outgoing mask\n", "device: CPU\n", "implementation: cpu\n",
                           "arithmetic: fp32, the output rounded once to bf16\n", "threads: 2\n", "traffic_bytes: 18890752\n",
                           "declined cuda:sm90: ", "declined cuda:sm80: "})
    EXPECT_TRUE(contains(text, line)) << text;
  EXPECT_TRUE(contains(text, "workspace_bytes: " + std::to_string(trimul_plan_workspace_bytes(plan.get())) + "\n")) << text;
  EXPECT_FALSE(contains(text, "declined reference")) << "it was not tried: " << text;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    ASSERT_NE(end, std::string::npos) << text;
    EXPECT_NE(text.substr(at, end - at).find(": "), std::string::npos) << text;
    at = end + 1;
  }
}

TEST(Plan, SaysWhenAPrecisionIsServedInFp32) {
  for (const std::int32_t precision : {TRIMUL_PRECISION_TF32, TRIMUL_PRECISION_TF32X3, TRIMUL_PRECISION_IEEE}) {
    trimul_problem problem = problem_of(1, 8, 16, 16, TRIMUL_F32);
    problem.precision = precision;
    const PlanPtr plan = make_plan(problem, "cpu");
    const std::string name = precision == TRIMUL_PRECISION_TF32 ? "tf32" : precision == TRIMUL_PRECISION_TF32X3 ? "tf32x3" : "ieee";
    EXPECT_TRUE(contains(trimul_plan_explain(plan.get()), "arithmetic: fp32 (asked for " + name + ")")) << trimul_plan_explain(plan.get());
  }
}

/// "threads: 3" of a plan over enough work for all of them.
std::string threads_of(std::int32_t max_threads, std::optional<std::int64_t> knob = {}, const char* implementation = "cpu") {
  const trimul_problem problem = problem_of(1, 256, 128, 128);
  const trimul_knob threads{"threads", knob.value_or(0)};
  trimul_plan_options options = TRIMUL_PLAN_OPTIONS_INIT;
  options.implementation = implementation;
  options.max_threads = max_threads;
  options.knobs = &threads;
  options.num_knobs = knob ? 1 : 0;
  trimul_plan* made = nullptr;
  const std::string text = outcome(trimul_plan_create(&problem, &options, &made));
  const PlanPtr plan(made);
  if (text != "OK") return text;
  const std::string lines = trimul_plan_explain(made);
  const std::size_t at = lines.find("threads: ");
  return lines.substr(at, lines.find('\n', at) - at);
}

TEST(Plan, MaxThreadsBoundsWhatACpuPlanTakesByItself) {
  const ScopedEnv env("TRIMUL_NUM_THREADS", "6");
  for (const char* implementation : {"cpu", "reference"}) {
    EXPECT_EQ(threads_of(0, {}, implementation), "threads: 6") << "no bound";
    EXPECT_EQ(threads_of(1, {}, implementation), "threads: 1");
    EXPECT_EQ(threads_of(4, {}, implementation), "threads: 4");
    EXPECT_EQ(threads_of(6, {}, implementation), "threads: 6");
    EXPECT_EQ(threads_of(100'000, {}, implementation), "threads: 6") << "a bound, not a wish";
    EXPECT_EQ(threads_of(2, 5, implementation), "threads: 5") << "the knob goes before it";
    EXPECT_EQ(threads_of(2, 1, implementation), "threads: 1");
    EXPECT_EQ(threads_of(-1, {}, implementation), "INVALID_ARGUMENT: options: max_threads is -1, expected at least 0");
    EXPECT_EQ(threads_of(-1, 2, implementation), "INVALID_ARGUMENT: options: max_threads is -1, expected at least 0");
  }
}

TEST(Plan, AnOlderCallersOptionsHaveNoMaxThreads) {
  const ScopedEnv env("TRIMUL_NUM_THREADS", "6");
  const trimul_problem problem = problem_of(1, 256, 128, 128);
  trimul_plan_options options = TRIMUL_PLAN_OPTIONS_INIT;
  options.max_threads = -7;  // not part of the older struct
  options.struct_size = offsetof(trimul_plan_options, max_threads);
  trimul_plan* made = nullptr;
  ASSERT_EQ(trimul_plan_create(&problem, &options, &made), TRIMUL_OK) << trimul_last_error();
  const PlanPtr plan(made);
  EXPECT_TRUE(contains(trimul_plan_explain(made), "threads: 6\n")) << trimul_plan_explain(made);
}

/// Needs no GPU: the plan is for an architecture.
TEST(Plan, MaxThreadsHasNoPartInAPlanForAGpu) {
  trimul_problem problem = problem_of(1, 256, 128, 128);
  problem.device = {TRIMUL_CUDA, 0};
  const auto explained = [&](std::int32_t max_threads) -> std::string {
    trimul_plan_options options = TRIMUL_PLAN_OPTIONS_INIT;
    options.arch = "sm90";
    options.max_threads = max_threads;
    trimul_plan* made = nullptr;
    if (trimul_plan_create(&problem, &options, &made) != TRIMUL_OK) return trimul_last_error();
    const PlanPtr plan(made);
    return trimul_plan_explain(made);
  };
  EXPECT_EQ(explained(1), explained(0));  // in builds without it, the same refusal
  EXPECT_EQ(explained(-1), "options: max_threads is -1, expected at least 0");
}

TEST(Plan, ForAnArchitectureThatIsNotHereItExplainsButDoesNotExecute) {
  const Case data({.n = 3, .c_z = 8, .c = 6});
  const core::Plan plan = plan_for(data.problem(), "sm90");
  EXPECT_EQ(plan.implementation(), "gpu");
  EXPECT_TRUE(contains(plan.explain(), "device: sm90\nimplementation: gpu\ntiles: none\n")) << plan.explain();
  EXPECT_TRUE(contains(plan.explain(), "floor_us: ")) << plan.explain();
  EXPECT_EQ(outcome_of([&] { plan_for(data.problem(), "sm86"); }),
            "UNSUPPORTED: no implementation serves B=1 N=3 C_z=8 C=6 fp32 outgoing mask in_bias out_bias on sm86\ndeclined gpu: needs "
            "sm90, this is sm86\n");

  Bound bound(data);
  HostTensor out(DType::kF32, data.x.sizes());
  trimul_tensor out_view = out.view();
  for (trimul_tensor* tensor : {&bound.x, &bound.mask, &out_view}) tensor->device = {TRIMUL_CUDA, 0};
  for (trimul_tensor& tensor : bound.tensors) tensor.device = {TRIMUL_CUDA, 0};
  const auto weights = plan.prepare_weights(bound.parameters, nullptr);
  trimul_execute_args args = TRIMUL_EXECUTE_ARGS_INIT;
  args.x = &bound.x;
  args.mask = &bound.mask;
  args.out = &out_view;
  EXPECT_EQ(outcome_of([&] { plan.execute(args, *weights); }),
            "UNSUPPORTED: device: the plan was made for sm90 as such, not for a device that is here; it only explains");
}

TEST(Device, ArchitecturesHaveTheirSharedMemory) {
  const std::pair<const char*, int> smem[] = {{"sm80", 166912}, {"sm86", 101376},  {"sm89", 101376},
                                              {"sm90", 232448}, {"sm100", 232448}, {"sm120", 101376}};
  for (const auto& [name, bytes] : smem) {
    const auto device = core::describe_architecture(name);
    ASSERT_TRUE(device.has_value()) << name;
    EXPECT_EQ(device->smem_per_block_bytes, bytes) << name;
    EXPECT_EQ("sm" + std::to_string(device->sm), name);
    EXPECT_GT(device->num_sms, 0);
    EXPECT_TRUE(device->is_hypothetical);
  }
  EXPECT_FALSE(core::describe_architecture("sm70").has_value());
  EXPECT_FALSE(core::describe_architecture("").has_value());
}

}  // namespace
}  // namespace trimul::testing
