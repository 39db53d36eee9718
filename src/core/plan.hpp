// SPDX-License-Identifier: Apache-2.0
// Plan: a validated problem, the implementation that serves it, and everything known before the tensors are.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/arguments.hpp"
#include "core/implementation.hpp"
#include "core/registry.hpp"

namespace trimul::core {

/// Packed parameters with the facts execute compares with its plan.
struct Weights {
  std::string_view implementation;
  std::string layout;
  Device device;
  std::int64_t c_z = 0;
  std::int64_t c_hidden = 0;
  bool has_in_bias = false;
  bool has_out_bias = false;
  std::unique_ptr<PackedWeights> packed;
  std::vector<NamedRange> ranges;  // memory that out and the workspace must not touch
};

/// What one stage costs at least, whoever computes it.
struct StageCost {
  const char* name;
  double flop;                 // of its matrix products
  std::int64_t traffic_bytes;  // compulsory: operands read once, results written once; the mask belongs to the input projection
  double floor_us;             // the larger of bytes / bandwidth (without the mask's) and flop / rate; 0 where no ceilings are known
};

struct PlanOptions {
  std::string implementation = {};  // empty: the first that accepts
  std::string arch = {};            // empty: the problem's device
  std::vector<Knob> knobs = {};
  std::int64_t max_threads = 0;  // of the implementation's own choice on the CPU; 0: no bound
  friend bool operator==(const PlanOptions&, const PlanOptions&) = default;
};

/// Who serves a problem, and who of those before it does not.
struct Choice {
  const Implementation* implementation;
  DeviceInfo device;
  std::vector<Declined> declined;
};
/// `list` is the policy, implementations() outside of tests. Throws UNSUPPORTED with every reason when nothing serves.
Choice choose_implementation(const Problem& problem, const PlanOptions& options, std::span<const Implementation> list = implementations());

class Plan {
 public:
  /// Throws as choose_implementation, and as complete_knobs for the options' knobs.
  Plan(const Problem& problem, const PlanOptions& options, std::span<const Implementation> list = implementations());

  [[nodiscard]] const Problem& problem() const { return problem_; }
  [[nodiscard]] std::string_view implementation() const { return implementation_->name; }
  [[nodiscard]] std::size_t workspace_bytes() const { return problem_.is_empty() ? 0 : body_->workspace_bytes(); }
  /// Workspace of execute_parameters: that of execute and, behind it, the packed parameters where they lie on the device.
  [[nodiscard]] std::size_t workspace_bytes_with_parameters() const;
  [[nodiscard]] std::int64_t traffic_bytes() const;
  [[nodiscard]] double flop() const;
  [[nodiscard]] double floor_us() const;
  [[nodiscard]] std::array<StageCost, kNumStages> stage_costs() const;
  /// Stages that execute_stage runs: kNumStages, or 0 where the implementation does not divide its work.
  [[nodiscard]] std::size_t num_stages() const { return body_->as_staged() != nullptr ? kNumStages : 0; }
  /// Throws INVALID_ARGUMENT unless `index` is below num_stages().
  [[nodiscard]] Stage stage_at(std::size_t index) const;
  [[nodiscard]] const std::string& explain() const { return explanation_; }

  [[nodiscard]] std::size_t packed_bytes() const { return body_->packed_bytes(); }
  [[nodiscard]] std::unique_ptr<Weights> prepare_weights(const trimul_parameters& parameters, void* stream) const;
  /// The same into memory of the caller's, packed_bytes() at least.
  [[nodiscard]] std::unique_ptr<Weights> pack_weights(const trimul_parameters& parameters, void* memory, std::size_t memory_bytes,
                                                      void* stream) const;
  void execute(const trimul_execute_args& args, const Weights& weights) const;
  /// Packs the parameters into the end of the workspace, then executes. Checks everything before it writes anything.
  void execute_parameters(const trimul_execute_args& args, const trimul_parameters& parameters) const;
  /// One stage alone, after the same checks. INVALID_ARGUMENT for an index that stage_at refuses.
  void execute_stage(std::size_t index, const trimul_execute_args& args, const Weights& weights) const;

 private:
  [[nodiscard]] std::string compose_explanation(const std::vector<Declined>& declined) const;
  void check_weights(const Weights& weights) const;
  [[nodiscard]] Parameters check_plan_parameters(const trimul_parameters& parameters) const;
  [[nodiscard]] std::unique_ptr<Weights> pack_checked(const Parameters& parameters, void* memory, void* stream) const;
  /// Everything that can be wrong with an execute but its weights; the arguments as the implementation takes them. `weights`: memory that
  /// neither workspace nor out may touch.
  [[nodiscard]] ExecuteArgs check_execute(const trimul_execute_args& args, std::size_t needed_bytes,
                                          std::span<const NamedRange> weights) const;
  /// The same with prepared weights, bound.
  [[nodiscard]] ExecuteArgs check_execute_weights(const trimul_execute_args& args, const Weights& weights) const;

  Problem problem_;
  DeviceInfo device_;
  const Implementation* implementation_ = nullptr;
  std::unique_ptr<PlanBody> body_;
  std::string explanation_;
};

/// The device a plan is made for: the problem's, or the named architecture.
DeviceInfo target_device(const Problem& problem, std::string_view arch);

}  // namespace trimul::core
