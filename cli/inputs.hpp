// SPDX-License-Identifier: Apache-2.0
// The operator's tensors by their contract names, and the structs of the C ABI that point at them.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <string>
#include <string_view>

#include "device_memory.hpp"
#include "host_tensor.hpp"
#include "trimul/trimul.h"

namespace trimul::cli {

/// The twelve parameters, in the operator's order.
struct ParameterField {
  std::string_view name;
  const trimul_tensor* trimul_parameters::*field;
};
inline constexpr std::array kParameterFields{
    ParameterField{"norm_in_weight", &trimul_parameters::norm_in_weight},
    ParameterField{"norm_in_bias", &trimul_parameters::norm_in_bias},
    ParameterField{"p_in_weight", &trimul_parameters::p_in_weight},
    ParameterField{"p_in_bias", &trimul_parameters::p_in_bias},
    ParameterField{"g_in_weight", &trimul_parameters::g_in_weight},
    ParameterField{"g_in_bias", &trimul_parameters::g_in_bias},
    ParameterField{"norm_out_weight", &trimul_parameters::norm_out_weight},
    ParameterField{"norm_out_bias", &trimul_parameters::norm_out_bias},
    ParameterField{"p_out_weight", &trimul_parameters::p_out_weight},
    ParameterField{"p_out_bias", &trimul_parameters::p_out_bias},
    ParameterField{"g_out_weight", &trimul_parameters::g_out_weight},
    ParameterField{"g_out_bias", &trimul_parameters::g_out_bias},
};

/// x, mask and parameters; those that are absent have no entry.
using Inputs = std::map<std::string, HostTensor, std::less<>>;

/// Reads `path` and lets the tensors of `weights_path` (may be empty) add to it or override it. Names outside the contract and a
/// missing x or projection are kInvalid.
Inputs read_inputs(const std::string& path, const std::string& weights_path);

/// C ABI views of inputs, which must outlive this object: of their own memory for the CPU, of copies for another device.
class InputViews {
 public:
  explicit InputViews(const Inputs& inputs, const trimul_device& device = kHost);
  InputViews(const InputViews&) = delete;
  InputViews& operator=(const InputViews&) = delete;

  [[nodiscard]] const trimul_tensor& x() const { return x_; }
  [[nodiscard]] const trimul_tensor* mask() const { return has_mask_ ? &mask_ : nullptr; }
  [[nodiscard]] const trimul_parameters& parameters() const { return parameters_; }

 private:
  trimul_tensor view_on(const HostTensor& tensor, const trimul_device& device);

  std::deque<DeviceMemory> copies_;
  trimul_tensor x_{};
  trimul_tensor mask_{};
  bool has_mask_ = false;
  std::array<trimul_tensor, kParameterFields.size()> parameter_views_{};
  trimul_parameters parameters_ = TRIMUL_PARAMETERS_INIT;
};

struct Settings {
  trimul_direction direction = TRIMUL_OUTGOING;
  trimul_precision precision = TRIMUL_PRECISION_DEFAULT;
  float eps = 1e-5F;
  bool residual = false;
};

/// The problem that the tensors' shapes and the settings describe, on the CPU. The library has checked all tensors against it, so that what
/// is wrong with them is kInvalid whatever the memory and the implementations.
trimul_problem problem_of(const Inputs& inputs, const Settings& settings);

}  // namespace trimul::cli
