// SPDX-License-Identifier: Apache-2.0
#include "cpu/implementation.hpp"

#include "core/error.hpp"
#include "core/knobs.hpp"
#include "cpu/gemm.hpp"
#include "cpu/packed_weights.hpp"
#include "cpu/row_kernels.hpp"
#include "cpu/stages.hpp"

namespace trimul::cpu {
namespace {

class CpuPlan final : public core::PlanBody {
 public:
  CpuPlan(const core::Problem& problem, int num_threads) : problem_(problem), layout_(problem, num_threads) {}

  [[nodiscard]] std::size_t workspace_bytes() const override { return layout_.bytes(); }

  [[nodiscard]] std::string explain() const override {
    return core::text(
        "arithmetic: fp32",
        problem_.precision == core::Precision::kDefault ? "" : core::text(" (asked for ", core::precision_name(problem_.precision), ")"),
        ", the output rounded once to ", core::dtype_name(problem_.out_dtype()), "\ninstruction_set: ", row_kernels().isa,
        "\nmatrix_products: ", gemm_library(), "\nthreads: ", layout_.num_threads, "\ntile_pairs: ", kTilePairs, "\n");
  }

  [[nodiscard]] std::string_view weights_layout() const override { return "fp32"; }

  [[nodiscard]] std::unique_ptr<core::PackedWeights> pack_weights(const core::Parameters& parameters, void*, void*) const override {
    return std::make_unique<CpuPackedWeights>(parameters, problem_.c_z, problem_.c_hidden);
  }

  void execute(const core::ExecuteArgs& args) const override {
    const auto& weights = static_cast<const CpuPackedWeights&>(*args.weights);
    for (std::int64_t sample = 0; sample < problem_.batch; ++sample) {
      const Stages stages(problem_, layout_, weights, args, sample);
      stages.input_projection();
      stages.triangle_contraction();
      stages.output_projection();
    }
  }

 private:
  core::Problem problem_;
  WorkspaceLayout layout_;
};

std::optional<core::Rejection> can_run(const core::Problem& problem, const core::DeviceInfo& device) {
  if (device.device.type != core::DeviceType::kCpu) return core::Rejection{"runs on the CPU, the problem is on " + device.name};
  if (problem.precision == core::Precision::kMxfp8) return core::Rejection{"precision mxfp8 is not served by any implementation yet"};
  if (problem.x_dtype == core::DType::kF64 && problem.precision != core::Precision::kBf16)
    return core::Rejection{"computes in fp32, x is fp64"};
  if (problem.x_dtype == core::DType::kF64) return core::Rejection{"does not read fp64 x"};
  return std::nullopt;
}

std::unique_ptr<core::PlanBody> make_plan(const core::Problem& problem, const core::DeviceInfo&, const std::vector<core::Knob>& knobs) {
  auto plan = std::make_unique<CpuPlan>(problem, static_cast<int>(knobs.front().value));
  prepare_gemm();
  return plan;
}

}  // namespace

core::Implementation implementation() {
  return {
      .name = "cpu",
      .describe = [] { return core::text("fp32 arithmetic, ", row_kernels().isa, " row kernels, matrix products by ", gemm_library()); },
      .can_run = can_run,
      .make_plan = make_plan,
      .knobs = core::kThreadsKnob,
      .recommend = core::recommend_threads};
}

}  // namespace trimul::cpu
