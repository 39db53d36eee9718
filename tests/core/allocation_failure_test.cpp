// SPDX-License-Identifier: Apache-2.0
// Every allocation of a call fails once: each time the call reports OUT_OF_MEMORY (or does without), and the next call works. This
// executable replaces operator new for that.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "core/c_api_boundary.hpp"
#include "core/plan_cache.hpp"
#include "support/call.hpp"
#include "support/scoped_env.hpp"

namespace {

// Allocations of this thread until one fails; negative: none does.
thread_local long countdown = -1;
thread_local bool failed = false;

void* allocate(std::size_t bytes) {
  if (countdown >= 0 && countdown-- == 0) {
    failed = true;
    throw std::bad_alloc();
  }
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) {
  return allocate(bytes);
}
void* operator new[](std::size_t bytes) {
  return allocate(bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace trimul::testing {
namespace {

/// Calls `attempt` with its first, second, ... allocation failing until one run has no failure; returns the number of failures.
template <typename Attempt>
long fail_each_allocation(const Attempt& attempt) {
  for (long k = 0;; ++k) {
    failed = false;
    countdown = k;
    const trimul_status status = attempt();
    countdown = -1;
    if (!failed) {
      EXPECT_EQ(status, TRIMUL_OK) << trimul_last_error();
      return k;
    }
    // A thread that could not be started is done without.
    EXPECT_TRUE(status == TRIMUL_OUT_OF_MEMORY || status == TRIMUL_OK) << "allocation " << k << ": " << outcome(status);
    if (k > 100000) return -1;
  }
}

/// While it lives, no allocation fails.
class Uncounted {
 public:
  Uncounted() : former_(countdown) { countdown = -1; }
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;
  ~Uncounted() { countdown = former_; }

 private:
  long former_;
};

class AllocationFailure : public ::testing::TestWithParam<std::string> {};

TEST_P(AllocationFailure, OfAnUpdateIsReportedAndLeavesNothingBehind) {
  const Case data({.lead = {2}, .n = 5, .residual = true});
  const Bound bound(data);
  const HostTensor out(DType::kF32, data.x.sizes());
  const trimul_tensor out_view = out.view();
  for (const int threads : {1, 3}) {
    const trimul_knob knob{"threads", threads};
    trimul_plan_options options = TRIMUL_PLAN_OPTIONS_INIT;
    options.implementation = GetParam().c_str();
    options.knobs = &knob;
    options.num_knobs = 1;
    trimul_update_args args = bound.update_args(data);
    args.out = &out_view;
    args.options = &options;
    ASSERT_EQ(trimul_update(&args), TRIMUL_OK);  // oneDNN generates its code once, in tens of thousands of allocations
    EXPECT_GT(fail_each_allocation([&] { return trimul_update(&args); }), 20);
  }
}

TEST_P(AllocationFailure, OfPlanAndWeightsGivesNull) {
  const Case data({.n = 5});
  const Bound bound(data);
  const trimul_problem problem = data.problem();
  trimul_plan_options options = TRIMUL_PLAN_OPTIONS_INIT;
  options.implementation = GetParam().c_str();
  (void)make_plan(problem, GetParam());  // oneDNN generates its code once, in tens of thousands of allocations
  EXPECT_GT(fail_each_allocation([&] {
              trimul_plan* plan = nullptr;
              const trimul_status status = trimul_plan_create(&problem, &options, &plan);
              EXPECT_EQ(plan != nullptr, status == TRIMUL_OK);
              trimul_plan_destroy(plan);
              return status;
            }),
            3);
  const PlanPtr plan = make_plan(problem, GetParam());
  for (const bool packs : {false, true})
    EXPECT_GT(fail_each_allocation([&] {
                trimul_weights* weights = nullptr;
                const trimul_status status = packs ? trimul_weights_pack(plan.get(), &bound.parameters, nullptr, 0, nullptr, &weights)
                                                   : trimul_weights_create(plan.get(), &bound.parameters, nullptr, &weights);
                EXPECT_EQ(weights != nullptr, status == TRIMUL_OK);
                trimul_weights_destroy(weights);
                return status;
              }),
              10);
}

TEST_P(AllocationFailure, OfAnExecuteWithParametersIsReported) {
  Call call({.n = 5});
  const PlanPtr plan = make_plan(call.data.problem(), GetParam(), 1);
  const GuardedBuffer workspace(trimul_plan_workspace_bytes_with_parameters(plan.get()));
  call.args.weights = nullptr;
  call.args.workspace = workspace.data();
  call.args.workspace_bytes = workspace.size();
  ASSERT_EQ(trimul_execute_parameters(plan.get(), &call.args, &call.bound.parameters), TRIMUL_OK) << trimul_last_error();
  const auto expected = call.out.buffer().copy();
  EXPECT_GT(fail_each_allocation([&] {
              std::fill_n(call.out.buffer().data(), call.out.buffer().size(), kPoison);
              const trimul_status status = trimul_execute_parameters(plan.get(), &call.args, &call.bound.parameters);
              const Uncounted checks;
              const auto now = call.out.buffer().copy();
              if (status == TRIMUL_OK) {
                EXPECT_TRUE(now == expected);
              } else if (GetParam() != "reference") {  // the oracle takes its rows as it goes
                EXPECT_TRUE(now == std::vector<std::byte>(now.size(), kPoison)) << "a call that failed wrote to out";
              }
              return status;
            }),
            4);  // the packed parameters; checks allocate nothing
}

TEST_P(AllocationFailure, OfAnAcquireLeavesTheCacheEmptyOrWithThePlan) {
  const Case data({.n = 5});
  const trimul_problem problem = data.problem();
  trimul_plan_options options = TRIMUL_PLAN_OPTIONS_INIT;
  options.implementation = GetParam().c_str();
  (void)make_plan(problem, GetParam());  // oneDNN generates its code once, in tens of thousands of allocations
  trimul_plan_cache_info info = TRIMUL_PLAN_CACHE_INFO_INIT;
  EXPECT_GT(fail_each_allocation([&] {
              trimul_plan_cache_clear();
              trimul_plan* plan = nullptr;
              const trimul_status status = trimul_plan_acquire(&problem, &options, &plan);
              const Uncounted checks;
              const PlanPtr owner(plan);
              EXPECT_EQ(plan != nullptr, status == TRIMUL_OK);
              EXPECT_EQ(trimul_plan_cache_get_info(&info), TRIMUL_OK);
              EXPECT_EQ(info.hits, 0U);
              EXPECT_EQ(info.misses, status == TRIMUL_OK ? 1U : 0U);
              EXPECT_EQ(info.entries, status == TRIMUL_OK ? 1U : 0U);
              // The next call works, and finds what is there.
              trimul_plan* again = nullptr;
              EXPECT_EQ(trimul_plan_acquire(&problem, &options, &again), TRIMUL_OK);
              const PlanPtr second(again);
              EXPECT_EQ(status == TRIMUL_OK, plan != nullptr && trimul_plan_explain(again) == trimul_plan_explain(plan));
              return status;
            }),
            5);
}

TEST(AllocationFailureOnce, InAFullPlanCacheLosesNoPlanToOneThatFails) {
  const auto of_tokens = [](std::int64_t tokens) { return core::Problem{.tokens = tokens, .c_z = 8, .c_hidden = 6}; };
  const core::PlanOptions options{.implementation = "reference"};
  const auto full_cache = [&] {
    const Uncounted preparation;
    auto cache = std::make_unique<core::PlanCache>(2);
    for (const std::int64_t tokens : {1, 2}) (void)cache->find_or_make(of_tokens(tokens), options);
    return cache;
  };
  EXPECT_GT(fail_each_allocation([&] {
              const auto cache = full_cache();
              const trimul_status status = core::guarded([&] { (void)cache->find_or_make(of_tokens(3), options); });
              const Uncounted checks;
              const std::size_t made = status == TRIMUL_OK ? 1 : 0;
              EXPECT_EQ(cache->info().entries, 2U);
              EXPECT_EQ(cache->info().misses, 2 + made);
              (void)cache->find_or_make(of_tokens(2), options);
              (void)cache->find_or_make(of_tokens(1), options);  // the least recently used
              EXPECT_EQ(cache->info().hits, 2 - made);
              EXPECT_EQ(cache->info().entries, 2U);
              return status;
            }),
            5);
}

TEST(AllocationFailureOnce, OfTheReferenceIsReported) {
  const Case data({.n = 4});
  const Bound bound(data);
  const trimul_update_args args = bound.update_args(data);
  std::vector<double> result(static_cast<std::size_t>(data.num_outputs()));
  const std::int64_t cell[] = {0, 1, 2};
  const ScopedEnv one_thread("TRIMUL_NUM_THREADS", "1");
  EXPECT_GT(fail_each_allocation([&] { return trimul_reference(&args, TRIMUL_ROUNDING_NONE, nullptr, 0, result.data()); }), 20);
  EXPECT_GT(fail_each_allocation([&] { return trimul_reference(&args, TRIMUL_ROUNDING_KERNEL, cell, 1, result.data()); }), 20);
}

TEST(AllocationFailureOnce, OfADescriptionGivesNull) {
  const auto check = [](const auto& describe) {
    for (long k = 0; k < 100; ++k) {
      failed = false;
      countdown = k;
      const char* text = describe();
      countdown = -1;
      EXPECT_EQ(text == nullptr, failed) << k;
      if (!failed) return;
    }
    ADD_FAILURE() << "never without a failure";
  };
  check([] { return trimul_device_description({TRIMUL_CPU, 0}); });
  for (std::size_t index = 0; index < trimul_implementation_count(); ++index)
    check([index] { return trimul_implementation_description(index); });
}

INSTANTIATE_TEST_SUITE_P(Every, AllocationFailure, ::testing::ValuesIn(cpu_implementations()), test_name);

}  // namespace
}  // namespace trimul::testing
