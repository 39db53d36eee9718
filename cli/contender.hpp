// SPDX-License-Identifier: Apache-2.0
// One implementation, planned and bound to a problem's inputs, with poisoned and guarded output and workspace.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bound_call.hpp"
#include "guarded_buffer.hpp"
#include "library.hpp"
#include "oracle.hpp"
#include "problem_set.hpp"

namespace trimul::cli {

class Contender {
 public:
  /// Throws Failure (kUnsupported) when the implementation declines. `inputs` must outlive this object.
  Contender(const ProblemLine& line, const Inputs& inputs, const std::string& implementation, const std::vector<trimul_device>& devices);

  /// Executes `launches` times; returns the mean time of one in microseconds.
  double execute(int launches = 1) const { return call_->execute(launches); }
  /// One execute, or one stage of it, on a stream of the device.
  void launch(void* stream) const { call_->launch(stream); }
  void launch_stage(std::size_t stage, void* stream) const { call_->launch_stage(stage, stream); }

  [[nodiscard]] const std::string& implementation() const { return implementation_; }
  [[nodiscard]] const trimul_plan* plan() const { return choice_.plan.get(); }
  [[nodiscard]] const trimul_device& device() const { return choice_.problem.device; }
  /// The result where the host can read it.
  [[nodiscard]] const void* out() const { return out_->on_host(); }
  [[nodiscard]] trimul_dtype out_dtype() const { return out_dtype_; }
  [[nodiscard]] bool guard_bands_are_intact() const { return out_->bands_are_intact() && workspace_->bands_are_intact(); }

 private:
  std::string implementation_;
  trimul_dtype out_dtype_ = TRIMUL_F32;
  PlanChoice choice_;
  std::unique_ptr<GuardedBuffer> out_;
  std::unique_ptr<GuardedBuffer> workspace_;
  std::unique_ptr<BoundCall> call_;  // last: it points at the others
};

struct CheckResult {
  std::string implementation;
  enum class Status { kPassed, kFailed, kSkipped } status = Status::kPassed;
  std::string reason;  // of a failure or a skip
  double error = 0.0;  // relative RMS to the reference without rounding points
  double bound = 0.0;
  std::optional<double> kernel_error;  // with those of the GPU kernels, where a bound is set
  std::optional<double> kernel_bound;
  bool is_sampled = false;
};

/// Runs the contender and holds its result against the oracle. What the implementation does wrong is a failed check; a device or memory
/// that fails says nothing about it and stays a Failure (kDevice).
CheckResult check_contender(const Contender& contender, const ProblemLine& line, Oracle& oracle);

/// Why an implementation is left out of a sweep over all: it declines the problem on every device, or it is an fp64 loop and the
/// problem would take minutes. Nothing when it is to run.
std::optional<std::string> reason_to_skip(const std::string& implementation, const ProblemLine& line,
                                          const std::vector<trimul_device>& devices);
/// The first part alone: the last device's reason, the first one's for an implementation for GPUs.
std::optional<std::string> reason_to_decline(const std::string& implementation, const ProblemLine& line,
                                             const std::vector<trimul_device>& devices);

/// Names to try: all when `requested` is empty or "all", else the one (checked to exist).
std::vector<std::string> requested_implementations(const std::string& requested);

}  // namespace trimul::cli
