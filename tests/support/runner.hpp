// SPDX-License-Identifier: Apache-2.0
// Runs a case through the C ABI with poisoned, guarded memory and reports what happened.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan.hpp"
#include "support/case.hpp"

namespace trimul::testing {

struct PlanDeleter {
  void operator()(trimul_plan* plan) const { trimul_plan_destroy(plan); }
};
struct WeightsDeleter {
  void operator()(trimul_weights* weights) const { trimul_weights_destroy(weights); }
};
using PlanPtr = std::unique_ptr<trimul_plan, PlanDeleter>;
using WeightsPtr = std::unique_ptr<trimul_weights, WeightsDeleter>;

/// A plan that `implementation` serves (empty: the first that accepts), with at most `threads` threads (0: the default). The test
/// fails when there is none.
PlanPtr make_plan(const trimul_problem& problem, std::string_view implementation = {}, int threads = 0);
WeightsPtr make_weights(const trimul_plan* plan, const Bound& bound);

/// One execute into `out` with the given workspace, nothing checked.
trimul_status execute(const trimul_plan* plan, const trimul_weights* weights, const Bound& bound, const HostTensor& out,
                      const GuardedBuffer& workspace);

struct RunOptions {
  int threads = 0;
  bool in_place = false;            // out is x
  std::byte poison = kPoison;       // what out and workspace hold before the call
  std::int64_t out_offset = -1;     // elements off a 256-byte boundary; -1: the case's
  std::size_t spare_workspace = 0;  // bytes more than asked for
};

struct RunResult {
  std::vector<std::byte> raw;  // out
  std::vector<double> values;
};

/// Plan, weights, execute. Checks that the implementation is the named one, that guards survive and that inputs are unchanged.
RunResult run(const Case& data, std::string_view implementation, const RunOptions& options = {});

/// The same through a plan over a list of the test's own, for implementations that are not in the registry.
RunResult run_plan(const core::Plan& plan, const Case& data);

std::vector<double> decode(const std::vector<std::byte>& raw, DType dtype);

/// Names of the registry's implementations that serve this machine's CPU problems, for INSTANTIATE_TEST_SUITE_P.
std::vector<std::string> serving_implementations();
/// "cuda_sm90" of "cuda:sm90".
std::string test_name(const ::testing::TestParamInfo<std::string>& info);
/// Why an implementation declines the case; empty when it accepts.
std::string rejection_of(std::string_view implementation, const trimul_problem& problem);

/// Skips the running test, or the running loop's case, when the implementation declines.
#define TRIMUL_SKIP_IF_DECLINED(implementation, problem)                                                    \
  if (const std::string reason = ::trimul::testing::rejection_of(implementation, problem); !reason.empty()) \
  GTEST_SKIP() << (implementation) << ": " << reason

}  // namespace trimul::testing
