// SPDX-License-Identifier: Apache-2.0
#include "bound_call.hpp"

#include <chrono>

#include "device_memory.hpp"

namespace trimul::cli {

BoundCall::BoundCall(const PlanChoice& choice, const Inputs& inputs, const CallMemory& memory)
    : choice_(choice),
      views_(inputs, choice.problem.device),
      out_shape_(inputs.find("x")->second.shape),
      weights_(create_weights(*choice.plan, views_.parameters())),
      memory_(memory) {}

template <typename Function>
void BoundCall::with_args(void* stream, const Function& function) const {
  const trimul_tensor out{memory_.out,       choice_.problem.device, static_cast<std::int32_t>(out_shape_.size()),
                          memory_.out_dtype, out_shape_.data(),      nullptr};
  trimul_execute_args args = TRIMUL_EXECUTE_ARGS_INIT;
  args.x = &views_.x();
  args.mask = views_.mask();
  args.weights = weights_.get();
  args.out = &out;
  args.workspace = memory_.workspace;
  args.workspace_bytes = trimul_plan_workspace_bytes(choice_.plan.get());
  args.stream = stream;
  function(args);
}

double BoundCall::execute(int launches) const {
  const auto start = std::chrono::steady_clock::now();
  with_args(nullptr, [&](const trimul_execute_args& args) {
    for (int launch = 0; launch < launches; ++launch) check(trimul_execute(choice_.plan.get(), &args));
  });
  if (!is_host(choice_.problem.device)) wait_for(choice_.problem.device);
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / launches;
}

void BoundCall::launch(void* stream) const {
  with_args(stream, [&](const trimul_execute_args& args) { check(trimul_execute(choice_.plan.get(), &args)); });
}

void BoundCall::launch_stage(std::size_t stage, void* stream) const {
  with_args(stream, [&](const trimul_execute_args& args) { check(trimul_execute_stage(choice_.plan.get(), stage, &args)); });
}

}  // namespace trimul::cli
