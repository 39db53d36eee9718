// SPDX-License-Identifier: Apache-2.0
// Plans that callers share: who gets the plan that is there, who another, and what is forgotten when.
#include "core/plan_cache.hpp"

#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <functional>
#include <set>
#include <thread>

#include "support/call.hpp"
#include "support/random.hpp"
#include "support/scoped_env.hpp"

namespace trimul::testing {
namespace {

core::Problem of_tokens(std::int64_t tokens) {
  return {.tokens = tokens, .c_z = 8, .c_hidden = 6};
}

/// "hits 1, misses 2, entries 2"
std::string counts(const core::PlanCache::Info& info) {
  return core::text("hits ", info.hits, ", misses ", info.misses, ", entries ", info.entries);
}

trimul_plan_cache_info shared_info() {
  trimul_plan_cache_info info = TRIMUL_PLAN_CACHE_INFO_INIT;
  EXPECT_EQ(trimul_plan_cache_get_info(&info), TRIMUL_OK) << trimul_last_error();
  return info;
}
std::string shared_counts() {
  const trimul_plan_cache_info info = shared_info();
  return counts({.hits = info.hits, .misses = info.misses, .entries = info.entries});
}

PlanPtr acquire(const trimul_problem& problem, const trimul_plan_options* options = nullptr) {
  trimul_plan* plan = nullptr;
  EXPECT_EQ(trimul_plan_acquire(&problem, options, &plan), TRIMUL_OK) << trimul_last_error();
  return PlanPtr(plan);
}

/// The text belongs to the plan, so that equal addresses mean one plan.
const char* identity(const PlanPtr& plan) {
  return trimul_plan_explain(plan.get());
}

TEST(PlanCache, AnEqualProblemWithEqualOptionsGetsThePlanThatIsThere) {
  core::PlanCache cache;
  EXPECT_EQ(counts(cache.info()), "hits 0, misses 0, entries 0");
  EXPECT_EQ(cache.info().capacity, core::PlanCache::kCapacity);
  const auto first = cache.find_or_make(of_tokens(5), {.implementation = "cpu", .knobs = {{"threads", 2}}});
  EXPECT_EQ(counts(cache.info()), "hits 0, misses 1, entries 1");
  EXPECT_EQ(cache.find_or_make(of_tokens(5), {.implementation = "cpu", .knobs = {{"threads", 2}}}), first);
  EXPECT_EQ(counts(cache.info()), "hits 1, misses 1, entries 1");
  EXPECT_EQ(first->problem(), of_tokens(5));
  EXPECT_EQ(first->explain(), core::Plan(of_tokens(5), {.implementation = "cpu", .knobs = {{"threads", 2}}}).explain());
}

/// What a caller may ask for, and a change of one field after the other.
struct Request {
  core::Problem problem = {.batch = 2, .tokens = 5, .c_z = 8, .c_hidden = 6};
  core::PlanOptions options = {};
};
using Change = std::function<void(Request&)>;

/// Every request gets a plan of its own, and again that one.
void expect_distinct(const std::vector<Change>& changes) {
  core::PlanCache cache;
  std::vector<std::shared_ptr<const core::Plan>> plans;
  for (int round = 0; round < 2; ++round)
    for (std::size_t k = 0; k < changes.size(); ++k) {
      Request request;
      changes[k](request);
      const auto plan = cache.find_or_make(request.problem, request.options);
      EXPECT_EQ(plan->problem(), request.problem) << "change " << k;
      if (round == 0)
        plans.push_back(plan);
      else
        EXPECT_EQ(plan, plans[k]) << "change " << k;
    }
  EXPECT_EQ(std::set(plans.begin(), plans.end()).size(), changes.size());
  EXPECT_EQ(counts(cache.info()), core::text("hits ", changes.size(), ", misses ", changes.size(), ", entries ", changes.size()));
}

TEST(PlanCache, EveryFieldOfProblemAndOptionsDistinguishes) {
  expect_distinct({
      [](Request&) {},
      [](Request& r) { r.problem.batch = 3; },
      [](Request& r) { r.problem.tokens = 6; },
      [](Request& r) { r.problem.c_z = 6, r.problem.c_hidden = 8; },
      [](Request& r) { r.problem.c_z = 9; },
      [](Request& r) { r.problem.c_hidden = 8; },
      [](Request& r) { r.problem.direction = core::Direction::kIncoming; },
      [](Request& r) { r.problem.x_dtype = DType::kBf16; },
      [](Request& r) { r.problem.precision = core::Precision::kIeee; },
      [](Request& r) { r.problem.eps = 1e-6F; },
      [](Request& r) { r.problem.has_mask = false; },
      [](Request& r) { r.problem.has_in_bias = true; },
      [](Request& r) { r.problem.has_out_bias = true; },
      [](Request& r) { r.problem.residual = true; },
      [](Request& r) { r.options.implementation = "cpu"; },
      [](Request& r) { r.options.implementation = "reference"; },
      [](Request& r) {
        r.options.knobs = {{"threads", 1}};
      },
      [](Request& r) {
        r.options.knobs = {{"threads", 2}};
      },
      [](Request& r) {
        r.options.knobs = {{"threads", 1}, {"threads", 2}};
      },
      [](Request& r) { r.options.max_threads = 1; },
  });
}

/// Needs no GPU: the plans are for an architecture.
TEST(PlanCache, DevicesKnobsAndArchitecturesOfAGpuDistinguish) {
  trimul_problem problem = Case(gpu_spec({.n = 5})).problem();
  problem.device = {TRIMUL_CUDA, 0};
  const char* reason = nullptr;
  ASSERT_EQ(trimul_implementation_can_run("cuda:sm90", &problem, "sm90", &reason), TRIMUL_OK) << trimul_last_error();
  if (reason != nullptr) GTEST_SKIP() << reason;  // not in this build
  const auto on_gpu = [problem](const Change& change) -> Change {
    return [=](Request& r) {
      r.problem = core::validate_problem(problem);
      r.options.arch = "sm90";
      change(r);
    };
  };
  expect_distinct({
      on_gpu([](Request&) {}),
      on_gpu([](Request& r) { r.problem.device.index = 1; }),
      on_gpu([](Request& r) {
        r.options.knobs = {{"k1_parts", 1}};
      }),
      on_gpu([](Request& r) {
        r.options.knobs = {{"k2_tile", 1}};
      }),
      on_gpu([](Request& r) { r.options.max_threads = 1; }),
  });
  // The CPU's variable has no part in a plan for a GPU, and neither has the bound.
  core::PlanCache cache;
  const auto first = cache.find_or_make(core::validate_problem(problem), {.arch = "sm90"});
  const ScopedEnv malformed("TRIMUL_NUM_THREADS", "many");
  EXPECT_EQ(cache.find_or_make(core::validate_problem(problem), {.arch = "sm90"}), first);
  EXPECT_EQ(cache.find_or_make(core::validate_problem(problem), {.arch = "sm90", .max_threads = 1})->explain(), first->explain());
}

TEST(PlanCache, TheLeastRecentlyUsedPlanMakesRoomAndWhoHoldsItKeepsIt) {
  core::PlanCache cache(3);
  EXPECT_EQ(cache.info().capacity, 3U);
  const auto ask = [&](std::int64_t tokens) { return cache.find_or_make(of_tokens(tokens), {}); };
  const auto held = ask(1);
  const std::weak_ptr<const core::Plan> not_held = ask(2);
  const auto third = ask(3);
  EXPECT_EQ(ask(1), held);
  EXPECT_FALSE(not_held.expired());
  ask(4);
  EXPECT_EQ(counts(cache.info()), "hits 1, misses 4, entries 3");
  EXPECT_TRUE(not_held.expired()) << "2 was used least recently";
  EXPECT_EQ(ask(3), third);
  EXPECT_EQ(ask(1), held);
  ask(5), ask(6), ask(7);
  EXPECT_EQ(counts(cache.info()), "hits 3, misses 7, entries 3");
  EXPECT_EQ(held->explain(), core::Plan(of_tokens(1), {}).explain()) << "a plan that is held";
  EXPECT_NE(ask(1), held) << "it had made room";
}

TEST(PlanCache, ManyMoreProblemsThanThereIsRoomForLeaveTheLastOnes) {
  core::PlanCache cache(4);
  for (std::int64_t tokens = 1; tokens <= 50; ++tokens) cache.find_or_make(of_tokens(tokens), {});
  EXPECT_EQ(counts(cache.info()), "hits 0, misses 50, entries 4");
  for (const std::int64_t tokens : {47, 48, 49, 50}) cache.find_or_make(of_tokens(tokens), {});
  EXPECT_EQ(counts(cache.info()), "hits 4, misses 50, entries 4");
}

TEST(PlanCache, AnotherNumberOfThreadsIsAnotherPlan) {
  core::PlanCache cache;
  const auto with_threads = [&](const char* number) {
    const ScopedEnv env("TRIMUL_NUM_THREADS", number);
    return cache.find_or_make(of_tokens(64), {.implementation = "reference"});  // takes all it is given
  };
  const auto two = with_threads("2");
  const auto three = with_threads("3");
  EXPECT_NE(two, three);
  EXPECT_EQ(with_threads("2"), two);
  EXPECT_TRUE(contains(two->explain(), "threads: 2\n")) << two->explain();
  EXPECT_TRUE(contains(three->explain(), "threads: 3\n")) << three->explain();
  EXPECT_EQ(counts(cache.info()), "hits 1, misses 2, entries 2");
}

TEST(PlanCache, FailuresAreNeitherKeptNorCounted) {
  trimul_plan_cache_clear();
  const trimul_problem good = Case(kSmall).problem();
  const auto refused = [](const trimul_problem* problem, const trimul_plan_options* options = nullptr) {
    auto* plan = reinterpret_cast<trimul_plan*>(1);
    const std::string text = outcome(trimul_plan_acquire(problem, options, &plan));
    EXPECT_EQ(plan, nullptr) << text;
    return text;
  };
  for (int again = 0; again < 2; ++again) {
    trimul_problem problem = good;
    problem.direction = 9;
    EXPECT_TRUE(contains(refused(&problem), "INVALID_ARGUMENT: ")) << trimul_last_error();
    problem = good;
    problem.precision = TRIMUL_PRECISION_MXFP8;
    EXPECT_TRUE(contains(refused(&problem), "UNSUPPORTED: no implementation serves")) << trimul_last_error();
    EXPECT_EQ(refused(nullptr), "INVALID_ARGUMENT: problem: is NULL, expected a struct");
    const trimul_knob unknown{"thread", 1};
    trimul_plan_options options = TRIMUL_PLAN_OPTIONS_INIT;
    options.knobs = &unknown;
    options.num_knobs = 1;
    EXPECT_TRUE(contains(refused(&good, &options), "INVALID_ARGUMENT: knob: 'thread'")) << trimul_last_error();
    const ScopedEnv malformed("TRIMUL_NUM_THREADS", "many");
    EXPECT_TRUE(contains(refused(&good), "INVALID_ARGUMENT: TRIMUL_NUM_THREADS")) << trimul_last_error();
  }
  EXPECT_EQ(outcome(trimul_plan_acquire(&good, nullptr, nullptr)), "INVALID_ARGUMENT: plan: is NULL, expected a place for the result");
  EXPECT_EQ(shared_counts(), "hits 0, misses 0, entries 0");
  const PlanPtr plan = acquire(good);
  EXPECT_EQ(shared_counts(), "hits 0, misses 1, entries 1");
}

TEST(PlanCache, AcquiredPlansAreSharedAndOutliveTheCacheAndEachOther) {
  trimul_plan_cache_clear();
  const Case data(kSmall);
  PlanPtr first = acquire(data.problem());
  const PlanPtr second = acquire(data.problem());
  EXPECT_NE(first.get(), second.get()) << "each caller destroys a handle of its own";
  EXPECT_EQ(identity(first), identity(second));
  const PlanPtr alone = make_plan(data.problem());
  EXPECT_NE(identity(alone), identity(first)) << "trimul_plan_create shares nothing";
  EXPECT_EQ(shared_counts(), "hits 1, misses 1, entries 1");
  trimul_plan_cache_clear();
  EXPECT_EQ(shared_counts(), "hits 0, misses 0, entries 0");
  first.reset();
  const PlanPtr third = acquire(data.problem());
  EXPECT_NE(identity(third), identity(second)) << "the cache was cleared";
  EXPECT_EQ(shared_counts(), "hits 0, misses 1, entries 1");
  const DeviceBound inputs(data, kCpuDevice);
  const WeightsPtr weights = make_weights(second.get(), inputs.bound);
  EXPECT_TRUE(execute(second.get(), weights.get(), inputs, data) == run(data, "cpu").raw);
}

TEST(PlanCache, ItsInfoFollowsTheRulesOfSizedStructs) {
  trimul_plan_cache_clear();
  const PlanPtr plan = acquire(Case(kSmall).problem());
  trimul_plan_cache_info info = shared_info();
  EXPECT_EQ(info.struct_size, sizeof(info));
  EXPECT_EQ(info.misses, 1U);
  EXPECT_EQ(info.capacity, core::PlanCache::kCapacity);
  // An older caller's struct ends earlier: what lies behind it stays.
  info = TRIMUL_PLAN_CACHE_INFO_INIT;
  info.capacity = 77;
  info.struct_size = offsetof(trimul_plan_cache_info, capacity);
  ASSERT_EQ(trimul_plan_cache_get_info(&info), TRIMUL_OK) << trimul_last_error();
  EXPECT_EQ(info.struct_size, offsetof(trimul_plan_cache_info, capacity));
  EXPECT_EQ(info.entries, 1U);
  EXPECT_EQ(info.capacity, 77U);
  struct Newer {
    trimul_plan_cache_info known;
    std::size_t added[2];
  } newer{TRIMUL_PLAN_CACHE_INFO_INIT, {}};
  newer.known.struct_size = sizeof(Newer);
  ASSERT_EQ(trimul_plan_cache_get_info(&newer.known), TRIMUL_OK) << trimul_last_error();
  EXPECT_EQ(newer.known.struct_size, sizeof(Newer));
  EXPECT_EQ(newer.known.entries, 1U);
  EXPECT_EQ(newer.added[0], 0U);
  newer.added[1] = 1;
  EXPECT_EQ(outcome(trimul_plan_cache_get_info(&newer.known)),
            core::text("INVALID_ARGUMENT: info: struct_size is ", sizeof(Newer), ", this library knows ", sizeof(info),
                       " bytes and the rest is not zero"));
  for (const std::size_t size : {std::size_t{0}, std::size_t{4}, std::size_t{1} << 20}) {
    info.struct_size = size;
    EXPECT_EQ(outcome(trimul_plan_cache_get_info(&info)),
              core::text("INVALID_ARGUMENT: info: struct_size is ", size, ", expected ", sizeof(info)));
  }
  EXPECT_EQ(outcome(trimul_plan_cache_get_info(nullptr)), "INVALID_ARGUMENT: info: is NULL, expected a struct");
}

TEST(PlanCache, ThreadsThatAskAtOnceGetOnePlan) {
  constexpr std::size_t kThreads = 8;
  for (std::int64_t tokens = 1; tokens <= 20; ++tokens) {
    core::PlanCache cache;
    std::vector<std::shared_ptr<const core::Plan>> plans(kThreads);
    std::barrier start(kThreads);
    std::vector<std::thread> callers;
    for (auto& plan : plans)
      callers.emplace_back([&] {
        start.arrive_and_wait();
        plan = cache.find_or_make(of_tokens(tokens), {});
      });
    for (std::thread& caller : callers) caller.join();
    for (const auto& plan : plans) EXPECT_EQ(plan, plans.front());
    EXPECT_EQ(cache.info().entries, 1U);
    EXPECT_EQ(cache.info().hits + cache.info().misses, kThreads);
    EXPECT_GE(cache.info().misses, 1U);
  }
}

TEST(PlanCache, ManyThreadsMayAskEvictAndClear) {
  constexpr int kThreads = 8, kCalls = 400;
  for (const bool clears : {false, true}) {
    core::PlanCache cache(5);
    std::vector<int> wrong(kThreads, 0);
    std::vector<std::thread> callers;
    for (std::size_t caller = 0; caller < wrong.size(); ++caller)
      callers.emplace_back([&, caller] {
        Random random(base_seed() + caller);
        std::shared_ptr<const core::Plan> held;
        for (int call = 0; call < kCalls; ++call) {
          const core::Problem problem = of_tokens(random.integer(1, 9));
          const auto plan = cache.find_or_make(problem, {});
          if (!(plan->problem() == problem)) ++wrong[caller];
          if (held != nullptr && held->explain().empty()) ++wrong[caller];
          if (call % 7 == 0) held = plan;
          if (cache.info().entries > 5) ++wrong[caller];
          if (clears && call % 50 == 49) cache.clear();
        }
      });
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(wrong, std::vector<int>(kThreads, 0));
    if (clears) continue;
    EXPECT_EQ(cache.info().hits + cache.info().misses, std::size_t{kThreads} * kCalls);
    EXPECT_EQ(cache.info().entries, 5U);
  }
}

}  // namespace
}  // namespace trimul::testing
