// SPDX-License-Identifier: Apache-2.0
// An execute on GPU 0 whose memory stays where it is, so that a test can repeat it, divide it into stages, capture it or change its inputs.
#pragma once

#include <string>
#include <vector>

#include "support/runner.hpp"

namespace trimul::testing {

class GpuCall {
 public:
  GpuCall(const Case& data, const std::string& implementation, const std::vector<trimul_knob>& knobs = {})
      : inputs(data, device_of(implementation)),
        plan(make_plan_with_knobs(data.problem(), implementation, knobs)),
        weights(make_weights(plan.get(), inputs.bound)),
        bytes_(static_cast<std::size_t>(data.num_outputs()) * core::dtype_bytes(data.out_dtype())),
        skew_(static_cast<std::size_t>(data.spec.offset) * core::dtype_bytes(data.out_dtype())),
        out_(inputs.device(), bytes_ + skew_),
        workspace_(inputs.device(), trimul_plan_workspace_bytes_with_parameters(plan.get())),
        out_view_(inputs.bound.x) {
    out_view_.data = out_.data() + skew_;
    out_view_.dtype = static_cast<std::int32_t>(data.out_dtype());
    args.x = &inputs.bound.x;
    args.mask = inputs.bound.mask_or_null();
    args.weights = weights.get();
    args.out = &out_view_;
    args.workspace = workspace_.data();
    args.workspace_bytes = trimul_plan_workspace_bytes(plan.get());
    poison();
  }

  void execute(void* stream) {
    args.stream = stream;
    EXPECT_EQ(trimul_execute(plan.get(), &args), TRIMUL_OK) << trimul_last_error();
  }
  /// With the inputs' parameters, or others on the device, packed in front of the work.
  void execute_parameters(void* stream, const trimul_parameters* parameters = nullptr) {
    trimul_execute_args with_parameters = args;
    with_parameters.weights = nullptr;
    with_parameters.workspace_bytes = trimul_plan_workspace_bytes_with_parameters(plan.get());
    with_parameters.stream = stream;
    EXPECT_EQ(trimul_execute_parameters(plan.get(), &with_parameters, parameters != nullptr ? parameters : &inputs.bound.parameters),
              TRIMUL_OK)
        << trimul_last_error();
  }
  void execute_stages(void* stream) {
    args.stream = stream;
    for (std::size_t stage = 0; stage < trimul_plan_num_stages(plan.get()); ++stage)
      EXPECT_EQ(trimul_execute_stage(plan.get(), stage, &args), TRIMUL_OK) << trimul_last_error();
  }
  /// Fills out and the workspace with NaN. No work of this call may be running.
  void poison() {
    const std::size_t workspace_bytes = trimul_plan_workspace_bytes_with_parameters(plan.get());
    const std::vector<std::byte> bytes(std::max(bytes_ + skew_, workspace_bytes), kPoison);
    out_.upload(0, bytes.data(), bytes_ + skew_);
    workspace_.upload(0, bytes.data(), workspace_bytes);
  }
  /// out, once everything on the stream is done.
  [[nodiscard]] std::vector<std::byte> result(void* stream) const {
    std::vector<std::byte> bytes(bytes_);
    EXPECT_EQ(trimul_memory_copy(kCpuDevice, bytes.data(), inputs.device(), args.out->data, bytes_, stream), TRIMUL_OK)
        << trimul_last_error();
    return bytes;
  }

  DeviceBound inputs;
  PlanPtr plan;
  WeightsPtr weights;
  trimul_execute_args args = TRIMUL_EXECUTE_ARGS_INIT;  // a test may set out to x

 private:
  std::size_t bytes_;
  std::size_t skew_;
  DeviceMemory out_;
  DeviceMemory workspace_;
  trimul_tensor out_view_;
};

}  // namespace trimul::testing
