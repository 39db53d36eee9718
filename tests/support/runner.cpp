// SPDX-License-Identifier: Apache-2.0
#include "support/runner.hpp"

#include <algorithm>
#include <optional>

namespace trimul::testing {
namespace {

/// Binds and checks around `execute(args)`.
template <typename Execute>
RunResult run_bound(const Case& data, const DeviceBound& inputs, std::size_t workspace_bytes, const RunOptions& options,
                    const Execute& execute) {
  const Bound& bound = inputs.bound;
  const std::int64_t offset = options.out_offset >= 0 ? options.out_offset : data.spec.offset;
  HostTensor out(data.out_dtype(), data.x.sizes(), offset);
  std::fill_n(out.buffer().data(), out.buffer().size(), options.poison);
  const GuardedBuffer workspace(workspace_bytes + options.spare_workspace, 0, options.poison);
  const std::vector<std::byte> before = data.input_bytes();
  const bool on_gpu = inputs.device().type == TRIMUL_CUDA;
  std::optional<DeviceMirror> out_mirror, workspace_mirror;
  if (on_gpu) out_mirror.emplace(out.buffer(), inputs.device());
  if (on_gpu) workspace_mirror.emplace(workspace, inputs.device());

  trimul_tensor out_view = options.in_place ? bound.x : out.view();
  if (on_gpu && !options.in_place) out_view = view_in(*out_mirror, out.buffer(), out_view, inputs.device());
  trimul_execute_args args = TRIMUL_EXECUTE_ARGS_INIT;
  args.x = &bound.x;
  args.mask = bound.mask_or_null();
  args.out = &out_view;
  args.workspace = on_gpu ? workspace_mirror->data() : workspace.data();
  args.workspace_bytes = workspace.size();
  execute(args);
  if (on_gpu) {
    EXPECT_TRUE(inputs.inputs_are_unchanged(options.in_place)) << "an input or bytes around one were changed: " << describe(data.spec);
    if (options.in_place) inputs.download_x();
    out_mirror->download();
    workspace_mirror->download();
  }

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

std::vector<std::string> implementations_serving(const Spec& spec, bool on_gpu) {
  const trimul_problem problem = Case(spec).problem();
  std::vector<std::string> names;
  for (std::size_t k = 0; k < trimul_implementation_count(); ++k) {
    const std::string name = trimul_implementation_name(k);
    if (runs_on_gpu(name) == on_gpu && rejection_of(name, problem).empty()) names.push_back(name);
  }
  return names;
}

}  // namespace

trimul_device device_of(std::string_view implementation) {
  return implementation.starts_with("cuda:") ? trimul_device{TRIMUL_CUDA, 0} : kCpuDevice;
}

PlanPtr make_plan(const trimul_problem& problem, std::string_view implementation, int threads) {
  std::vector<trimul_knob> knobs;
  if (threads > 0 && !runs_on_gpu(implementation)) knobs.push_back({"threads", threads});
  return make_plan_with_knobs(problem, implementation, knobs);
}

PlanPtr make_plan_with_knobs(trimul_problem problem, std::string_view implementation, const std::vector<trimul_knob>& knobs) {
  const std::string name(implementation);
  problem.device = device_of(implementation);
  trimul_plan_options options = TRIMUL_PLAN_OPTIONS_INIT;
  if (!name.empty()) options.implementation = name.c_str();
  options.knobs = knobs.data();
  options.num_knobs = knobs.size();
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

std::vector<std::byte> execute(const trimul_plan* plan, const trimul_weights* weights, const DeviceBound& inputs, const Case& data) {
  std::vector<std::byte> result(static_cast<std::size_t>(data.num_outputs()) * core::dtype_bytes(data.out_dtype()));
  const DeviceMemory out(inputs.device(), result.size());
  const DeviceMemory workspace(inputs.device(), trimul_plan_workspace_bytes(plan));
  trimul_tensor out_view = inputs.bound.x;
  out_view.data = out.data();
  out_view.dtype = static_cast<std::int32_t>(data.out_dtype());
  trimul_execute_args args = TRIMUL_EXECUTE_ARGS_INIT;
  args.x = &inputs.bound.x;
  args.mask = inputs.bound.mask_or_null();
  args.weights = weights;
  args.out = &out_view;
  args.workspace = workspace.data();
  args.workspace_bytes = trimul_plan_workspace_bytes(plan);
  EXPECT_EQ(trimul_execute(plan, &args), TRIMUL_OK) << trimul_last_error();
  out.download(result.data(), 0, result.size());
  return result;
}

RunResult run(const Case& data, std::string_view implementation, const RunOptions& options) {
  const DeviceBound inputs(data, device_of(implementation));
  const PlanPtr plan = options.knobs.empty() ? make_plan(data.problem(), implementation, options.threads)
                                             : make_plan_with_knobs(data.problem(), implementation, options.knobs);
  if (!plan) return {};
  if (options.packs_parameters)
    return run_bound(data, inputs, trimul_plan_workspace_bytes_with_parameters(plan.get()), options, [&](const trimul_execute_args& args) {
      EXPECT_EQ(trimul_execute_parameters(plan.get(), &args, &inputs.bound.parameters), TRIMUL_OK)
          << trimul_last_error() << ": " << describe(data.spec);
    });
  const WeightsPtr weights = make_weights(plan.get(), inputs.bound);
  if (!weights) return {};
  return run_bound(data, inputs, trimul_plan_workspace_bytes(plan.get()), options, [&](trimul_execute_args& args) {
    args.weights = weights.get();
    EXPECT_EQ(trimul_execute(plan.get(), &args), TRIMUL_OK) << trimul_last_error() << ": " << describe(data.spec);
  });
}

RunResult run_plan(const core::Plan& plan, const Case& data) {
  const DeviceBound inputs(data, kCpuDevice);
  const auto weights = plan.prepare_weights(inputs.bound.parameters, nullptr);
  return run_bound(data, inputs, plan.workspace_bytes(), {}, [&](const trimul_execute_args& args) { plan.execute(args, *weights); });
}

std::vector<double> decode(const std::vector<std::byte>& raw, DType dtype) {
  std::vector<double> values(raw.size() / core::dtype_bytes(dtype));
  for (std::size_t k = 0; k < values.size(); ++k) values[k] = core::load_as_double(raw.data(), dtype, static_cast<std::int64_t>(k));
  return values;
}

Spec gpu_spec(Spec spec) {
  spec.x_dtype = DType::kBf16;
  spec.c_z = spec.c = 128;
  return spec;
}

std::vector<Spec> gpu_specs(const std::string& implementation, const Spec& spec) {
  struct Kind {
    DType x_dtype;
    std::int32_t precision;
    std::int64_t c_z, c;
  };
  static constexpr Kind kKinds[] = {
      {DType::kBf16, TRIMUL_PRECISION_DEFAULT, 128, 128}, {DType::kF16, TRIMUL_PRECISION_DEFAULT, 64, 40},
      {DType::kF32, TRIMUL_PRECISION_DEFAULT, 48, 64},    {DType::kBf16, TRIMUL_PRECISION_DEFAULT, 33, 20},
      {DType::kF32, TRIMUL_PRECISION_TF32, 36, 72},       {DType::kF16, TRIMUL_PRECISION_BF16, 100, 17},
      {DType::kF32, TRIMUL_PRECISION_IEEE, 17, 36},       {DType::kBf16, TRIMUL_PRECISION_DEFAULT, 256, 256},
  };
  std::vector<Spec> specs;
  for (const Kind& kind : kKinds) {
    Spec served = spec;
    served.x_dtype = kind.x_dtype;
    served.precision = kind.precision;
    served.c_z = kind.c_z;
    served.c = kind.c;
    Spec single = served;  // cheap to make: what is served does not depend on the number of pairs
    single.lead = {};
    single.n = 1;
    if (rejection_of(implementation, Case(single).problem()).empty()) specs.push_back(served);
  }
  return specs;
}

std::vector<std::string> cpu_implementations() {
  static const std::vector<std::string> names = implementations_serving(Spec{}, false);  // asked again by every suite
  return names;
}

std::vector<std::string> gpu_implementations() {
  static const std::vector<std::string> names = implementations_serving(gpu_spec({}), true);
  return names;
}

std::vector<std::string> serving_implementations() {
  std::vector<std::string> names = cpu_implementations();
  for (std::string& name : gpu_implementations()) names.push_back(std::move(name));
  return names;
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
}

std::string rejection_of(std::string_view implementation, const trimul_problem& problem) {
  const char* reason = nullptr;
  trimul_problem there = problem;
  there.device = device_of(implementation);
  if (trimul_implementation_can_run(std::string(implementation).c_str(), &there, nullptr, &reason) != TRIMUL_OK) return trimul_last_error();
  return reason == nullptr ? "" : reason;
}

}  // namespace trimul::testing
