// SPDX-License-Identifier: Apache-2.0
#include "core/env.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include "support/call.hpp"
#include "support/child.hpp"
#include "support/scoped_env.hpp"

namespace trimul::testing {
namespace {

constexpr char kThreads[] = "TRIMUL_NUM_THREADS";
constexpr char kLog[] = "TRIMUL_LOG";

TEST(Environment, NumThreadsIsReadAtEveryCall) {
  for (const int threads : {1, 7, 4096}) {
    const ScopedEnv env(kThreads, std::to_string(threads).c_str());
    EXPECT_EQ(env::num_threads(), threads);
  }
  const ScopedEnv empty(kThreads, "");
  EXPECT_GE(env::num_threads(), 1);
}

TEST(Environment, NumThreadsDefaultsToTheProcessorsThisProcessMayUse) {
  const ScopedEnv unset(kThreads, nullptr);
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  EXPECT_EQ(env::num_threads(), CPU_COUNT(&allowed));
  const std::string narrowed = in_child([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &allowed)) {
        CPU_SET(cpu, &one);
        break;
      }
    return sched_setaffinity(0, sizeof(one), &one) != 0 ? std::string("no affinity") : std::to_string(env::num_threads());
  });
  EXPECT_EQ(narrowed, "1");
}

TEST(Environment, ABadNumThreadsIsRefusedByNameWhereverItIsRead) {
  for (const char* bad : {"0", "-1", "4097", "two", "2x", " 2", "+2", "1e3", "99999999999999999999"}) {
    const ScopedEnv env(kThreads, bad);
    const std::string message = std::string("INVALID_ARGUMENT: TRIMUL_NUM_THREADS: is '") + bad + "', expected a number from 1 to 4096";
    EXPECT_EQ(outcome_of([] { env::num_threads(); }), message);
    const trimul_problem problem = Case(kSmall).problem();
    trimul_plan* plan = nullptr;
    EXPECT_EQ(outcome(trimul_plan_create(&problem, nullptr, &plan)), message);
    EXPECT_EQ(trimul_device_description({TRIMUL_CPU, 0}), nullptr);
    EXPECT_STREQ(trimul_last_error(), message.substr(message.find("TRIMUL")).c_str());
  }
}

TEST(Environment, TheThreadsKnobOverridesTheVariable) {
  const ScopedEnv env(kThreads, "1");
  Spec spec{.n = 40, .c_z = 64, .c = 64};
  const PlanPtr plan = make_plan(Case(spec).problem(), "cpu", 3);
  EXPECT_TRUE(contains(trimul_plan_explain(plan.get()), "threads: 3\n")) << trimul_plan_explain(plan.get());
  const PlanPtr by_variable = make_plan(Case(spec).problem(), "cpu");
  EXPECT_TRUE(contains(trimul_plan_explain(by_variable.get()), "threads: 1\n"));
}

TEST(Environment, LogDispatchWritesThePlansExplanationToStderr) {
  const ScopedEnv env(kLog, "dispatch");
  ::testing::internal::CaptureStderr();
  const PlanPtr plan = make_plan(Case(kSmall).problem());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), std::string("trimul: ") + trimul_plan_explain(plan.get()));
}

TEST(Environment, NothingIsPrintedUnlessAsked) {
  for (const char* value : {static_cast<const char*>(nullptr), "", "other"}) {
    const ScopedEnv env(kLog, value);
    ::testing::internal::CaptureStderr();
    ::testing::internal::CaptureStdout();
    Call call(kSmall);
    const std::string served = call.execute();
    call.args.workspace = nullptr;
    call.execute();
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(served, "OK");
  }
}

}  // namespace
}  // namespace trimul::testing
