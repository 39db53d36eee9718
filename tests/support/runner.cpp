// SPDX-License-Identifier: Apache-2.0
#include "support/runner.hpp"

#include <algorithm>

namespace trimul::testing {
namespace {

/// Binds and checks around `execute(args)`.
template <typename Execute>
RunResult run_bound(const Case& data, const Bound& bound, std::size_t workspace_bytes, const RunOptions& options, const Execute& execute) {
  const std::int64_t offset = options.out_offset >= 0 ? options.out_offset : data.spec.offset;
  HostTensor out(data.out_dtype(), data.x.sizes(), offset);
  std::fill_n(out.buffer().data(), out.buffer().size(), options.poison);
  const GuardedBuffer workspace(workspace_bytes + options.spare_workspace, 0, options.poison);
  const std::vector<std::byte> before = data.input_bytes();

  trimul_tensor out_view = options.in_place ? bound.x : out.view();
  trimul_execute_args args = TRIMUL_EXECUTE_ARGS_INIT;
  args.x = &bound.x;
  args.mask = bound.mask_or_null();
  args.out = &out_view;
  args.workspace = workspace.data();
  args.workspace_bytes = workspace.size();
  execute(args);

  EXPECT_TRUE(out.buffer().guards_are_intact()) << "bytes around out were written: " << describe(data.spec);
  EXPECT_TRUE(workspace.guards_are_intact()) << "bytes around the workspace were written: " << describe(data.spec);
  EXPECT_TRUE(data.guards_are_intact()) << "bytes around an input were written: " << describe(data.spec);
  std::byte* const spare = workspace.data() + workspace_bytes;
  EXPECT_TRUE(std::all_of(spare, workspace.data() + workspace.size(), [&](std::byte b) { return b == options.poison; }))
      << "the workspace was used beyond what the plan asks for: " << describe(data.spec);
  RunResult result;
  result.raw = options.in_place ? data.x.buffer().copy() : out.buffer().copy();
  EXPECT_TRUE(options.in_place || before == data.input_bytes()) << "an input was changed: " << describe(data.spec);
  result.values = decode(result.raw, data.out_dtype());
  return result;
}

}  // namespace

PlanPtr make_plan(const trimul_problem& problem, std::string_view implementation, int threads) {
  const std::string name(implementation);
  const trimul_knob knob{"threads", threads};
  trimul_plan_options options = TRIMUL_PLAN_OPTIONS_INIT;
  if (!name.empty()) options.implementation = name.c_str();
  if (threads > 0) {
    options.knobs = &knob;
    options.num_knobs = 1;
  }
  trimul_plan* plan = nullptr;
  EXPECT_EQ(trimul_plan_create(&problem, &options, &plan), TRIMUL_OK) << trimul_last_error();
  EXPECT_TRUE(name.empty() || trimul_plan_implementation(plan) == name) << trimul_plan_implementation(plan) << " runs instead of " << name;
  return PlanPtr(plan);
}

WeightsPtr make_weights(const trimul_plan* plan, const Bound& bound) {
  trimul_weights* weights = nullptr;
  EXPECT_EQ(trimul_weights_create(plan, &bound.parameters, nullptr, &weights), TRIMUL_OK) << trimul_last_error();
  return WeightsPtr(weights);
}

trimul_status execute(const trimul_plan* plan, const trimul_weights* weights, const Bound& bound, const HostTensor& out,
                      const GuardedBuffer& workspace) {
  const trimul_tensor out_view = out.view();
  trimul_execute_args args = TRIMUL_EXECUTE_ARGS_INIT;
  args.x = &bound.x;
  args.mask = bound.mask_or_null();
  args.weights = weights;
  args.out = &out_view;
  args.workspace = workspace.data();
  args.workspace_bytes = workspace.size();
  return trimul_execute(plan, &args);
}

RunResult run(const Case& data, std::string_view implementation, const RunOptions& options) {
  const Bound bound(data);
  const PlanPtr plan = make_plan(data.problem(), implementation, options.threads);
  if (!plan) return {};
  const WeightsPtr weights = make_weights(plan.get(), bound);
  if (!weights) return {};
  return run_bound(data, bound, trimul_plan_workspace_bytes(plan.get()), options, [&](trimul_execute_args& args) {
    args.weights = weights.get();
    EXPECT_EQ(trimul_execute(plan.get(), &args), TRIMUL_OK) << trimul_last_error() << ": " << describe(data.spec);
  });
}

RunResult run_plan(const core::Plan& plan, const Case& data) {
  const Bound bound(data);
  const auto weights = plan.prepare_weights(bound.parameters, nullptr);
  return run_bound(data, bound, plan.workspace_bytes(), {}, [&](const trimul_execute_args& args) { plan.execute(args, *weights); });
}

std::vector<double> decode(const std::vector<std::byte>& raw, DType dtype) {
  std::vector<double> values(raw.size() / core::dtype_bytes(dtype));
  for (std::size_t k = 0; k < values.size(); ++k) values[k] = core::load_as_double(raw.data(), dtype, static_cast<std::int64_t>(k));
  return values;
}

std::vector<std::string> serving_implementations() {
  const trimul_problem problem = Case(Spec{}).problem();
  std::vector<std::string> names;
  for (std::size_t k = 0; k < trimul_implementation_count(); ++k)
    if (rejection_of(trimul_implementation_name(k), problem).empty()) names.emplace_back(trimul_implementation_name(k));
  return names;
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
}

std::string rejection_of(std::string_view implementation, const trimul_problem& problem) {
  const char* reason = nullptr;
  if (trimul_implementation_can_run(std::string(implementation).c_str(), &problem, nullptr, &reason) != TRIMUL_OK)
    return trimul_last_error();
  return reason == nullptr ? "" : reason;
}

}  // namespace trimul::testing
