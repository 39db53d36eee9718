// SPDX-License-Identifier: Apache-2.0
// trimul.hpp: whatever can fail throws trimul::Error, and nothing else.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>

#include "support/sanitizers.hpp"
#include "trimul/trimul.hpp"

namespace trimul::testing {
namespace {

/// Status and message of what `call` throws; "OK" when it returns, the type's name for anything that is no trimul::Error.
template <typename Call>
std::string thrown_by(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(trimul_status_name(error.code())) + ": " + error.what();
  } catch (const std::exception& error) {
    return std::string("not an Error: ") + error.what();
  }
  return "OK";
}

/// A valid call over two tokens, C_z = C = 1, whose x a test replaces by one that lies about its memory.
struct Example {
  std::array<float, 4> x_values{1, 2, 3, 4};
  std::array<float, 2> two{1, 2};
  std::array<float, 1> one{1};
  Parameters parameters{.p_in_weight = Tensor(two, {2, 1}),
                        .g_in_weight = Tensor(two, {2, 1}),
                        .p_out_weight = Tensor(one, {1, 1}),
                        .g_out_weight = Tensor(one, {1, 1})};
  Tensor x{x_values, {2, 2, 1}};

  [[nodiscard]] Tensor of_sizes(std::vector<std::int64_t> sizes) const {
    return Tensor::from_memory(reinterpret_cast<const void*>(std::uintptr_t{1} << 44), DType::kF32, std::move(sizes));
  }
};

TEST(CppApi, TheReferenceIsAskedBeforeItsResultIsSized) {
  const Example example;
  const std::vector<Cell> cells{{0, 0, 0}};
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{most / 4},
                                                 {most / 4, 1, 1},
                                                 {1, 1, 1, most / 8},
                                                 {2, 2, 1 << 30},
                                                 {2, 2, most},
                                                 {2, -2, 1},
                                                 {},
                                                 {1 << 30, 1 << 30, 1}}) {
    const Tensor x = example.of_sizes(sizes);
    const std::string all = thrown_by([&] { (void)reference(x, nullptr, example.parameters); });
    EXPECT_EQ(all.substr(0, 17), "INVALID_ARGUMENT:") << all;
    const std::string some = thrown_by([&] { (void)reference_at(cells, x, nullptr, example.parameters); });
    EXPECT_EQ(some.substr(0, 17), "INVALID_ARGUMENT:") << some;
  }
}

TEST(CppApi, AResultThatDoesNotFitIsAnError) {
#if TRIMUL_UNDER_ASAN
  GTEST_SKIP() << "AddressSanitizer ends the process on such sizes unless told otherwise";
#endif
  const Example example;
  const std::string all = thrown_by([&] { (void)reference(example.of_sizes({1 << 22, 1 << 22, 1}), nullptr, example.parameters); });
  EXPECT_EQ(all, "OUT_OF_MEMORY: result: allocating 17592186044416 * 1 values failed");
  EXPECT_EQ(thrown_by([] { const Workspace workspace(std::size_t{1} << 50); }).substr(0, 14), "OUT_OF_MEMORY:");
  EXPECT_EQ(thrown_by([] { const Workspace workspace(SIZE_MAX); }).substr(0, 14), "OUT_OF_MEMORY:");
}

TEST(CppApi, TheReferenceAtChosenCellsIsTheWholeOnes) {
  const Example example;
  const std::vector<double> whole = reference(example.x, nullptr, example.parameters);
  ASSERT_EQ(whole.size(), 4U);
  const std::vector<Cell> cells{{0, 1, 0}, {0, 0, 1}};
  EXPECT_EQ(reference_at(cells, example.x, nullptr, example.parameters), (std::vector<double>{whole[2], whole[1]}));
  EXPECT_TRUE(reference_at({}, example.x, nullptr, example.parameters).empty());
  EXPECT_EQ(thrown_by([&] {
              (void)reference_at({}, example.of_sizes({2, 3, 1}), nullptr, example.parameters);
            }).substr(0, 17),
            "INVALID_ARGUMENT:");
  const std::vector<Cell> outside{{0, 2, 0}};
  EXPECT_EQ(thrown_by([&] { (void)reference_at(outside, example.x, nullptr, example.parameters); }),
            "INVALID_ARGUMENT: cells: entry 0 is (0, 2, 0), expected inside B = 1, N = 2");
}

/// Example's problem.
Problem example_problem() {
  return {.tokens = 2, .c_z = 1, .c_hidden = 1};
}

TEST(CppApi, AnAcquiredPlanIsSharedCountedAndOutlivesTheCache) {
  clear_plan_cache();
  Plan first = Plan::acquire(example_problem());
  const Plan second = Plan::acquire(example_problem());
  EXPECT_EQ(trimul_plan_explain(first.c_plan()), trimul_plan_explain(second.c_plan())) << "one text of one plan";
  const Plan other = Plan::acquire(example_problem(), {.max_threads = 1});
  EXPECT_NE(trimul_plan_explain(other.c_plan()), trimul_plan_explain(second.c_plan()));
  const PlanCacheInfo info = plan_cache_info();
  EXPECT_EQ(info.hits, 1U);
  EXPECT_EQ(info.misses, 2U);
  EXPECT_EQ(info.entries, 2U);
  EXPECT_GE(info.capacity, info.entries);
  first = Plan(example_problem());
  clear_plan_cache();
  EXPECT_EQ(plan_cache_info().entries, 0U);
  EXPECT_EQ(plan_cache_info().misses, 0U);
  EXPECT_EQ(second.explain(), first.explain());
  EXPECT_EQ(thrown_by([] { (void)Plan::acquire({.tokens = -1, .c_z = 1, .c_hidden = 1}); }).substr(0, 17), "INVALID_ARGUMENT:");
  EXPECT_EQ(plan_cache_info().entries, 0U);
}

