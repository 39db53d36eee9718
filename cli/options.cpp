// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "failure.hpp"
#include "library.hpp"

namespace trimul::cli {
namespace {

/// [+-]? (digits [. digits?] | . digits) ([eE] [+-]? digits)?
bool is_decimal_or_exponent_form(std::string_view text) {
  const auto skip_digits = [&text] {
    std::size_t count = 0;
    while (count < text.size() && text[count] >= '0' && text[count] <= '9') ++count;
    text.remove_prefix(count);
    return count;
  };
  const auto skip_sign = [&text] {
    if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
  };
  skip_sign();
  std::size_t digits = skip_digits();
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    digits += skip_digits();
  }
  if (digits == 0) return false;
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    skip_sign();
    if (skip_digits() == 0) return false;
  }
  return text.empty();
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; });
  return lower;
}

struct PrecisionName {
  const char* name;
  trimul_precision precision;
};
constexpr std::array kPrecisions{
    PrecisionName{"none", TRIMUL_PRECISION_NONE},     PrecisionName{"default", TRIMUL_PRECISION_DEFAULT},
    PrecisionName{"tf32", TRIMUL_PRECISION_TF32},     PrecisionName{"tf32x3", TRIMUL_PRECISION_TF32X3},
    PrecisionName{"ieee", TRIMUL_PRECISION_IEEE},     PrecisionName{"mxfp8", TRIMUL_PRECISION_MXFP8},
    PrecisionName{"bfloat16", TRIMUL_PRECISION_BF16}, PrecisionName{"bf16", TRIMUL_PRECISION_BF16},
};

}  // namespace

trimul_direction parse_direction(std::string_view text) {
  if (text == "outgoing") return TRIMUL_OUTGOING;
  if (text == "incoming") return TRIMUL_INCOMING;
  fail_invalid("--direction: got {}, expected outgoing or incoming", in_quotes(text));
}

trimul_precision parse_precision(std::string_view text) {
  const std::string name = lower_case(text);
  int number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  const bool is_number = error == std::errc{} && end == name.data() + name.size();
  for (const PrecisionName& entry : kPrecisions)
    if (name == entry.name || (is_number && number == entry.precision)) return entry.precision;
  fail_invalid("--precision: got {}, expected none (-1), default (0), tf32 (1), tf32x3 (2), ieee (3), mxfp8 (4) or bfloat16 (5)",
               in_quotes(text));
}

float parse_eps(std::string_view text) {
  constexpr const char* kExpected = "expected a finite number greater than 0 in fp32, in decimal or exponent form";
  std::string_view digits = text;
  if (digits.starts_with('+')) digits.remove_prefix(1);  // from_chars takes none
  float value = 0.0F;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool is_number = is_decimal_or_exponent_form(text) && error == std::errc{} && end == digits.data() + digits.size();
  if (!is_number || !std::isfinite(value) || !(value > 0.0F)) fail_invalid("--eps: got {}, {}", in_quotes(text), kExpected);
  return value;
}

trimul_dtype parse_float_dtype(std::string_view text) {
  if (text == "bf16" || text == "bfloat16") return TRIMUL_BF16;
  if (text == "fp16" || text == "float16") return TRIMUL_F16;
  if (text == "fp32" || text == "float32") return TRIMUL_F32;
  if (text == "fp64" || text == "float64") return TRIMUL_F64;
  fail_invalid("dtype: got {}, expected bf16, fp16, fp32 or fp64", in_quotes(text));
}

std::int64_t parse_count(std::string_view what, std::string_view text, std::int64_t least) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least)
    fail_invalid("{}: got {}, expected a whole number of at least {} (and below 2^63)", what, in_quotes(text), least);
  return value;
}

trimul_problem parse_shape(std::string_view text) {
  const auto parts = split(text, ',');
  if (parts.size() != 4) fail_invalid("--shape: got {}, expected four sizes: B,N,C_z,C", in_quotes(text));
  trimul_problem problem = TRIMUL_PROBLEM_INIT;
  problem.batch = parse_count("--shape: B", parts[0], 0);
  problem.tokens = parse_count("--shape: N", parts[1], 0);
  problem.c_z = parse_count("--shape: C_z", parts[2], 1);
  problem.c_hidden = parse_count("--shape: C", parts[3], 1);
  naming("--shape", [&] { check_problem(problem); });
  return problem;
}

void check_implementation_name(const std::string& name) {
  if (name.empty()) return;
  std::string known;
  for (std::size_t k = 0; k < trimul_implementation_count(); ++k) {
    if (name == trimul_implementation_name(k)) return;
    known += (known.empty() ? "" : ", ") + std::string(trimul_implementation_name(k));
  }
  fail_invalid("--impl: got {}, expected one of {}", in_quotes(name), known);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t at = text.find(separator); at != std::string_view::npos; at = text.find(separator)) {
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + 1);
  }
  parts.push_back(text);
  return parts;
}

const char* direction_name(std::int32_t direction) {
  return direction == TRIMUL_OUTGOING ? "outgoing" : "incoming";
}

DeviceRequest parse_device(std::string_view text) {
  if (text == "auto") return {DeviceRequest::Kind::kAuto, 0};
  if (text == "cpu") return {DeviceRequest::Kind::kCpu, 0};
  if (text == "cuda") return {DeviceRequest::Kind::kCuda, 0};
  constexpr std::string_view kPrefix = "cuda:";
  if (text.starts_with(kPrefix)) {
    const std::string_view digits = text.substr(kPrefix.size());
    std::int32_t index = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    const bool is_whole = end == digits.data() + digits.size() && !digits.empty() && digits[0] != '-';
    if (is_whole && error == std::errc{}) return {DeviceRequest::Kind::kCuda, index};
    // An index too large for the type is past the end of any machine's list, which is said there.
    if (is_whole && error == std::errc::result_out_of_range) return {DeviceRequest::Kind::kCuda, std::numeric_limits<std::int32_t>::max()};
  }
  fail_invalid("--device: got {}, expected auto, cpu, cuda or cuda:INDEX", in_quotes(text));
}

std::string device_name(const trimul_device& device) {
  return device.type == TRIMUL_CPU ? "cpu" : fmt::format("cuda:{}", device.index);
}

std::vector<trimul_device> candidate_devices(const DeviceRequest& request) {
  const std::int32_t num_gpus = trimul_cuda_device_count();
  if (request.kind == DeviceRequest::Kind::kCpu) return {{TRIMUL_CPU, 0}};
  if (request.kind == DeviceRequest::Kind::kCuda) {
    if (num_gpus == 0)
      fail(kUnsupported, "--device: cuda was asked for, but this build of trimul finds no GPU on this machine, expected cpu or auto");
    if (request.index >= num_gpus)
      fail_invalid("--device: GPU index is {}, expected below {} (the number of GPUs)", request.index, num_gpus);
    return {{TRIMUL_CUDA, request.index}};
  }
  std::vector<trimul_device> devices;
  for (std::int32_t index = 0; index < num_gpus; ++index) devices.push_back({TRIMUL_CUDA, index});
  devices.push_back({TRIMUL_CPU, 0});
  return devices;
}

}  // namespace trimul::cli
