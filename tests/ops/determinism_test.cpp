// SPDX-License-Identifier: Apache-2.0
// Same inputs, bitwise the same result: whatever the threads, the run, the batch, the address or the memory's former contents.
#include <thread>

#include "support/operator_test.hpp"

namespace trimul::testing {
namespace {

class Determinism : public OperatorTest {};

/// Enough work that eight threads are used.
Spec large(DType dtype, std::int32_t direction) {
  return {.lead = {2}, .n = 33, .c_z = 48, .c = 65, .x_dtype = dtype, .direction = direction};
}

std::string threads_line(const trimul_plan* plan) {
  const std::string text = trimul_plan_explain(plan);
  const std::size_t at = text.find("threads: ");
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

TEST_P(Determinism, ResultsDoNotDependOnTheNumberOfThreads) {
  if (on_gpu()) GTEST_SKIP() << "threads are the CPU's";
  for (const DType dtype : kXDTypes)
    for (const auto direction : kDirections) {
      const Case data(large(dtype, direction));
      if (!accepts(data)) continue;
      EXPECT_EQ(threads_line(make_plan(data.problem(), implementation(), 8).get()), "threads: 8");
      const auto expected = run(data, implementation(), {.threads = 1}).raw;
      for (int threads = 2; threads <= 8; ++threads)
        EXPECT_TRUE(run(data, implementation(), {.threads = threads}).raw == expected) << implementation() << ", " << threads << " threads";
    }
}

TEST_P(Determinism, RunsOfOneCaseAreEqual) {
  const Case data(fitted(large(DType::kF32, TRIMUL_INCOMING)));
  ASSERT_TRUE(accepts(data));
  const auto expected = run(data, implementation()).raw;
  for (int repeat = 0; repeat < 5; ++repeat) EXPECT_TRUE(run(data, implementation()).raw == expected);
}

TEST_P(Determinism, ASampleDoesNotDependOnItsBatch) {
  for (const DType dtype : kXDTypes)
    for (const std::int64_t c_z : {5, 7, 32, 33}) {  // odd rows: every sample starts at another alignment
      const Case data(fitted({.lead = {3}, .n = 17, .c_z = c_z, .c = 19, .x_dtype = dtype}));
      if (!accepts_new(data)) continue;
      const auto whole = run(data, implementation()).raw;
      const std::size_t sample_bytes = whole.size() / 3;
      for (std::int64_t b = 0; b < 3; ++b) {
        const auto got = run(sample_of(data, b), implementation()).raw;
        EXPECT_TRUE(std::equal(got.begin(), got.end(), whole.begin() + b * static_cast<std::ptrdiff_t>(sample_bytes)))
            << implementation() << ", sample " << b << ": " << describe(data.spec);
      }
    }
}

TEST_P(Determinism, ResultsDoNotDependOnAddresses) {
  for (const DType dtype : kXDTypes)
    for (const std::int64_t c_z : {16, 33, 100}) {
      Spec spec = fitted({.n = 17, .c_z = c_z, .c = 33, .x_dtype = dtype, .residual = true});
      const Case aligned(spec);
      if (!accepts_new(aligned)) continue;
      const auto expected = run(aligned, implementation()).raw;
      for (spec.offset = 1; spec.offset <= 5; ++spec.offset)
        EXPECT_TRUE(run(Case(spec), implementation()).raw == expected) << implementation() << ": " << describe(spec);
      EXPECT_TRUE(run(aligned, implementation(), {.out_offset = 3}).raw == expected);
      EXPECT_TRUE(run(aligned, implementation(), {.in_place = true}).raw == expected) << "in place: " << describe(aligned.spec);
    }
}

TEST_P(Determinism, FormerContentsOfWorkspaceAndOutChangeNothing) {
  for (std::int64_t n : {1, 2, 3, 9, 16, 17, 23}) {
    const Case data(fitted({.n = n, .c_z = 33, .c = 35, .mask = MaskKind::kPadded}));
    ASSERT_TRUE(accepts(data));
    const auto expected = run(data, implementation(), {.poison = std::byte{0}}).raw;
    for (const std::byte poison : {std::byte{0xff}, std::byte{0x7f}, std::byte{0x3f}})
      EXPECT_TRUE(run(data, implementation(), {.poison = poison}).raw == expected) << describe(data.spec);
  }
}

TEST_P(Determinism, ManyThreadsMayExecuteOnePlan) {
  const Case data(fitted({.lead = {2}, .n = 19, .c_z = 32, .c = 32}));
  ASSERT_TRUE(accepts(data));
  const auto expected = run(data, implementation()).raw;
  const DeviceBound inputs(data, device_of(implementation()));
  const PlanPtr plan = make_plan(data.problem(), implementation(), 2);
  const WeightsPtr weights = make_weights(plan.get(), inputs.bound);
  std::vector<int> wrong(8, 0);
  std::vector<std::thread> callers;
  for (std::size_t caller = 0; caller < wrong.size(); ++caller)
    callers.emplace_back([&, caller] {
      for (int repeat = 0; repeat < 10; ++repeat)
        if (execute(plan.get(), weights.get(), inputs, data) != expected) ++wrong[caller];
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, std::vector<int>(8, 0));
}

TEST_P(Determinism, WeightsServeEveryPlanOfTheSameWidths) {
  const Case first(fitted({.n = 7}));
  ASSERT_TRUE(accepts(first));
  const DeviceBound inputs(first, device_of(implementation()));
  const PlanPtr plan = make_plan(first.problem(), implementation());
  const WeightsPtr weights = make_weights(plan.get(), inputs.bound);
  for (const std::int64_t n : {1, 12})
    for (const auto direction : kDirections) {
      const Case other(fitted({.lead = {2}, .n = n, .direction = direction, .residual = true}));  // same seed: same parameters
      const DeviceBound other_inputs(other, device_of(implementation()));
      const PlanPtr other_plan = make_plan(other.problem(), implementation());
      EXPECT_TRUE(execute(other_plan.get(), weights.get(), other_inputs, other) == run(other, implementation()).raw);
    }
}

TEST_P(Determinism, WeightsAreACopyOfTheParametersAtTheirCreation) {
  Case data(fitted({.n = 7}));
  ASSERT_TRUE(accepts(data));
  const auto expected = run(data, implementation()).raw;
  const DeviceBound inputs(data, device_of(implementation()));
  const PlanPtr plan = make_plan(data.problem(), implementation());
  const WeightsPtr weights = make_weights(plan.get(), inputs.bound);
  for (auto& parameter : data.parameters) parameter->fill([] { return 0.5; });
  inputs.upload();
  EXPECT_TRUE(execute(plan.get(), weights.get(), inputs, data) == expected);
  EXPECT_FALSE(run(data, implementation()).raw == expected) << "new parameters, old result";
}

TRIMUL_INSTANTIATE_OPERATOR_TEST(Determinism);

}  // namespace
}  // namespace trimul::testing
