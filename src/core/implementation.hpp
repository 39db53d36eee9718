// SPDX-License-Identifier: Apache-2.0
// What an implementation is: a name, a constraint set that can say why, a way to pack weights and a way to run.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/device.hpp"
#include "core/problem.hpp"
#include "core/tensor.hpp"

namespace trimul::core {

/// Why an implementation does not take a problem, as a sentence without a final stop.
struct Rejection {
  std::string reason;
};

struct Knob {
  std::string name;
  std::int64_t value;
  friend bool operator==(const Knob&, const Knob&) = default;
};

/// The whole numbers that a knob takes.
struct KnobRange {
  const char* name;
  std::int64_t least;
  std::int64_t most;
};

/// One implementation's private copy of the parameters. Derived classes hold the layout; this part is what execute checks.
class PackedWeights {
 public:
  PackedWeights() = default;
  PackedWeights(const PackedWeights&) = delete;
  PackedWeights& operator=(const PackedWeights&) = delete;
  virtual ~PackedWeights() = default;
  /// Bytes the packed copy holds.
  [[nodiscard]] virtual std::size_t bytes() const = 0;
  /// Memory that `out` and the workspace must not touch.
  [[nodiscard]] virtual std::vector<ByteRange> ranges() const = 0;
};

/// Parts of an execute, in order. Their names recur at every level of every implementation.
enum class Stage { kInputProjection, kTriangleContraction, kOutputProjection };
inline constexpr std::size_t kNumStages = 3;

/// Arguments of one execute after validation.
struct ExecuteArgs {
  const void* x = nullptr;       // [B, N, N, C_z], contiguous, problem.x_dtype
  std::optional<MaskView> mask;  // present exactly when problem.has_mask
  const PackedWeights* weights = nullptr;
  void* out = nullptr;        // [B, N, N, C_z], contiguous, problem.out_dtype(); equals x only when problem.residual
  void* workspace = nullptr;  // 256-byte aligned, at least workspace_bytes()
  void* stream = nullptr;
};

/// One implementation's part of a plan: the tiles it picked and how to run them. Immutable, so that any number of threads may
/// execute at once.
class PlanBody {
 public:
  PlanBody() = default;
  PlanBody(const PlanBody&) = delete;
  PlanBody& operator=(const PlanBody&) = delete;
  virtual ~PlanBody() = default;
  [[nodiscard]] virtual std::size_t workspace_bytes() const = 0;
  /// Lines "key: value" about tiles and rounding points, each ended by a newline.
  [[nodiscard]] virtual std::string explain() const = 0;
  /// Names the layout of PackedWeights this plan reads; weights of another layout are refused.
  [[nodiscard]] virtual std::string_view weights_layout() const = 0;
  /// `memory`: null, or packed_bytes() on the plan's device, 256-byte aligned, that outlive the result; then nothing is allocated there.
  [[nodiscard]] virtual std::unique_ptr<PackedWeights> pack_weights(const Parameters& parameters, void* memory, void* stream) const = 0;
  /// Bytes of device memory that packed weights take; 0 where they lie in the host's memory and pack_weights takes it by itself.
  [[nodiscard]] virtual std::size_t packed_bytes() const { return 0; }
  virtual void execute(const ExecuteArgs& args) const = 0;
  /// This body where its execute consists of stages that can be run one by one, else null.
  [[nodiscard]] virtual const class StagedPlanBody* as_staged() const { return nullptr; }
};

class StagedPlanBody : public PlanBody {
 public:
  [[nodiscard]] const StagedPlanBody* as_staged() const final { return this; }
  /// One stage alone, behind everything that is on the stream. All in order, on one stream, give bitwise what execute gives.
  virtual void execute_stage(Stage stage, const ExecuteArgs& args) const = 0;
};

struct Implementation {
  std::string_view name;
  /// One line for `trimul info`.
  std::string (*describe)();
  /// Nothing when it accepts, else the reason. Pure: no globals but the build, no environment.
  std::optional<Rejection> (*can_run)(const Problem& problem, const DeviceInfo& device);
  /// Called only after can_run accepted. `knobs`: a value in range for each of the knobs below, in their order.
  std::unique_ptr<PlanBody> (*make_plan)(const Problem& problem, const DeviceInfo& device, const std::vector<Knob>& knobs);
  std::span<const KnobRange> knobs = {};
  /// The values of a plan that is given none, in the order of `knobs`; null where there are no knobs.
  std::vector<std::int64_t> (*recommend)(const Problem& problem, const DeviceInfo& device) = nullptr;
};

}  // namespace trimul::core
