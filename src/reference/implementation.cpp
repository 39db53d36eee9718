// SPDX-License-Identifier: Apache-2.0
#include "reference/implementation.hpp"

#include "core/error.hpp"
#include "core/knobs.hpp"
#include "core/parallel.hpp"
#include "reference/reference.hpp"

namespace trimul::reference {
namespace {

class ReferencePackedWeights final : public core::PackedWeights {
 public:
  explicit ReferencePackedWeights(ReferenceWeights values) : values_(std::move(values)) {}
  [[nodiscard]] const ReferenceWeights& values() const { return values_; }
  [[nodiscard]] std::size_t bytes() const override {
    std::size_t total = 0;
    for (const auto* vector : vectors()) total += vector->size() * sizeof(double);
    return total;
  }
  [[nodiscard]] std::vector<core::ByteRange> ranges() const override {
    std::vector<core::ByteRange> list;
    for (const auto* vector : vectors()) {
      const auto begin = reinterpret_cast<std::uintptr_t>(vector->data());
      list.push_back({begin, begin + vector->size() * sizeof(double)});
    }
    return list;
  }

 private:
  [[nodiscard]] std::vector<const std::vector<double>*> vectors() const {
    return {&values_.norm_in_weight, &values_.norm_in_bias, &values_.p_in_weight,     &values_.g_in_weight,
            &values_.p_in_bias,      &values_.g_in_bias,    &values_.norm_out_weight, &values_.norm_out_bias,
            &values_.p_out_weight,   &values_.g_out_weight, &values_.p_out_bias,      &values_.g_out_bias};
  }
  ReferenceWeights values_;
};

class ReferencePlan final : public core::PlanBody {
 public:
  ReferencePlan(const core::Problem& problem, int num_threads) : problem_(problem), num_threads_(num_threads) {}

  [[nodiscard]] std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(Reference::scratch_doubles(problem_)) * sizeof(double);
  }
  [[nodiscard]] std::string explain() const override {
    return core::text("arithmetic: fp64, the output rounded once\nthreads: ", num_threads_, "\n");
  }
  [[nodiscard]] std::string_view weights_layout() const override { return "fp64"; }
  [[nodiscard]] std::unique_ptr<core::PackedWeights> pack_weights(const core::Parameters& parameters, void*, void*) const override {
    return std::make_unique<ReferencePackedWeights>(ReferenceWeights(parameters, problem_.c_z, problem_.c_hidden));
  }
  void execute(const core::ExecuteArgs& args) const override {
    const auto& weights = static_cast<const ReferencePackedWeights&>(*args.weights).values();
    const Reference oracle(problem_, args.x, args.mask, weights, Rounding::kNone);
    const std::span scratch(static_cast<double*>(args.workspace), static_cast<std::size_t>(Reference::scratch_doubles(problem_)));
    oracle.all(num_threads_, scratch, [&](const Cell& cell, const double* values) {
      const std::int64_t first = ((cell.b * problem_.tokens + cell.i) * problem_.tokens + cell.j) * problem_.c_z;
      for (std::int64_t k = 0; k < problem_.c_z; ++k) core::store_from_double(args.out, problem_.out_dtype(), first + k, values[k]);
    });
  }

 private:
  core::Problem problem_;
  int num_threads_;
};

std::optional<core::Rejection> can_run(const core::Problem& problem, const core::DeviceInfo& device) {
  if (device.device.type != core::DeviceType::kCpu) return core::Rejection{"runs on the CPU, the problem is on " + device.name};
  if (problem.precision == core::Precision::kMxfp8) return core::Rejection{"precision mxfp8 is not served by any implementation yet"};
  return std::nullopt;
}

std::unique_ptr<core::PlanBody> make_plan(const core::Problem& problem, const core::DeviceInfo&, const std::vector<core::Knob>& knobs) {
  return std::make_unique<ReferencePlan>(problem, static_cast<int>(knobs.front().value));
}

}  // namespace

core::Implementation implementation() {
  return {.name = "reference",
          .describe = [] { return std::string("plain fp64 loops on the CPU: the oracle, and the path of fp64 x"); },
          .can_run = can_run,
          .make_plan = make_plan,
          .knobs = core::kThreadsKnob,
          .recommend = core::recommend_threads};
}

}  // namespace trimul::reference
