// SPDX-License-Identifier: Apache-2.0
// The C ABI over the core: unpacks structs, catches exceptions, keeps this thread's message. Contracts stand in trimul.h.
#include <algorithm>

#include "core/arguments.hpp"
#include "core/build_info.hpp"
#include "core/c_api_boundary.hpp"
#include "core/checked.hpp"
#include "core/env.hpp"
#include "core/error.hpp"
#include "core/knobs.hpp"
#include "core/memory.hpp"
#include "core/plan.hpp"
#include "core/plan_cache.hpp"
#include "reference/reference.hpp"
#include "trimul/trimul.h"

namespace core = trimul::core;

struct trimul_plan {
  std::shared_ptr<const core::Plan> plan;
};

struct trimul_weights {
  std::unique_ptr<core::Weights> weights;
};

namespace {

using core::guarded;
using core::read_struct;
using core::write_struct;

thread_local std::string returned_text;  // what a `const char*` result points at

const core::Plan& plan_of(const trimul_plan* plan) {
  if (plan == nullptr) core::fail_invalid("plan: is NULL");
  return *plan->plan;
}

const core::Weights& weights_of(const trimul_execute_args& args) {
  if (args.weights == nullptr) core::fail_invalid("weights: is NULL, expected weights of trimul_weights_create");
  return *args.weights->weights;
}

core::PlanOptions read_options(const trimul_plan_options* given) {
  core::PlanOptions options;
  if (given == nullptr) return options;
  const auto in = read_struct("options", given);
  if (in.implementation != nullptr) options.implementation = in.implementation;
  if (in.arch != nullptr) options.arch = in.arch;
  if (in.max_threads < 0) core::fail_invalid("options: max_threads is ", in.max_threads, ", expected at least 0");
  options.max_threads = in.max_threads;
  if (in.num_knobs > 0 && in.knobs == nullptr) core::fail_invalid("options: knobs is NULL, expected ", in.num_knobs, " knobs");
  for (std::size_t k = 0; k < in.num_knobs; ++k) {
    if (in.knobs[k].name == nullptr) core::fail_invalid("options: the name of knob ", k, " is NULL");
    options.knobs.push_back({in.knobs[k].name, in.knobs[k].value});
  }
  return options;
}

/// The problem that the tensors of a one-call update describe.
trimul_problem problem_of(const trimul_update_args& args, const trimul_parameters& parameters) {
  const core::TensorView x = core::view_tensor("x", args.x);
  if (x.ndim() < 3)
    core::fail_invalid("x: number of dimensions is ", x.ndim(), " (", x.shape_text(), "), expected at least 3: [..., N, N, C_z]");
  const core::TensorView p_in = core::view_tensor("p_in_weight", parameters.p_in_weight);
  trimul_problem problem = TRIMUL_PROBLEM_INIT;
  problem.batch = 1;
  for (std::size_t d = 0; d + 3 < x.sizes.size(); ++d) {
    const auto product = core::checked_product({problem.batch, x.sizes[d]});
    if (!product) core::fail_invalid("x: leading dimensions of ", x.shape_text(), " do not fit into 64 bits");
    problem.batch = *product;
  }
  problem.tokens = x.sizes[x.sizes.size() - 3];
  problem.c_z = x.sizes.back();
  problem.c_hidden = core::hidden_width(p_in);
  problem.device = args.x->device;
  problem.direction = args.direction;
  problem.x_dtype = args.x->dtype;
  problem.precision = args.precision;
  problem.eps = args.eps;
  problem.has_mask = args.mask != nullptr ? 1 : 0;
  problem.has_in_bias = parameters.p_in_bias != nullptr || parameters.g_in_bias != nullptr ? 1 : 0;
  problem.has_out_bias = parameters.p_out_bias != nullptr || parameters.g_out_bias != nullptr ? 1 : 0;
  problem.residual = args.residual;
  return problem;
}

void check_out_against_parameters(const core::TensorView& out, const core::Parameters& parameters) {
  for (const core::TensorView* parameter : parameters.present())
    core::check_disjoint({"out", out.bytes()}, {parameter->name, parameter->bytes()});
}

void check_cell(std::size_t k, const trimul::reference::Cell& cell, const core::Problem& problem) {
  const std::int64_t n = problem.tokens;
  if (cell.b < 0 || cell.b >= problem.batch || cell.i < 0 || cell.i >= n || cell.j < 0 || cell.j >= n)
    core::fail_invalid("cells: entry ", k, " is (", cell.b, ", ", cell.i, ", ", cell.j, "), expected inside B = ", problem.batch,
                       ", N = ", n);
}

}  // namespace

