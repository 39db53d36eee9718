// SPDX-License-Identifier: Apache-2.0
// A complete, valid execute whose pieces a test may bend, one at a time, to see what is refused.
#pragma once

#include "support/case.hpp"
#include "support/errors.hpp"
#include "support/runner.hpp"

namespace trimul::testing {

class Call {
 public:
  explicit Call(const Spec& spec)
      : data(spec),
        bound(data),
        plan(make_plan(data.problem())),
        weights(make_weights(plan.get(), bound)),
        out(data.out_dtype(), data.x.sizes()),
        workspace(trimul_plan_workspace_bytes(plan.get())),
        out_view(out.view()) {
    args.x = &bound.x;
    args.mask = bound.mask_or_null();
    args.weights = weights.get();
    args.out = &out_view;
    args.workspace = workspace.data();
    args.workspace_bytes = workspace.size();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// "OK" or status and message. A refused call has written nothing.
  std::string execute() {
    const auto before = out.buffer().copy();
    const std::string text = outcome(trimul_execute(plan.get(), &args));
    EXPECT_TRUE(text == "OK" || before == out.buffer().copy()) << "a refused call wrote to out: " << text;
    return text;
  }
  /// The same tensors through the one-call form.
  std::string update() {
    trimul_update_args one = bound.update_args(data);
    one.out = args.out;
    one.x = args.x;
    one.mask = args.mask;
    return outcome(trimul_update(&one));
  }

  Case data;
  Bound bound;
  PlanPtr plan;
  WeightsPtr weights;
  HostTensor out;
  GuardedBuffer workspace;
  trimul_tensor out_view;
  trimul_execute_args args = TRIMUL_EXECUTE_ARGS_INIT;
};

/// A view of sizes and strides of the test's own over the memory of another; the lists must outlive it.
inline trimul_tensor reshaped(trimul_tensor tensor, const Sizes& sizes, const Sizes* strides = nullptr) {
  tensor.ndim = static_cast<std::int32_t>(sizes.size());
  tensor.sizes = sizes.data();
  tensor.strides = strides == nullptr ? nullptr : strides->data();
  return tensor;
}

}  // namespace trimul::testing
