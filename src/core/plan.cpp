// SPDX-License-Identifier: Apache-2.0
#include "core/plan.hpp"

#include <algorithm>

#include "core/checked.hpp"
#include "core/env.hpp"
#include "core/error.hpp"
#include "core/knobs.hpp"

namespace trimul::core {
namespace {

/// Names of `list` alone; the registry's own lookup serves the public list.
const Implementation* find_in(std::span<const Implementation> list, std::string_view name) {
  for (const Implementation& implementation : list)
    if (implementation.name == name) return &implementation;
  return &find_implementation(name);  // throws, listing what exists
}

std::string declined_text(const std::vector<Declined>& declined) {
  std::string lines;
  for (const Declined& entry : declined) lines += text("declined ", entry.name, ": ", entry.reason, "\n");
  return lines;
}

/// Memory of the parameters that are there.
std::vector<NamedRange> ranges_of(const Parameters& parameters) {
  std::vector<NamedRange> ranges;
  for (const TensorView* parameter : parameters.present()) ranges.push_back({parameter->name.c_str(), parameter->bytes()});
  return ranges;
}

}  // namespace

DeviceInfo target_device(const Problem& problem, std::string_view arch) {
  if (arch.empty()) return describe_device(problem.device);
  auto device = describe_architecture(arch);
  if (!device) fail_invalid("arch: '", arch, "' is unknown, expected one of ", architecture_names());
  if (problem.device.type != DeviceType::kCuda)
    fail_invalid("arch: '", arch, "' is a GPU architecture, but the problem's device is the CPU");
  return *device;
}

Choice choose_implementation(const Problem& problem, const PlanOptions& options, std::span<const Implementation> list) {
  // A forced name is looked up first, so that a misspelt one is reported as such on any machine.
  const Implementation* forced = options.implementation.empty() ? nullptr : find_in(list, options.implementation);
  DeviceInfo device = target_device(problem, options.arch);
  const auto candidates = forced != nullptr ? std::span(forced, 1) : list;
  Selection selection = select_implementation(candidates, problem, device);
  if (selection.chosen == nullptr)
    throw Error(StatusCode::kUnsupported,
                text("no implementation serves ", describe(problem), " on ", device.name, "\n", declined_text(selection.declined)));
  return {selection.chosen, std::move(device), std::move(selection.declined)};
}

Plan::Plan(const Problem& problem, const PlanOptions& options, std::span<const Implementation> list) : problem_(problem) {
  Choice choice = choose_implementation(problem, options, list);
  implementation_ = choice.implementation;
  device_ = std::move(choice.device);
  body_ =
      implementation_->make_plan(problem, device_, complete_knobs(*implementation_, problem, device_, options.knobs, options.max_threads));
  explanation_ = compose_explanation(choice.declined);
  if (env::log_dispatch()) env::log_line(explanation_);
}

std::array<StageCost, kNumStages> Plan::stage_costs() const {
  const std::int64_t pairs = problem_.batch * problem_.pairs();
  const auto c_z = static_cast<double>(problem_.c_z);
  const auto c = static_cast<double>(problem_.c_hidden);
  const auto stage = [&](const char* name, std::int64_t elements_per_pair, double flop_per_pair) {
    StageCost cost{.name = name,
                   .flop = static_cast<double>(pairs) * flop_per_pair,
                   .traffic_bytes = pairs * elements_per_pair * static_cast<std::int64_t>(dtype_bytes(problem_.x_dtype)),
                   .floor_us = 0};
    if (device_.bytes_per_us > 0)
      cost.floor_us = std::max(static_cast<double>(cost.traffic_bytes) / device_.bytes_per_us, cost.flop / device_.flop_per_us);
    return cost;
  };
  std::array costs{stage("input_projection", problem_.c_z + 2 * problem_.c_hidden, 8 * c_z * c),
                   stage("triangle_contraction", 3 * problem_.c_hidden, 2 * c * static_cast<double>(problem_.tokens)),
                   stage("output_projection", 2 * problem_.c_z + problem_.c_hidden, 2 * c_z * (c + c_z))};
  if (problem_.has_mask) costs.front().traffic_bytes += 2 * pairs;
  return costs;
}

std::int64_t Plan::traffic_bytes() const {
  std::int64_t bytes = 0;
  for (const StageCost& stage : stage_costs()) bytes += stage.traffic_bytes;
  return bytes;
}

double Plan::flop() const {
  double flop = 0;
  for (const StageCost& stage : stage_costs()) flop += stage.flop;
  return flop;
}

double Plan::floor_us() const {
  double sum_us = 0;
  for (const StageCost& stage : stage_costs()) sum_us += stage.floor_us;
  return sum_us;
}

Stage Plan::stage_at(std::size_t index) const {
  if (num_stages() == 0)
    fail_invalid("stage: is ", index, ", but implementation ", implementation(), " does not divide its work into stages");
  if (index >= num_stages()) fail_invalid("stage: is ", index, ", expected 0 to ", num_stages() - 1);
  return static_cast<Stage>(index);
}

std::string Plan::compose_explanation(const std::vector<Declined>& declined) const {
  std::string lines =
      text("problem: ", describe(problem_), "\n", "device: ", device_.name, "\n", "implementation: ", implementation_->name, "\n");
  lines += body_->explain();
  lines += text("workspace_bytes: ", workspace_bytes(), "\n", "traffic_bytes: ", traffic_bytes(), "\n", "flop: ", flop(), "\n");
  if (floor_us() > 0) lines += text("floor_us: ", floor_us(), "\n");
  return lines + declined_text(declined);
}

std::size_t Plan::workspace_bytes_with_parameters() const {
  if (problem_.is_empty()) return 0;
  const auto bytes = static_cast<std::int64_t>(workspace_bytes());
  return static_cast<std::size_t>(round_up(bytes, kWorkspaceAlignmentBytes)) + body_->packed_bytes();
}

Parameters Plan::check_plan_parameters(const trimul_parameters& parameters) const {
  Parameters checked = check_parameters(parameters, problem_.c_z, problem_.c_hidden, problem_.device);
  const auto check_presence = [](const char* what, bool got, bool expected) {
    if (got != expected)
      fail_invalid(what, ": ", got ? "given" : "missing", ", but the plan was made ", expected ? "with" : "without", " it");
  };
  check_presence("p_in_bias or g_in_bias", checked.has_in_bias(), problem_.has_in_bias);
  check_presence("p_out_bias or g_out_bias", checked.has_out_bias(), problem_.has_out_bias);
  return checked;
}

std::unique_ptr<Weights> Plan::prepare_weights(const trimul_parameters& parameters, void* stream) const {
  return pack_checked(check_plan_parameters(parameters), nullptr, stream);
}

std::unique_ptr<Weights> Plan::pack_weights(const trimul_parameters& parameters, void* memory, std::size_t memory_bytes,
                                            void* stream) const {
  const Parameters checked = check_plan_parameters(parameters);
  check_buffer("memory", memory, memory_bytes, packed_bytes());
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  check_disjoint({"memory", {begin, begin + packed_bytes()}}, ranges_of(checked));
  return pack_checked(checked, packed_bytes() == 0 ? nullptr : memory, stream);
}

std::unique_ptr<Weights> Plan::pack_checked(const Parameters& checked, void* memory, void* stream) const {
  auto weights = std::make_unique<Weights>();
  weights->implementation = implementation_->name;
  weights->layout = std::string(body_->weights_layout());
  weights->device = problem_.device;
  weights->c_z = problem_.c_z;
  weights->c_hidden = problem_.c_hidden;
  weights->has_in_bias = problem_.has_in_bias;
  weights->has_out_bias = problem_.has_out_bias;
  weights->packed = body_->pack_weights(checked, memory, stream);
  return weights;
}

void Plan::check_weights(const Weights& weights) const {
  const auto check = [](const char* what, const auto& got, const auto& expected) {
    if (!(got == expected)) fail_invalid("weights: ", what, " is ", got, ", expected ", expected, " (the plan's)");
  };
  check("implementation", weights.implementation, implementation_->name);
  check("layout", std::string_view(weights.layout), body_->weights_layout());
  check("C_z", weights.c_z, problem_.c_z);
  check("C", weights.c_hidden, problem_.c_hidden);
  check("presence of p_in_bias or g_in_bias", weights.has_in_bias, problem_.has_in_bias);
  check("presence of p_out_bias or g_out_bias", weights.has_out_bias, problem_.has_out_bias);
  if (!(weights.device == problem_.device)) fail_invalid("weights: are on another device than the plan");
}

ExecuteArgs Plan::check_execute(const trimul_execute_args& args, std::size_t needed_bytes, const std::vector<NamedRange>& weights) const {
  const CallTensors tensors = check_call(problem_, args.x, args.mask, args.out);
  check_buffer("workspace", args.workspace, args.workspace_bytes, needed_bytes);

  const auto workspace_begin = reinterpret_cast<std::uintptr_t>(args.workspace);
  const NamedRange workspace{"workspace", {workspace_begin, workspace_begin + needed_bytes}};
  const NamedRange result{"out", tensors.out.bytes()};
  check_disjoint(workspace, tensors.inputs);
  check_disjoint(workspace, weights);
  check_disjoint(result, {workspace});
  check_disjoint(result, weights);

  if (device_.is_hypothetical)
    throw Error(StatusCode::kUnsupported,
                text("device: the plan was made for ", device_.name, " as such, not for a device that is here; it only explains"));
  return {.x = tensors.x.data, .mask = tensors.mask, .out = tensors.out.data, .workspace = args.workspace, .stream = args.stream};
}

ExecuteArgs Plan::check_execute_weights(const trimul_execute_args& args, const Weights& weights) const {
  check_weights(weights);
  std::vector<NamedRange> packed;
  for (const ByteRange& range : weights.packed->ranges()) packed.push_back({"weights", range});
  ExecuteArgs bound = check_execute(args, workspace_bytes(), packed);
  bound.weights = weights.packed.get();
  return bound;
}

void Plan::execute(const trimul_execute_args& args, const Weights& weights) const {
  const ExecuteArgs bound = check_execute_weights(args, weights);
  if (!problem_.is_empty()) body_->execute(bound);
}

void Plan::execute_stage(std::size_t index, const trimul_execute_args& args, const Weights& weights) const {
  const Stage stage = stage_at(index);
  const ExecuteArgs bound = check_execute_weights(args, weights);
  if (!problem_.is_empty()) body_->as_staged()->execute_stage(stage, bound);
}

void Plan::execute_parameters(const trimul_execute_args& args, const trimul_parameters& parameters) const {
  const Parameters checked = check_plan_parameters(parameters);
  const std::size_t needed_bytes = workspace_bytes_with_parameters();
  ExecuteArgs bound = check_execute(args, needed_bytes, ranges_of(checked));
  if (problem_.is_empty()) return;
  void* const memory =
      body_->packed_bytes() == 0 ? nullptr : static_cast<std::byte*>(args.workspace) + (needed_bytes - body_->packed_bytes());
  const auto packed = body_->pack_weights(checked, memory, args.stream);
  bound.weights = packed.get();
  body_->execute(bound);
}

}  // namespace trimul::core
