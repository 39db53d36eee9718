// SPDX-License-Identifier: Apache-2.0
// The matrix library's own threads: held at one inside a call, the caller's setting back afterwards, and never part of a result.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "cpu/gemm.hpp"
#include "support/runner.hpp"

#if defined(TRIMUL_HAVE_OPENMP)
#include <omp.h>
#endif

namespace trimul::testing {
namespace {

const Spec kSpec{.lead = {2}, .n = 40, .c_z = 64, .c = 64};

std::uint64_t digest(const std::vector<std::byte>& bytes) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const std::byte b : bytes) hash = (hash ^ static_cast<std::uint64_t>(b)) * 0x100000001b3U;
  return hash;
}

/// The test below runs this one in processes of its own.
TEST(OpenMpEnvironment, PrintsTheDigestOfAResult) {
  std::printf("digest: %llx\n", static_cast<unsigned long long>(digest(run(Case(kSpec), "cpu", {.threads = 2}).raw)));
}

std::string digest_under(const std::string& environment) {
  const std::string command =
      "env " + environment + " /proc/" + std::to_string(getpid()) + "/exe --gtest_filter=OpenMpEnvironment.PrintsTheDigestOfAResult 2>&1";
  std::FILE* const output = popen(command.c_str(), "r");
  if (output == nullptr) return "popen failed";
  std::string text;
  char line[256];
  while (std::fgets(line, sizeof(line), output) != nullptr)
    if (std::string(line).starts_with("digest: ")) text = line;
  pclose(output);
  return text;
}

TEST(OpenMpEnvironment, NoSettingChangesAResult) {
  const std::string expected = digest_under("OMP_NUM_THREADS=1");
  ASSERT_TRUE(expected.starts_with("digest: ")) << expected;
  for (const char* setting : {"OMP_NUM_THREADS=3", "OMP_NUM_THREADS=16", "OMP_DYNAMIC=true", "OMP_THREAD_LIMIT=1",
                              "OMP_PROC_BIND=true OMP_NUM_THREADS=2", "OMP_NUM_THREADS=4,2 OMP_MAX_ACTIVE_LEVELS=2"})
    EXPECT_EQ(digest_under(setting), expected) << setting;
}

/// Channels and tiles that take long enough for threads to overlap: a piece of scratch that two of them share shows as other bits.
TEST(Threads, DoNotShareScratch) {
  for (const std::int32_t direction : {TRIMUL_OUTGOING, TRIMUL_INCOMING}) {
    const Case data({.n = 224, .c_z = 8, .c = 12, .direction = direction});
    const auto expected = run(data, "cpu", {.threads = 1}).raw;
    for (int repeat = 0; repeat < 4; ++repeat)
      for (const int threads : {2, 3, 8}) EXPECT_TRUE(run(data, "cpu", {.threads = threads}).raw == expected) << threads << " threads";
  }
}

#if defined(TRIMUL_HAVE_OPENMP)

TEST(SingleThreadScope, HoldsOpenMpAtOneAndRestoresTheCallersSetting) {
  for (const int setting : {1, 3, 7}) {
    omp_set_num_threads(setting);
    {
      const cpu::SingleThreadScope outer;
      EXPECT_EQ(omp_get_max_threads(), 1);
      {
        const cpu::SingleThreadScope inner;
        EXPECT_EQ(omp_get_max_threads(), 1);
      }
      EXPECT_EQ(omp_get_max_threads(), 1);
      std::thread([] { EXPECT_GT(omp_get_max_threads(), 0); }).join();
    }
    EXPECT_EQ(omp_get_max_threads(), setting);
  }
}

TEST(SingleThreadScope, ACallLeavesTheCallersSettingAndResultAlone) {
  const Case data(kSpec);
  const auto expected = run(data, "cpu", {.threads = 1}).raw;
  for (const int setting : {2, 5})
    for (const int threads : {1, 3}) {
      omp_set_num_threads(setting);
      EXPECT_TRUE(run(data, "cpu", {.threads = threads}).raw == expected) << setting;
      EXPECT_EQ(omp_get_max_threads(), setting);
    }
}

TEST(SingleThreadScope, CallsFromInsideAParallelRegionAgree) {
  const Case data(kSpec);
  const auto expected = run(data, "cpu", {.threads = 1}).raw;
  const Bound bound(data);
  const PlanPtr plan = make_plan(data.problem(), "cpu", 2);
  const WeightsPtr weights = make_weights(plan.get(), bound);
  int wrong = 0;
#pragma omp parallel num_threads(3) reduction(+ : wrong)
  {
    const HostTensor out(DType::kF32, data.x.sizes());
    const GuardedBuffer workspace(trimul_plan_workspace_bytes(plan.get()));
    if (execute(plan.get(), weights.get(), bound, out, workspace) != TRIMUL_OK || out.buffer().copy() != expected) ++wrong;
  }
  EXPECT_EQ(wrong, 0);
}

#endif

}  // namespace
}  // namespace trimul::testing