TEST(CppApi, MaxThreadsReachesThePlan) {
  const Problem problem{.tokens = 256, .c_z = 128, .c_hidden = 128};
  EXPECT_NE(Plan(problem, {.max_threads = 1}).explain().find("threads: 1\n"), std::string::npos);
  EXPECT_NE(Plan(problem, {.knobs = {{"threads", 3}}, .max_threads = 1}).explain().find("threads: 3\n"), std::string::npos);
  EXPECT_EQ(thrown_by([&] { (void)Plan(problem, {.max_threads = -2}); }),
            "INVALID_ARGUMENT: options: max_threads is -2, expected at least 0");
}

TEST(CppApi, ExecuteWithParametersAndPackedWeightsGiveTheBitsOfPreparedWeights) {
  const Example example;
  const Plan plan = Plan::acquire(example_problem());
  std::array<float, 4> expected{}, with_parameters{}, with_packed{};
  const Workspace workspace(plan.workspace_bytes_with_parameters());
  plan.execute(example.x, nullptr, plan.prepare_weights(example.parameters), Tensor(expected, {2, 2, 1}), workspace);
  plan.execute_parameters(example.x, nullptr, example.parameters, Tensor(with_parameters, {2, 2, 1}), workspace);
  EXPECT_EQ(with_parameters, expected);
  EXPECT_EQ(plan.packed_bytes(), 0U) << "a CPU";
  const Weights packed = plan.pack_weights(example.parameters, nullptr, 0);
  plan.execute(example.x, nullptr, packed, Tensor(with_packed, {2, 2, 1}), workspace);
  EXPECT_EQ(with_packed, expected);
}

TEST(CppApi, ExecuteWithParametersRefusesWhatItsContractForbids) {
  Example example;
  const Plan plan(example_problem());
  std::array<float, 4> values{};
  const Tensor out(values, {2, 2, 1});
  const Workspace workspace(plan.workspace_bytes_with_parameters());
  const auto refused = [&](const Parameters& parameters, const Tensor& to, const Workspace& scratch) {
    return thrown_by([&] { plan.execute_parameters(example.x, nullptr, parameters, to, scratch); });
  };
  EXPECT_EQ(refused(example.parameters, out, Workspace(0)).substr(0, 36), "INVALID_ARGUMENT: workspace: size is");
  const std::array<float, 4> constant{};
  EXPECT_EQ(refused(example.parameters, Tensor(constant, {2, 2, 1}), workspace),
            "INVALID_ARGUMENT: out: made from const memory, expected memory that may be written");
  Parameters biased = example.parameters;
  biased.p_in_bias = Tensor(example.two, {2});
  EXPECT_EQ(refused(biased, out, workspace), "INVALID_ARGUMENT: p_in_bias or g_in_bias: given, but the plan was made without it");
  Parameters touching = example.parameters;
  touching.p_in_weight = Tensor(std::span<float>(values).first(2), {2, 1});
  EXPECT_EQ(refused(touching, out, workspace), "INVALID_ARGUMENT: out: its memory intersects that of p_in_weight, expected no common byte");
  EXPECT_EQ(values, (std::array<float, 4>{}));
  EXPECT_EQ(refused(example.parameters, out, workspace), "OK");
}

TEST(CppApi, ABorrowedWorkspaceIsTheCallersMemory) {
  const Example example;
  const Plan plan(example_problem());
  std::array<float, 4> expected{}, values{};
  const Workspace own(plan.workspace_bytes_with_parameters());
  plan.execute_parameters(example.x, nullptr, example.parameters, Tensor(expected, {2, 2, 1}), own);
  {
    const Workspace borrowed = Workspace::from_memory(own.data(), own.bytes());
    EXPECT_EQ(borrowed.data(), own.data());
    EXPECT_EQ(borrowed.bytes(), own.bytes());
    plan.execute_parameters(example.x, nullptr, example.parameters, Tensor(values, {2, 2, 1}), borrowed);
  }
  EXPECT_EQ(values, expected);
  plan.execute_parameters(example.x, nullptr, example.parameters, Tensor(values, {2, 2, 1}), own);  // it was not freed
  const Workspace misaligned = Workspace::from_memory(static_cast<std::byte*>(own.data()) + 16, own.bytes());
  EXPECT_EQ(thrown_by([&] {
              plan.execute_parameters(example.x, nullptr, example.parameters, Tensor(values, {2, 2, 1}), misaligned);
            }),
            "INVALID_ARGUMENT: workspace: address is not 256-byte aligned, expected a multiple of 256");
}

}  // namespace
}  // namespace trimul::testing
