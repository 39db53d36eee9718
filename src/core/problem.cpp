// SPDX-License-Identifier: Apache-2.0
#include "core/problem.hpp"

#include <algorithm>
#include <cmath>

#include "core/checked.hpp"
#include "core/error.hpp"

namespace trimul::core {
namespace {

void check_size(const char* name, std::int64_t value, std::int64_t least) {
  if (value < least) fail_invalid("problem: ", name, " is ", value, ", expected at least ", least);
}

bool check_flag(const char* name, std::int32_t value) {
  if (value != 0 && value != 1) fail_invalid("problem: ", name, " is ", value, ", expected 0 or 1");
  return value == 1;
}

Direction check_direction(std::int32_t value) {
  if (value != TRIMUL_OUTGOING && value != TRIMUL_INCOMING)
    fail_invalid("problem: direction is ", value, ", expected 0 (outgoing) or 1 (incoming)");
  return static_cast<Direction>(value);
}

Precision check_precision(std::int32_t value) {
  if (value == TRIMUL_PRECISION_NONE) return Precision::kDefault;
  if (value < TRIMUL_PRECISION_DEFAULT || value > TRIMUL_PRECISION_BF16)
    fail_invalid("problem: precision is ", value,
                 ", expected -1 (none), 0 (default), 1 (tf32), 2 (tf32x3), 3 (ieee), 4 (mxfp8) or 5 (bfloat16)");
  return static_cast<Precision>(value);
}

}  // namespace

Device check_device(const trimul_device& device) {
  if (device.type != TRIMUL_CPU && device.type != TRIMUL_CUDA)
    fail_invalid("problem: device type is ", device.type, ", expected 1 (CPU) or 2 (CUDA)");
  if (device.index < 0) fail_invalid("problem: device index is ", device.index, ", expected at least 0");
  if (device.type == TRIMUL_CPU && device.index != 0) fail_invalid("problem: device index is ", device.index, ", expected 0 for the CPU");
  return {static_cast<DeviceType>(device.type), device.index};
}

Problem validate_problem(const trimul_problem& in) {
  Problem problem;
  check_size("batch B", in.batch, 0);
  check_size("tokens N", in.tokens, 0);
  check_size("c_z", in.c_z, 1);
  check_size("c_hidden", in.c_hidden, 1);
  problem.batch = in.batch;
  problem.tokens = in.tokens;
  problem.c_z = in.c_z;
  problem.c_hidden = in.c_hidden;
  problem.device = check_device(in.device);
  problem.direction = check_direction(in.direction);
  problem.precision = check_precision(in.precision);
  const auto dtype = static_cast<DType>(in.x_dtype);
  if (!is_floating(dtype)) fail_invalid("x: dtype is ", dtype_name(dtype), " (", in.x_dtype, "), expected bf16, fp16, fp32 or fp64");
  problem.x_dtype = dtype;
  if (!std::isfinite(in.eps) || !(in.eps > 0.0F)) fail_invalid("problem: eps is ", in.eps, ", expected finite and greater than 0");
  problem.eps = in.eps;
  problem.has_mask = check_flag("has_mask", in.has_mask);
  problem.has_in_bias = check_flag("has_in_bias", in.has_in_bias);
  problem.has_out_bias = check_flag("has_out_bias", in.has_out_bias);
  problem.residual = check_flag("residual", in.residual);

  // Everything the library multiplies out later (tensor and workspace bytes, weights, operation counts) stays below this.
  constexpr std::int64_t kMostBytesPerElement = 128;  // traffic of fp64: 74
  const std::int64_t width = std::max(in.c_z, in.c_hidden);
  if (!checked_product({in.batch, in.tokens, in.tokens, width, kMostBytesPerElement}) ||
      !checked_product({in.tokens, in.tokens, width, kMostBytesPerElement}) || !checked_product({width, width, kMostBytesPerElement}))
    fail_invalid("problem: B * N * N * max(C_z, C) = ", in.batch, " * ", in.tokens, " * ", in.tokens, " * ", width,
                 " elements do not fit into 64-bit byte counts");
  return problem;
}

const char* direction_name(Direction direction) {
  return direction == Direction::kOutgoing ? "outgoing" : "incoming";
}

const char* precision_name(Precision precision) {
  switch (precision) {
    case Precision::kDefault: return "default";
    case Precision::kTf32: return "tf32";
    case Precision::kTf32x3: return "tf32x3";
    case Precision::kIeee: return "ieee";
    case Precision::kMxfp8: return "mxfp8";
    case Precision::kBf16: return "bfloat16";
  }
  return "unknown";
}

std::string describe(const Problem& problem) {
  std::string line = text("B=", problem.batch, " N=", problem.tokens, " C_z=", problem.c_z, " C=", problem.c_hidden, " ",
                          dtype_name(problem.x_dtype), " ", direction_name(problem.direction));
  if (problem.precision != Precision::kDefault) line += text(" precision=", precision_name(problem.precision));
  if (problem.has_mask) line += " mask";
  if (problem.has_in_bias) line += " in_bias";
  if (problem.has_out_bias) line += " out_bias";
  if (problem.residual) line += " residual";
  return line;
}

}  // namespace trimul::core
