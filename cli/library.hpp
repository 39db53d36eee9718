// SPDX-License-Identifier: Apache-2.0
// The C ABI as the commands use it: statuses become failures, handles destroy themselves.
#pragma once

#include <memory>
#include <string>

#include "failure.hpp"
#include "trimul/trimul.h"

namespace trimul::cli {

inline ExitCode exit_code_of(trimul_status status) {
  switch (status) {
    case TRIMUL_OK: return kOk;
    case TRIMUL_INVALID_ARGUMENT: return kInvalid;
    case TRIMUL_UNSUPPORTED: return kUnsupported;
    case TRIMUL_OUT_OF_MEMORY:
    case TRIMUL_DEVICE_ERROR: return kDevice;
    case TRIMUL_INTERNAL: return kOther;
  }
  return kOther;
}

inline void check(trimul_status status) {
  if (status != TRIMUL_OK) throw Failure(exit_code_of(status), trimul_last_error());
}

/// Refuses a problem that no implementation could take: sizes whose products do not fit among others.
inline void check_problem(const trimul_problem& problem) {
  trimul_dtype out_dtype = TRIMUL_F32;
  check(trimul_problem_out_dtype(&problem, &out_dtype));
}

struct PlanDeleter {
  void operator()(trimul_plan* plan) const { trimul_plan_destroy(plan); }
};
struct WeightsDeleter {
  void operator()(trimul_weights* weights) const { trimul_weights_destroy(weights); }
};
using PlanHandle = std::unique_ptr<trimul_plan, PlanDeleter>;
using WeightsHandle = std::unique_ptr<trimul_weights, WeightsDeleter>;

inline PlanHandle create_plan(const trimul_problem& problem, const trimul_plan_options& options) {
  trimul_plan* plan = nullptr;
  check(trimul_plan_create(&problem, &options, &plan));
  return PlanHandle(plan);
}

inline WeightsHandle create_weights(const trimul_plan& plan, const trimul_parameters& parameters) {
  trimul_weights* weights = nullptr;
  check(trimul_weights_create(&plan, &parameters, nullptr, &weights));
  return WeightsHandle(weights);
}

}  // namespace trimul::cli
