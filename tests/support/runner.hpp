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
#include "support/device_mirror.hpp"

namespace trimul::testing {

struct PlanDeleter {
  void operator()(trimul_plan* plan) const { trimul_plan_destroy(plan); }
};
struct WeightsDeleter {
  void operator()(trimul_weights* weights) const { trimul_weights_destroy(weights); }
};
using PlanPtr = std::unique_ptr<trimul_plan, PlanDeleter>;
using WeightsPtr = std::unique_ptr<trimul_weights, WeightsDeleter>;

/// Where an implementation's problems live: GPU 0 for "cuda:...", else the CPU.
trimul_device device_of(std::string_view implementation);
inline bool runs_on_gpu(std::string_view implementation) {
  return device_of(implementation).type == TRIMUL_CUDA;
}

/// A plan on the implementation's device that it serves (empty: the first that accepts), with at most `threads` threads (0: the
/// default). The test fails when there is none.
PlanPtr make_plan(const trimul_problem& problem, std::string_view implementation = {}, int threads = 0);
PlanPtr make_plan_with_knobs(trimul_problem problem, std::string_view implementation, const std::vector<trimul_knob>& knobs);
WeightsPtr make_weights(const trimul_plan* plan, const Bound& bound);

/// One execute into new memory on the inputs' device, nothing checked but its status; the bytes of out.
std::vector<std::byte> execute(const trimul_plan* plan, const trimul_weights* weights, const DeviceBound& inputs, const Case& data);

struct RunOptions {
  int threads = 0;
  bool in_place = false;            // out is x
  std::byte poison = kPoison;       // what out and workspace hold before the call
  std::int64_t out_offset = -1;     // elements off a 256-byte boundary; -1: the case's
  std::size_t spare_workspace = 0;  // bytes more than asked for
  std::vector<trimul_knob> knobs = {};
  bool packs_parameters = false;  // trimul_execute_parameters in place of weights that were made before
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

/// The case as every GPU implementation can serve it: bf16 x and widths of 128 in place of its own.
Spec gpu_spec(Spec spec);

/// The case at every kind of problem that the GPU implementation serves: dtype, precision and widths in place of its own, one kind for each
/// arithmetic and with rows of whole and of broken vectors among them. gpu_spec's is the first.
std::vector<Spec> gpu_specs(const std::string& implementation, const Spec& spec);

/// Names of the registry's implementations that serve problems of this machine's CPU, for INSTANTIATE_TEST_SUITE_P.
std::vector<std::string> cpu_implementations();
/// The same with those that serve problems of its GPU 0.
std::vector<std::string> serving_implementations();
/// Those of its GPU 0 alone.
std::vector<std::string> gpu_implementations();
/// "cuda_sm90" of "cuda:sm90".
std::string test_name(const ::testing::TestParamInfo<std::string>& info);
/// Why an implementation declines the case on its own device; empty when it accepts.
std::string rejection_of(std::string_view implementation, const trimul_problem& problem);

/// Skips the running test, or the running loop's case, when the implementation declines.
#define TRIMUL_SKIP_IF_DECLINED(implementation, problem)                                                    \
  if (const std::string reason = ::trimul::testing::rejection_of(implementation, problem); !reason.empty()) \
  GTEST_SKIP() << (implementation) << ": " << reason

}  // namespace trimul::testing
