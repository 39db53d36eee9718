// SPDX-License-Identifier: Apache-2.0
// Values of command-line options, from text. Failures are kInvalid and name the option, what it got and what it expects.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trimul/trimul.h"

namespace trimul::cli {

trimul_direction parse_direction(std::string_view text);
/// Names in any case or the contract's integers.
trimul_precision parse_precision(std::string_view text);
/// Decimal or exponent form, no matter which locale; finite, greater than 0 and not 0 in fp32.
float parse_eps(std::string_view text);
/// bf16, fp16, fp32, fp64.
trimul_dtype parse_float_dtype(std::string_view text);
/// "B,N,C_z,C": the sizes of a problem whose other fields are defaults. Their products fit.
trimul_problem parse_shape(std::string_view text);
/// A whole decimal number of at least `least`; `what` names it in the failure.
std::int64_t parse_count(std::string_view what, std::string_view text, std::int64_t least);
/// Checks that `name` is an implementation's; empty means any.
void check_implementation_name(const std::string& name);
/// The parts between separators; empty parts are kept.
std::vector<std::string_view> split(std::string_view text, char separator);

const char* direction_name(std::int32_t direction);

struct DeviceRequest {
  enum class Kind { kAuto, kCpu, kCuda } kind = Kind::kAuto;
  std::int32_t index = 0;
};
/// auto, cpu, cuda, cuda:I.
DeviceRequest parse_device(std::string_view text);
/// "cpu", "cuda:1"
std::string device_name(const trimul_device& device);

/// Devices that a request stands for on this machine, in the order in which they are to be tried. kUnsupported when a GPU is
/// wanted and there is none, kInvalid when there are some but not that one.
std::vector<trimul_device> candidate_devices(const DeviceRequest& request);

}  // namespace trimul::cli
