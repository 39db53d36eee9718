// SPDX-License-Identifier: Apache-2.0
// What only a GPU implementation has: tiles and copies that change with N, knobs, bulk copies that want alignment, and extents beyond
// 31 bits. No instance without a GPU.
#include <cmath>
#include <cstring>

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
    for (const auto direction : kDirections) {
      const Case data(gpu_spec({.lead = {n < 100 ? 3 : 1}, .n = n, .direction = direction, .mask = MaskKind::kPadded}));
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
  for (const std::int64_t n : {40, 100, 193, 257}) {
    const Case data(gpu_spec({.n = n, .mask = MaskKind::kPadded}));
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
  for (const std::int64_t n : {1, 7, 16, 33, 64, 100, 257, 320}) {
    const Case aligned(gpu_spec({.n = n, .mask_dtype = DType::kBf16, .residual = true}));
    ASSERT_TRUE(accepts(aligned));
    const auto expected = run(aligned, implementation()).raw;
    for (const std::int64_t offset : {1, 3, 8}) {
      Spec spec = aligned.spec;
      spec.offset = offset;  // of x, the mask, the parameters and out
      const Case shifted(spec);
      EXPECT_TRUE(run(shifted, implementation()).raw == expected) << describe(spec);
      EXPECT_TRUE(run(shifted, implementation(), {.out_offset = 0}).raw == expected) << "x alone: " << describe(spec);
      EXPECT_TRUE(run(aligned, implementation(), {.out_offset = offset}).raw == expected) << "out alone: " << describe(spec);
      EXPECT_TRUE(run(shifted, implementation(), {.in_place = true}).raw == expected) << "in place: " << describe(spec);
    }
    EXPECT_TRUE(run(aligned, implementation(), {.in_place = true}).raw == expected) << "in place: " << describe(aligned.spec);
  }
}

TEST_P(Gpu, FormerContentsChangeNothingAtEveryKindOfCopy) {
  for (const std::int64_t n : {1, 7, 16, 33, 64, 65, 100, 129, 192, 257, 300, 320}) {
    const Case data(gpu_spec({.lead = {2}, .n = n, .mask = MaskKind::kPadded}));
    ASSERT_TRUE(accepts(data));
    const auto expected = run(data, implementation(), {.poison = std::byte{0}}).raw;
    for (const std::byte poison : {std::byte{0xff}, std::byte{0x7f}})
      EXPECT_TRUE(run(data, implementation(), {.poison = poison}).raw == expected) << describe(data.spec);
    EXPECT_TRUE(run(data, implementation(), {.poison = std::byte{0}}).raw == expected) << "a second run: " << describe(data.spec);
  }
}

TEST_P(Gpu, ASampleDoesNotDependOnItsBatchAtEveryKindOfCopy) {
  for (const std::int64_t n : {5, 16, 33, 64, 100, 129, 257})
    for (const auto direction : kDirections) {
      const Case data(gpu_spec({.lead = {3}, .n = n, .direction = direction}));
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
  for (const Sizes& lead : std::vector<Sizes>{{0}, {2}}) {
    const Case data(gpu_spec({.lead = lead, .n = lead[0] == 0 ? 4 : 0, .mask = MaskKind::kNone}));
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
  // A call takes the first of the list: one that its kernels alone would serve, or none of them.
  const Case data(implementation() == "cuda:sm90" ? gpu_spec({.lead = {2}, .n = 20}) : fitted({.lead = {2}, .n = 20}));
  ASSERT_TRUE(accepts(data));
  const DeviceBound inputs(data, device_of(implementation()));
  std::vector<std::byte> got(static_cast<std::size_t>(data.num_outputs()) * 2);
  const DeviceMemory out(inputs.device(), got.size());
  trimul_tensor out_view = inputs.bound.x;
  out_view.data = out.data();
  trimul_update_args args = inputs.bound.update_args(data);
  args.out = &out_view;
  ASSERT_EQ(trimul_update(&args), TRIMUL_OK) << trimul_last_error();
  out.download(got.data(), 0, got.size());
  EXPECT_TRUE(got == run(data, implementation()).raw);
}

/// More than 2^31 elements, checked at sampled cells. x repeats a block of random numbers whose length shares no factor with a row's.
void check_huge(const std::string& implementation, std::int64_t batch, std::int64_t n, std::int32_t direction) {
  constexpr std::int64_t kWidth = 128;
  constexpr std::int64_t kBlock = 33'554'393;  // elements, odd
  // The parameters of a small case; x by itself, since the support code's element-wise generator would take minutes.
  const Case small(gpu_spec({.n = 1, .direction = direction, .mask = MaskKind::kNone}));
  const std::int64_t elements = batch * n * n * kWidth;
  ASSERT_GT(elements, std::int64_t{1} << 31);
  std::vector<std::uint16_t> x(static_cast<std::size_t>(elements));
  Random random(small.spec.seed);
  for (std::int64_t k = 0; k < kBlock; ++k) {
    // 16-bit pieces of one draw would do for speed, but a sum of uniforms is near enough to normal and needs no pool.
    const float value = static_cast<float>(random.uniform(-1.5, 1.5) + random.uniform(-1.5, 1.5) + 0.2);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    x[static_cast<std::size_t>(k)] = static_cast<std::uint16_t>(bits >> 16);
  }
  for (std::int64_t at = kBlock; at < elements; at += kBlock)
    std::memcpy(&x[static_cast<std::size_t>(at)], x.data(), static_cast<std::size_t>(std::min(kBlock, elements - at)) * 2);

  const trimul_device device = device_of(implementation);
  const DeviceBound parameters(small, device);
  trimul_problem problem = small.problem();
  problem.batch = batch;
  problem.tokens = n;
  const PlanPtr plan = make_plan(problem, implementation);
  ASSERT_NE(plan, nullptr);
  const WeightsPtr weights = make_weights(plan.get(), parameters.bound);
  const std::size_t bytes = x.size() * 2;
  const std::size_t workspace_bytes = trimul_plan_workspace_bytes(plan.get());
  const DeviceMemory device_x(device, bytes), device_out(device, bytes), workspace(device, workspace_bytes);
  device_x.upload(0, x.data(), bytes);
  std::vector<std::byte> piece(std::size_t{256} << 20, kPoison);
  const auto poison = [&](const DeviceMemory& memory, std::size_t size) {
    for (std::size_t at = 0; at < size; at += piece.size()) memory.upload(at, piece.data(), std::min(piece.size(), size - at));
  };
  poison(device_out, bytes);
  poison(workspace, workspace_bytes);

  const Sizes sizes{batch, n, n, kWidth};
  const trimul_tensor host_view{x.data(), kCpuDevice, 4, TRIMUL_BF16, sizes.data(), nullptr};
  trimul_tensor x_view = host_view;
  x_view.device = device;
  trimul_tensor out_view = x_view;
  x_view.data = device_x.data();
  out_view.data = device_out.data();
  trimul_execute_args args = TRIMUL_EXECUTE_ARGS_INIT;
  args.x = &x_view;
  args.weights = weights.get();
  args.out = &out_view;
  args.workspace = workspace.data();
  args.workspace_bytes = workspace_bytes;
  ASSERT_EQ(trimul_execute(plan.get(), &args), TRIMUL_OK) << trimul_last_error();

  std::vector<std::int64_t> cells;
  for (const std::int64_t b : std::set<std::int64_t>{0, batch - 1})
    for (const std::int64_t i : {std::int64_t{0}, n / 3, n - 2, n - 1})
      for (const std::int64_t j : {std::int64_t{0}, n / 2 + 1, n - 65, n - 1}) cells.insert(cells.end(), {b, i, j});
  const std::size_t num_cells = cells.size() / 3;
  std::vector<double> got, reference(num_cells * kWidth);
  for (std::size_t k = 0; k < num_cells; ++k) {
    std::vector<std::byte> raw(kWidth * 2);
    device_out.download(raw.data(), static_cast<std::size_t>((cells[3 * k] * n + cells[3 * k + 1]) * n + cells[3 * k + 2]) * raw.size(),
                        raw.size());
    for (const double value : decode(raw, DType::kBf16)) got.push_back(value);
  }
  const Bound on_host(small);
  trimul_update_args oracle = on_host.update_args(small);
  oracle.x = &host_view;
  ASSERT_EQ(trimul_reference(&oracle, TRIMUL_ROUNDING_KERNEL, cells.data(), num_cells, reference.data()), TRIMUL_OK) << trimul_last_error();
  const double to_kernel = relative_rms(got, reference);
  std::cout << "B = " << batch << ", N = " << n << ": relative RMS to the kernel reference " << to_kernel << '\n';
  EXPECT_LE(to_kernel, 2.7e-3);
  for (const double value : got) EXPECT_TRUE(std::isfinite(value));

  // Poison left anywhere is an element that was not written.
  std::size_t unwritten = 0;
  for (std::size_t at = 0; at < bytes; at += piece.size()) {
    const std::size_t size = std::min(piece.size(), bytes - at);
    device_out.download(piece.data(), at, size);
    for (std::size_t k = 0; k < size; k += 2) unwritten += piece[k] == kPoison && piece[k + 1] == kPoison ? 1U : 0U;
  }
  EXPECT_EQ(unwritten, 0U);
}

TEST_P(Gpu, OneSampleBeyondTwoToThe31Elements) {
  accepts(Case(gpu_spec({})));
  check_huge(implementation(), 1, 4100, TRIMUL_OUTGOING);
}

TEST_P(Gpu, ABatchBeyondTwoToThe31Elements) {
  accepts(Case(gpu_spec({})));
  check_huge(implementation(), 3, 2600, TRIMUL_INCOMING);
}

/// Needs no GPU: the constraints are those of an architecture.
TEST(GpuPlan, CountsThatDoNotFitAreDeclined) {
  const auto reason_for = [](std::int64_t batch, std::int64_t n) -> std::string {
    trimul_problem problem = Case(gpu_spec({.n = 1})).problem();
    problem.device = {TRIMUL_CUDA, 0};
    problem.batch = batch;
    problem.tokens = n;
    const char* reason = nullptr;
    EXPECT_EQ(trimul_implementation_can_run("cuda:sm90", &problem, "sm90", &reason), TRIMUL_OK) << trimul_last_error();
    return reason == nullptr ? "" : reason;
  };
  if (const std::string reason = reason_for(1, 64); !reason.empty()) GTEST_SKIP() << reason;  // not in this build
  for (const auto& [batch, n] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 46'300}, {3, 2600}, {100'000, 128}, {16'777'215, 1}})
    EXPECT_EQ(reason_for(batch, n), "") << batch << ", " << n;
  EXPECT_NE(reason_for(1, 46'400).find("positions"), std::string::npos);
  EXPECT_NE(reason_for(300'000, 128).find("positions"), std::string::npos);
  EXPECT_NE(reason_for(16'777'216, 1).find("tiles"), std::string::npos);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Gpu);
INSTANTIATE_TEST_SUITE_P(Every, Gpu, ::testing::ValuesIn(gpu_implementations()), test_name);

}  // namespace
}  // namespace trimul::testing
