// SPDX-License-Identifier: Apache-2.0
// A plan with everything that its execution needs, on the plan's device.
#pragma once

#include <vector>

#include "inputs.hpp"
#include "library.hpp"
#include "plan_choice.hpp"

namespace trimul::cli {

/// Where the result and the scratch go, on the device of the problem.
struct CallMemory {
  void* out;
  trimul_dtype out_dtype;
  void* workspace;
};

class BoundCall {
 public:
  /// Copies the inputs to the device unless that is the host. `choice` and `inputs` must outlive this object.
  BoundCall(const PlanChoice& choice, const Inputs& inputs, const CallMemory& memory);

  /// Executes `launches` times and waits for the device. Returns the mean time of one in microseconds.
  double execute(int launches = 1) const;
  /// Puts one execute, or one stage of it, on a stream of the device and does not wait.
  void launch(void* stream) const;
  void launch_stage(std::size_t stage, void* stream) const;

 private:
  /// Calls `function(args)`; the struct borrows from this object.
  template <typename Function>
  void with_args(void* stream, const Function& function) const;

  const PlanChoice& choice_;
  InputViews views_;
  std::vector<std::int64_t> out_shape_;
  WeightsHandle weights_;
  CallMemory memory_;
};

}  // namespace trimul::cli
