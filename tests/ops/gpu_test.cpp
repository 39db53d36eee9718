// SPDX-License-Identifier: Apache-2.0
// What only a GPU implementation has: tiles and copies that change with N, knobs, and reads and writes that want alignment. No instance
// without a GPU.
#include "support/gpu_call.hpp"
#include "support/operator_test.hpp"

namespace trimul::testing {
namespace {

class Gpu : public OperatorTest {};

/// Every value of every knob by itself, beside what the plan would choose for the others, and then all of them at once at random.
std::vector<std::vector<trimul_knob>> knob_values(const std::string& implementation, Random& random) {
  std::vector<std::vector<trimul_knob>> sets;
  std::vector<trimul_knob_range> ranges;
  for (std::size_t k = 0; k < trimul_implementation_num_knobs(implementation.c_str()); ++k) {
    ranges.push_back(TRIMUL_KNOB_RANGE_INIT);
    EXPECT_EQ(trimul_implementation_knob(implementation.c_str(), k, &ranges.back()), TRIMUL_OK) << trimul_last_error();
    for (std::int64_t value = ranges.back().least; value <= ranges.back().most; ++value) sets.push_back({{ranges.back().name, value}});
  }
  for (int draw = 0; draw < 4; ++draw) {
    sets.emplace_back();
    for (const trimul_knob_range& range : ranges) sets.back().push_back({range.name, random.integer(range.least, range.most)});
  }
  return sets;
}

std::string describe(const std::vector<trimul_knob>& knobs) {
  std::string text;
  for (const trimul_knob& knob : knobs) text += std::string(knob.name) + " " + std::to_string(knob.value) + " ";
  return text;
}

TEST_P(Gpu, EveryKnobValueGivesTheSameBits) {
  Random random(base_seed());
  // Around the edges of 64, 128 and 192, where planes fill a variant's tile, lack a row block or need a second width.
  for (const std::int64_t n : {1, 8, 40, 63, 64, 65, 100, 127, 128, 129, 191, 192, 193, 217, 255, 256, 257, 320, 385})
    for (const auto direction : kDirections)
      for (const Spec& spec : gpu_specs({.lead = {n < 100 ? 3 : 1}, .n = n, .direction = direction, .mask = MaskKind::kPadded})) {
        const Case data(spec);
        ASSERT_TRUE(accepts(data));
        GpuCall call(data, implementation());
        call.execute(nullptr);
        const auto expected = call.result(nullptr);
        for (const auto& knobs : knob_values(implementation(), random)) {
          call.plan = make_plan_with_knobs(data.problem(), implementation(), knobs);
          call.poison();
          call.execute(nullptr);
          EXPECT_TRUE(call.result(nullptr) == expected) << describe(knobs) << ": " << describe(data.spec);
        }
      }
}

TEST_P(Gpu, EveryKnobValueStaysInsideItsMemory) {
  Random random(base_seed());
  for (const std::int64_t n : {40, 100, 193, 257})
    for (const Spec& spec : gpu_specs({.n = n, .mask = MaskKind::kPadded})) {
      const Case data(spec);
      ASSERT_TRUE(accepts(data));
      const auto expected = run(data, implementation()).raw;
      for (const auto& knobs : knob_values(implementation(), random))
        EXPECT_TRUE(run(data, implementation(), {.knobs = knobs}).raw == expected) << describe(knobs) << ": " << describe(data.spec);
    }
}

TEST_P(Gpu, KnobsThatDoNotExistAreRefused) {
  trimul_problem problem = Case(gpu_spec({.n = 8})).problem();
  ASSERT_TRUE(accepts(Case(gpu_spec({.n = 8}))));
  problem.device = device_of(implementation());
  const auto planned = [&](const char* name, std::int64_t value) {
    const trimul_knob knob{name, value};
    trimul_plan_options options = TRIMUL_PLAN_OPTIONS_INIT;
    options.implementation = implementation().c_str();
    options.knobs = &knob;
    options.num_knobs = 1;
    trimul_plan* plan = nullptr;
    const trimul_status status = trimul_plan_create(&problem, &options, &plan);
    trimul_plan_destroy(plan);
    return status;
  };
  for (std::size_t k = 0; k < trimul_implementation_num_knobs(implementation().c_str()); ++k) {
    trimul_knob_range range = TRIMUL_KNOB_RANGE_INIT;
    ASSERT_EQ(trimul_implementation_knob(implementation().c_str(), k, &range), TRIMUL_OK) << trimul_last_error();
    EXPECT_EQ(planned(range.name, range.least), TRIMUL_OK) << range.name;
    EXPECT_EQ(planned(range.name, range.most), TRIMUL_OK) << range.name;
    EXPECT_EQ(planned(range.name, range.least - 1), TRIMUL_UNSUPPORTED) << range.name;
    EXPECT_EQ(planned(range.name, range.most + 1), TRIMUL_UNSUPPORTED) << range.name;
  }
  EXPECT_EQ(planned("threads", 2), TRIMUL_INVALID_ARGUMENT);
}

TEST_P(Gpu, AddressesChangeNothingAtEveryKindOfCopy) {
  // Flat runs of rows (N % 8 == 0 up to 256, N % 64 == 0 above), units of 8 columns, and clipped rows of 64.
  for (const std::int64_t n : {1, 7, 16, 33, 64, 100, 257, 320})
    for (const Spec& kind : gpu_specs({.n = n, .mask_dtype = DType::kBf16, .residual = true})) {
      const Case aligned(kind);
      const bool may_be_in_place = aligned.out_dtype() == kind.x_dtype;
      ASSERT_TRUE(accepts(aligned));
      const auto expected = run(aligned, implementation()).raw;
      for (const std::int64_t offset : {1, 3, 8}) {
        Spec spec = aligned.spec;
        spec.offset = offset;  // of x, the mask, the parameters and out
        const Case shifted(spec);
        EXPECT_TRUE(run(shifted, implementation()).raw == expected) << describe(spec);
        EXPECT_TRUE(run(shifted, implementation(), {.out_offset = 0}).raw == expected) << "x alone: " << describe(spec);
        EXPECT_TRUE(run(aligned, implementation(), {.out_offset = offset}).raw == expected) << "out alone: " << describe(spec);
        if (may_be_in_place) {
          EXPECT_TRUE(run(shifted, implementation(), {.in_place = true}).raw == expected) << "in place: " << describe(spec);
        }
      }
      if (may_be_in_place) {
        EXPECT_TRUE(run(aligned, implementation(), {.in_place = true}).raw == expected) << "in place: " << describe(aligned.spec);
      }
    }
}

TEST_P(Gpu, FormerContentsChangeNothingAtEveryKindOfCopy) {
  for (const std::int64_t n : {1, 7, 16, 33, 64, 65, 100, 129, 192, 257, 300, 320})
    for (const Spec& spec : gpu_specs({.lead = {2}, .n = n, .mask = MaskKind::kPadded})) {
      const Case data(spec);
      ASSERT_TRUE(accepts(data));
      const auto expected = run(data, implementation(), {.poison = std::byte{0}}).raw;
      for (const std::byte poison : {std::byte{0xff}, std::byte{0x7f}})
        EXPECT_TRUE(run(data, implementation(), {.poison = poison}).raw == expected) << describe(data.spec);
      EXPECT_TRUE(run(data, implementation(), {.poison = std::byte{0}}).raw == expected) << "a second run: " << describe(data.spec);
    }
}

TEST_P(Gpu, ASampleDoesNotDependOnItsBatchAtEveryKindOfCopy) {
  for (const std::int64_t n : {5, 16, 33, 64, 100, 129, 257})
    for (const auto direction : kDirections)
      for (const Spec& spec : gpu_specs({.lead = {3}, .n = n, .direction = direction})) {
        const Case data(spec);
        ASSERT_TRUE(accepts(data));
        const auto whole = run(data, implementation()).raw;
        const std::size_t sample_bytes = whole.size() / 3;
        for (std::int64_t b = 0; b < 3; ++b) {
          const auto got = run(sample_of(data, b), implementation()).raw;
          EXPECT_TRUE(std::equal(got.begin(), got.end(), whole.begin() + b * static_cast<std::ptrdiff_t>(sample_bytes)))
              << "sample " << b << ": " << describe(data.spec);
        }
      }
}

TEST_P(Gpu, EmptyProblemsSucceed) {
  for (const Sizes& lead : std::vector<Sizes>{{0}, {2}})
    for (const Spec& spec : gpu_specs({.lead = lead, .n = lead[0] == 0 ? 4 : 0, .mask = MaskKind::kNone})) {
      const Case data(spec);
      ASSERT_TRUE(accepts(data));
      EXPECT_TRUE(run(data, implementation()).raw.empty());
    }
}

TEST_P(Gpu, OverlapIsRefusedBeforeAnythingIsWritten) {
  const Case data(gpu_spec({.n = 8}));
  ASSERT_TRUE(accepts(data));
  const DeviceBound inputs(data, device_of(implementation()));
  const PlanPtr plan = make_plan(data.problem(), implementation());
  const WeightsPtr weights = make_weights(plan.get(), inputs.bound);
  const DeviceMemory workspace(inputs.device(), trimul_plan_workspace_bytes(plan.get()));
  trimul_execute_args args = TRIMUL_EXECUTE_ARGS_INIT;
  args.x = &inputs.bound.x;
  args.mask = &inputs.bound.mask;
  args.weights = weights.get();
  args.out = &inputs.bound.x;  // without a residual
  args.workspace = workspace.data();
  args.workspace_bytes = trimul_plan_workspace_bytes(plan.get());
  EXPECT_EQ(trimul_execute(plan.get(), &args), TRIMUL_INVALID_ARGUMENT);
  EXPECT_NE(std::string(trimul_last_error()).find("out: its memory intersects that of x"), std::string::npos) << trimul_last_error();
  EXPECT_TRUE(inputs.inputs_are_unchanged(false));
}

TEST_P(Gpu, OneCallGivesTheBitsOfAPlan) {
  // A call takes the first of the list that accepts: kinds that this implementation gets to see.
  const std::string before = gpu_implementations().front();
  for (const Spec& spec : gpu_specs({.lead = {2}, .n = 20})) {
    const Case data(spec);
    if (before != implementation() && rejection_of(before, data.problem()).empty()) continue;
    ASSERT_TRUE(accepts(data));
    const DeviceBound inputs(data, device_of(implementation()));
    std::vector<std::byte> got(static_cast<std::size_t>(data.num_outputs()) * core::dtype_bytes(data.out_dtype()));
    const DeviceMemory out(inputs.device(), got.size());
    trimul_tensor out_view = inputs.bound.x;
    out_view.data = out.data();
    out_view.dtype = static_cast<std::int32_t>(data.out_dtype());
    trimul_update_args args = inputs.bound.update_args(data);
    args.out = &out_view;
    ASSERT_EQ(trimul_update(&args), TRIMUL_OK) << trimul_last_error();
    out.download(got.data(), 0, got.size());
    EXPECT_TRUE(got == run(data, implementation()).raw) << describe(spec);
  }
}

/// Of all samples together: a and b as wide as its matrix operands, y in fp32 unless those are bf16.
TEST_P(Gpu, TheWorkspaceIsThreePlanes) {
  constexpr std::int64_t kBatch = 4, kC = 128;
  struct Kind {
    DType x_dtype;
    std::int32_t precision;
    std::int64_t operand_bytes, y_bytes;
  };
  for (const Kind& kind : {Kind{DType::kBf16, TRIMUL_PRECISION_DEFAULT, 2, 2}, Kind{DType::kF16, TRIMUL_PRECISION_DEFAULT, 2, 4},
                           Kind{DType::kF32, TRIMUL_PRECISION_DEFAULT, 4, 4}, Kind{DType::kF32, TRIMUL_PRECISION_TF32, 2, 4},
                           Kind{DType::kF32, TRIMUL_PRECISION_BF16, 2, 2}, Kind{DType::kBf16, TRIMUL_PRECISION_IEEE, 4, 4}})
    for (const std::int64_t n : {64, 100, 256, 300, 1024}) {
      const Case small({.n = 1, .c_z = 128, .c = kC, .x_dtype = kind.x_dtype, .precision = kind.precision, .residual = n == 256});
      if (!accepts(small)) continue;
      trimul_problem problem = small.problem();
      problem.batch = kBatch;
      problem.tokens = n;
      const std::int64_t padded = n <= 64 ? (n + 7) / 8 * 8 : (n + 63) / 64 * 64;
      const std::int64_t planes = kBatch * kC * n * padded * (2 * kind.operand_bytes + kind.y_bytes);
      // Planes begin on lines; behind them cuda:sm90 keeps the statistics of the rows of x, and cuda:sm80 a scale for every row of the
      // mask.
      std::int64_t slack = 3 * kC * 256 * 4 + 4096;
      if (implementation() == "cuda:sm80") slack += kBatch * 4 * padded;
      if (implementation() == "cuda:sm90") slack += kBatch * 8 * n * padded;
      const auto bytes = static_cast<std::int64_t>(trimul_plan_workspace_bytes(make_plan(problem, implementation()).get()));
      EXPECT_LE(bytes, planes + slack) << describe(small.spec) << ", N = " << n;
      EXPECT_GE(bytes, kBatch * kC * n * n * (2 * kind.operand_bytes + kind.y_bytes)) << describe(small.spec) << ", N = " << n;
    }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Gpu);
INSTANTIATE_TEST_SUITE_P(Every, Gpu, ::testing::ValuesIn(gpu_implementations()), test_name);

}  // namespace
}  // namespace trimul::testing
