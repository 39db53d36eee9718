// SPDX-License-Identifier: Apache-2.0
#include "inputs.hpp"

#include <algorithm>

#include "failure.hpp"
#include "safetensors_file.hpp"

namespace trimul::cli {
namespace {

bool is_contract_name(std::string_view name) {
  return name == "x" || name == "mask" ||
         std::any_of(kParameterFields.begin(), kParameterFields.end(), [&](const ParameterField& entry) { return entry.name == name; });
}

std::string contract_names() {
  std::string names = "x, mask";
  for (const ParameterField& entry : kParameterFields) names += fmt::format(", {}", entry.name);
  return names;
}

void check_names(const SafetensorsFile& file) {
  for (const TensorEntry& entry : file.entries())
    if (!is_contract_name(entry.name))
      fail_invalid("{}: tensor {} is no argument of the update, expected {}", file.path(), in_quotes(entry.name), contract_names());
}

bool holds(const SafetensorsFile& file, std::string_view name) {
  return std::any_of(file.entries().begin(), file.entries().end(), [&](const TensorEntry& entry) { return entry.name == name; });
}

}  // namespace

Inputs read_inputs(const std::string& path, const std::string& weights_path) {
  const SafetensorsFile file(path);
  check_names(file);
  Inputs inputs;
  if (weights_path.empty()) {
    for (const TensorEntry& entry : file.entries()) inputs.emplace(entry.name, file.read(entry));
  } else {
    const SafetensorsFile weights(weights_path);
    check_names(weights);
    for (const TensorEntry& entry : weights.entries()) inputs.emplace(entry.name, weights.read(entry));
    for (const TensorEntry& entry : file.entries())
      if (!holds(weights, entry.name)) inputs.emplace(entry.name, file.read(entry));
  }
  for (const char* name : {"x", "p_in_weight", "g_in_weight", "p_out_weight", "g_out_weight"})
    if (!inputs.contains(name))
      fail_invalid("{}: is missing in {}{}{}, expected x and the four projections p_in_weight, g_in_weight, p_out_weight, g_out_weight",
                   name, path, weights_path.empty() ? "" : " and ", weights_path);
  return inputs;
}

InputViews::InputViews(const Inputs& inputs, const trimul_device& device) : x_(view_on(inputs.find("x")->second, device)) {
  if (const auto mask = inputs.find("mask"); mask != inputs.end()) {
    mask_ = view_on(mask->second, device);
    has_mask_ = true;
  }
  for (std::size_t k = 0; k < kParameterFields.size(); ++k)
    if (const auto parameter = inputs.find(kParameterFields[k].name); parameter != inputs.end()) {
      parameter_views_[k] = view_on(parameter->second, device);
      parameters_.*kParameterFields[k].field = &parameter_views_[k];
    }
}

trimul_tensor InputViews::view_on(const HostTensor& tensor, const trimul_device& device) {
  trimul_tensor view = tensor.view();
  if (is_host(device)) return view;
  const DeviceMemory& copy = copies_.emplace_back(device, tensor.bytes());
  copy.upload(0, tensor.data.get(), tensor.bytes());
  view.data = copy.data();
  view.device = device;
  return view;
}

namespace {

/// By the reference's own check of its arguments, at no cell.
void check_tensors(const Inputs& inputs, const trimul_problem& problem) {
  const InputViews views(inputs);
  trimul_update_args args = TRIMUL_UPDATE_ARGS_INIT;
  args.x = &views.x();
  args.mask = views.mask();
  args.parameters = &views.parameters();
  args.direction = problem.direction;
  args.eps = problem.eps;
  args.residual = problem.residual;
  const std::int64_t no_cell = 0;
  check(trimul_reference(&args, TRIMUL_ROUNDING_NONE, &no_cell, 0, nullptr));
}

}  // namespace

trimul_problem problem_of(const Inputs& inputs, const Settings& settings) {
  const HostTensor& x = inputs.find("x")->second;
  const HostTensor& p_in = inputs.find("p_in_weight")->second;  // its shape decides C, and is checked before it is read
  if (x.shape.size() < 3)
    fail_invalid("x: number of dimensions is {} ({}), expected at least 3: [..., N, N, C_z]", x.shape.size(), shape_text(x.shape));
  if (p_in.shape.size() != 2)
    fail_invalid("p_in_weight: number of dimensions is {} ({}), expected 2: [2C, C_z]", p_in.shape.size(), shape_text(p_in.shape));
  if (p_in.shape[0] < 2 || p_in.shape[0] % 2 != 0)
    fail_invalid("p_in_weight: dimension 2C is {} (in {}), expected even and at least 2", p_in.shape[0], shape_text(p_in.shape));
  trimul_problem problem = TRIMUL_PROBLEM_INIT;
  const std::size_t rank = x.shape.size();
  // The file's reader has made sure that the product of all sizes that are not zero fits.
  for (std::size_t d = 0; d + 3 < rank; ++d) problem.batch *= x.shape[d];
  problem.tokens = x.shape[rank - 3];
  problem.c_z = x.shape[rank - 1];
  problem.c_hidden = p_in.shape[0] / 2;
  problem.x_dtype = x.dtype;
  problem.direction = settings.direction;
  problem.precision = settings.precision;
  problem.eps = settings.eps;
  problem.residual = settings.residual ? 1 : 0;
  problem.has_mask = inputs.contains("mask") ? 1 : 0;
  problem.has_in_bias = inputs.contains("p_in_bias") || inputs.contains("g_in_bias") ? 1 : 0;
  problem.has_out_bias = inputs.contains("p_out_bias") || inputs.contains("g_out_bias") ? 1 : 0;
  check_tensors(inputs, problem);
  return problem;
}

}  // namespace trimul::cli