extern "C" {

const char* trimul_status_name(trimul_status status) {
  switch (status) {
    case TRIMUL_OK: return "OK";
    case TRIMUL_INVALID_ARGUMENT: return "INVALID_ARGUMENT";
    case TRIMUL_UNSUPPORTED: return "UNSUPPORTED";
    case TRIMUL_OUT_OF_MEMORY: return "OUT_OF_MEMORY";
    case TRIMUL_DEVICE_ERROR: return "DEVICE_ERROR";
    case TRIMUL_INTERNAL: return "INTERNAL";
  }
  return "UNKNOWN";
}

const char* trimul_last_error(void) {
  return core::last_error.c_str();
}

const char* trimul_version(void) {
  return core::kVersion;
}

size_t trimul_dtype_bytes(trimul_dtype dtype) {
  return core::dtype_bytes(static_cast<core::DType>(dtype));
}

const char* trimul_dtype_name(trimul_dtype dtype) {
  return core::dtype_name(static_cast<core::DType>(dtype));
}

trimul_status trimul_tensor_check_disjoint(const char* name, const trimul_tensor* tensor, const char* other_name,
                                           const trimul_tensor* other) {
  return guarded([&] {
    if (name == nullptr || other_name == nullptr) core::fail_invalid("name: is NULL, expected what to call the tensor");
    core::check_disjoint({name, core::view_tensor(name, tensor).bytes()}, {other_name, core::view_tensor(other_name, other).bytes()});
  });
}

trimul_status trimul_problem_out_dtype(const trimul_problem* problem, trimul_dtype* out_dtype) {
  return guarded([&] {
    if (out_dtype == nullptr) core::fail_invalid("out_dtype: is NULL, expected a place for the result");
    *out_dtype = static_cast<trimul_dtype>(core::validate_problem(read_struct("problem", problem)).out_dtype());
  });
}

size_t trimul_implementation_count(void) {
  return core::implementations().size();
}

const char* trimul_implementation_name(size_t index) {
  return index < core::implementations().size() ? core::implementations()[index].name.data() : nullptr;
}

const char* trimul_implementation_description(size_t index) {
  if (index >= core::implementations().size()) return nullptr;
  const trimul_status status = guarded([index] { returned_text = core::implementations()[index].describe(); });
  return status == TRIMUL_OK ? returned_text.c_str() : nullptr;
}

trimul_status trimul_implementation_can_run(const char* name, const trimul_problem* problem, const char* arch, const char** reason) {
  return guarded([&] {
    if (name == nullptr) core::fail_invalid("implementation: name is NULL");
    if (reason == nullptr) core::fail_invalid("reason: is NULL, expected a place for the result");
    const core::Implementation& implementation = core::find_implementation(name);
    const core::Problem checked = core::validate_problem(read_struct("problem", problem));
    const auto rejection = implementation.can_run(checked, core::target_device(checked, arch == nullptr ? "" : arch));
    returned_text = rejection ? rejection->reason : "";
    *reason = rejection ? returned_text.c_str() : nullptr;
  });
}

size_t trimul_implementation_num_knobs(const char* name) {
  const core::Implementation* const found = name == nullptr ? nullptr : core::find_implementation_or_null(name);
  return found == nullptr ? 0 : found->knobs.size();
}

trimul_status trimul_implementation_knob(const char* name, size_t index, trimul_knob_range* range) {
  return guarded([&] {
    if (name == nullptr) core::fail_invalid("implementation: name is NULL");
    const auto knobs = core::find_implementation(name).knobs;
    if (index >= knobs.size())
      core::fail_invalid("knob: index is ", index, ", expected below ", knobs.size(), " (the knobs of ", name, ")");
    write_struct("range", {sizeof(trimul_knob_range), knobs[index].name, knobs[index].least, knobs[index].most}, range);
  });
}

trimul_status trimul_recommend_knobs(const trimul_problem* problem, const char* implementation, const char* arch, trimul_knob* knobs,
                                     size_t capacity, size_t* num_knobs) {
  return guarded([&] {
    if (num_knobs == nullptr) core::fail_invalid("num_knobs: is NULL, expected a place for the result");
    if (knobs == nullptr && capacity > 0) core::fail_invalid("knobs: is NULL, expected room for ", capacity, " knobs");
    *num_knobs = 0;
    const core::Problem checked = core::validate_problem(read_struct("problem", problem));
    const core::Choice choice = core::choose_implementation(
        checked, {.implementation = implementation == nullptr ? "" : implementation, .arch = arch == nullptr ? "" : arch, .knobs = {}});
    const std::vector<core::Knob> recommended = core::recommended_knobs(*choice.implementation, checked, choice.device);
    for (std::size_t k = 0; k < std::min(capacity, recommended.size()); ++k)
      knobs[k] = {choice.implementation->knobs[k].name, recommended[k].value};
    *num_knobs = recommended.size();
  });
}

trimul_status trimul_weights_create(const trimul_plan* plan, const trimul_parameters* parameters, void* stream, trimul_weights** weights) {
  return guarded([&] {
    const core::Plan& checked = plan_of(plan);
    if (weights == nullptr) core::fail_invalid("weights: is NULL, expected a place for the result");
    *weights = nullptr;
    *weights = new trimul_weights{checked.prepare_weights(read_struct("parameters", parameters), stream)};
  });
}

trimul_status trimul_weights_pack(const trimul_plan* plan, const trimul_parameters* parameters, void* memory, size_t memory_bytes,
                                  void* stream, trimul_weights** weights) {
  return guarded([&] {
    const core::Plan& checked = plan_of(plan);
    if (weights == nullptr) core::fail_invalid("weights: is NULL, expected a place for the result");
    *weights = nullptr;
    *weights = new trimul_weights{checked.pack_weights(read_struct("parameters", parameters), memory, memory_bytes, stream)};
  });
}

size_t trimul_plan_packed_bytes(const trimul_plan* plan) {
  return plan == nullptr ? 0 : plan->plan->packed_bytes();
}

void trimul_weights_destroy(trimul_weights* weights) {
  delete weights;
}

size_t trimul_weights_bytes(const trimul_weights* weights) {
  return weights == nullptr ? 0 : weights->weights->packed->bytes();
}

trimul_status trimul_plan_create(const trimul_problem* problem, const trimul_plan_options* options, trimul_plan** plan) {
  return guarded([&] {
    if (plan == nullptr) core::fail_invalid("plan: is NULL, expected a place for the result");
    *plan = nullptr;
    *plan =
        new trimul_plan{std::make_shared<const core::Plan>(core::validate_problem(read_struct("problem", problem)), read_options(options))};
  });
}

trimul_status trimul_plan_acquire(const trimul_problem* problem, const trimul_plan_options* options, trimul_plan** plan) {
  return guarded([&] {
    if (plan == nullptr) core::fail_invalid("plan: is NULL, expected a place for the result");
    *plan = nullptr;
    *plan =
        new trimul_plan{core::plan_cache().find_or_make(core::validate_problem(read_struct("problem", problem)), read_options(options))};
  });
}

trimul_status trimul_plan_cache_get_info(trimul_plan_cache_info* info) {
  return guarded([&] {
    const core::PlanCache::Info now = core::plan_cache().info();
    write_struct("info", {sizeof(trimul_plan_cache_info), now.hits, now.misses, now.entries, now.capacity}, info);
  });
}

void trimul_plan_cache_clear(void) {
  core::plan_cache().clear();
}

void trimul_plan_destroy(trimul_plan* plan) {
  delete plan;
}

size_t trimul_plan_workspace_bytes(const trimul_plan* plan) {
  return plan == nullptr ? 0 : plan->plan->workspace_bytes();
}

const char* trimul_plan_implementation(const trimul_plan* plan) {
  return plan == nullptr ? "" : plan->plan->implementation().data();
}

int64_t trimul_plan_traffic_bytes(const trimul_plan* plan) {
  return plan == nullptr ? 0 : plan->plan->traffic_bytes();
}

double trimul_plan_flop(const trimul_plan* plan) {
  return plan == nullptr ? 0.0 : plan->plan->flop();
}

double trimul_plan_floor_us(const trimul_plan* plan) {
  return plan == nullptr ? 0.0 : plan->plan->floor_us();
}

const char* trimul_plan_explain(const trimul_plan* plan) {
  return plan == nullptr ? "" : plan->plan->explain().c_str();
}

size_t trimul_plan_workspace_bytes_with_parameters(const trimul_plan* plan) {
  return plan == nullptr ? 0 : plan->plan->workspace_bytes_with_parameters();
}

trimul_status trimul_execute_parameters(const trimul_plan* plan, const trimul_execute_args* args, const trimul_parameters* parameters) {
  return guarded([&] {
    const core::Plan& checked = plan_of(plan);
    const auto in = read_struct("args", args);
    if (in.weights != nullptr) core::fail_invalid("weights: given, but the parameters are to be packed, expected NULL");
    checked.execute_parameters(in, read_struct("parameters", parameters));
  });
}

trimul_status trimul_execute(const trimul_plan* plan, const trimul_execute_args* args) {
  return guarded([&] {
    const core::Plan& checked = plan_of(plan);
    const auto in = read_struct("args", args);
    checked.execute(in, weights_of(in));
  });
}

size_t trimul_plan_num_stages(const trimul_plan* plan) {
  return plan == nullptr ? 0 : plan->plan->num_stages();
}

trimul_status trimul_plan_stage(const trimul_plan* plan, size_t index, trimul_stage_info* info) {
  return guarded([&] {
    const core::Plan& checked = plan_of(plan);
    const core::StageCost cost = checked.stage_costs()[static_cast<std::size_t>(checked.stage_at(index))];
    write_struct("info", {sizeof(trimul_stage_info), cost.name, cost.flop, cost.traffic_bytes, cost.floor_us}, info);
  });
}

trimul_status trimul_execute_stage(const trimul_plan* plan, size_t index, const trimul_execute_args* args) {
  return guarded([&] {
    const core::Plan& checked = plan_of(plan);
    const auto in = read_struct("args", args);
    checked.execute_stage(index, in, weights_of(in));
  });
}

trimul_status trimul_update(const trimul_update_args* args) {
  return guarded([&] {
    const auto in = read_struct("args", args);
    const auto parameters = read_struct("parameters", in.parameters);
    const core::Problem problem = core::validate_problem(problem_of(in, parameters));
    // All that can be wrong is found before anything is allocated.
    const core::Parameters checked = core::check_parameters(parameters, problem.c_z, problem.c_hidden, problem.device);
    check_out_against_parameters(core::check_call(problem, in.x, in.mask, in.out).out, checked);
    const core::Plan plan(problem, read_options(in.options));
    const auto weights = plan.prepare_weights(parameters, in.stream);
    const core::OwnedMemory workspace(problem.device, plan.workspace_bytes());
    trimul_execute_args execute = TRIMUL_EXECUTE_ARGS_INIT;
    execute.x = in.x;
    execute.mask = in.mask;
    execute.out = in.out;
    execute.workspace = workspace.data();
    execute.workspace_bytes = plan.workspace_bytes();
    execute.stream = in.stream;
    plan.execute(execute, *weights);
    // Weights and workspace live until the work is done.
    core::copy_memory(problem.device, nullptr, problem.device, nullptr, 0, in.stream);
  });
}

trimul_status trimul_reference(const trimul_update_args* args, trimul_rounding rounding, const int64_t* cells, size_t num_cells,
                               double* result) {
  return guarded([&] {
    const auto in = read_struct("args", args);
    const auto parameters = read_struct("parameters", in.parameters);
    const core::Problem problem = core::validate_problem(problem_of(in, parameters));
    if (problem.device.type != core::DeviceType::kCpu) core::fail_invalid("x: device is a GPU, expected the CPU");
    if (problem.precision == core::Precision::kMxfp8)
      throw core::Error(core::StatusCode::kUnsupported, "precision mxfp8 is not served by any implementation yet");
    if (rounding != TRIMUL_ROUNDING_NONE && rounding != TRIMUL_ROUNDING_KERNEL)
      core::fail_invalid("rounding: is ", static_cast<int>(rounding), ", expected 0 (none) or 1 (kernel)");
    const core::TensorView x = core::view_tensor("x", in.x);
    core::check_x(x, problem);
    std::optional<core::MaskView> mask;
    if (in.mask != nullptr) mask = core::check_mask(core::view_tensor("mask", in.mask), x, problem);
    const core::Parameters checked = core::check_parameters(parameters, problem.c_z, problem.c_hidden, problem.device);
    const auto cell_at = [cells](std::size_t k) { return trimul::reference::Cell{cells[3 * k], cells[3 * k + 1], cells[3 * k + 2]}; };
    for (std::size_t k = 0; cells != nullptr && k < num_cells; ++k) check_cell(k, cell_at(k), problem);
    if (cells != nullptr ? num_cells == 0 : problem.is_empty()) return;
    if (result == nullptr) core::fail_invalid("result: is NULL, expected a place for the values");
    // From here on things are allocated.
    const trimul::reference::ReferenceWeights weights(checked, problem.c_z, problem.c_hidden);
    const auto kind = rounding == TRIMUL_ROUNDING_KERNEL ? trimul::reference::Rounding::kKernel : trimul::reference::Rounding::kNone;
    const trimul::reference::Reference oracle(problem, x.data, mask, weights, kind);
    const int threads = trimul::env::num_threads();
    const auto c_z = static_cast<std::size_t>(problem.c_z);
    if (cells != nullptr) {
      std::vector<trimul::reference::Cell> wanted;
      for (std::size_t k = 0; k < num_cells; ++k) wanted.push_back(cell_at(k));
      double* next = result;
      oracle.sampled(wanted, threads, [&](const auto&, const double* values) { next = std::copy_n(values, c_z, next); });
      return;
    }
    std::vector<double> scratch(static_cast<std::size_t>(trimul::reference::Reference::scratch_doubles(problem)));
    oracle.all(threads, scratch, [&](const auto& cell, const double* values) {
      std::copy_n(values, c_z, result + ((cell.b * problem.tokens + cell.i) * problem.tokens + cell.j) * problem.c_z);
    });
  });
}

}  // extern "C"
