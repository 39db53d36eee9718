// SPDX-License-Identifier: Apache-2.0
// The problem description after validation: what is to be computed, never how.
#pragma once

#include <cstdint>
#include <string>

#include "core/dtype.hpp"
#include "trimul/trimul.h"

namespace trimul::core {

enum class Direction : std::int32_t { kOutgoing = TRIMUL_OUTGOING, kIncoming = TRIMUL_INCOMING };

enum class Precision : std::int32_t {
  kDefault = TRIMUL_PRECISION_DEFAULT,
  kTf32 = TRIMUL_PRECISION_TF32,
  kTf32x3 = TRIMUL_PRECISION_TF32X3,
  kIeee = TRIMUL_PRECISION_IEEE,
  kMxfp8 = TRIMUL_PRECISION_MXFP8,
  kBf16 = TRIMUL_PRECISION_BF16,
};

enum class DeviceType : std::int32_t { kCpu = TRIMUL_CPU, kCuda = TRIMUL_CUDA };

struct Device {
  DeviceType type = DeviceType::kCpu;
  std::int32_t index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

struct Problem {
  std::int64_t batch = 1;     // B, leading dimensions folded
  std::int64_t tokens = 0;    // N
  std::int64_t c_z = 0;       // C_z
  std::int64_t c_hidden = 0;  // C
  Device device = {};
  Direction direction = Direction::kOutgoing;
  DType x_dtype = DType::kF32;
  Precision precision = Precision::kDefault;
  float eps = 1e-5F;
  bool has_mask = true;
  bool has_in_bias = false;
  bool has_out_bias = false;
  bool residual = false;

  friend bool operator==(const Problem&, const Problem&) = default;

  /// Pairs of one sample, N^2. validate_problem has made sure that this and every product below fits.
  [[nodiscard]] std::int64_t pairs() const { return tokens * tokens; }
  [[nodiscard]] std::int64_t x_elements() const { return batch * pairs() * c_z; }
  [[nodiscard]] bool is_empty() const { return batch == 0 || tokens == 0; }
  /// dtype of the result (contract: Dtypes).
  [[nodiscard]] DType out_dtype() const { return precision == Precision::kBf16 ? DType::kBf16 : x_dtype; }
  /// x is rounded to bf16 on its way in.
  [[nodiscard]] bool rounds_x_to_bf16() const { return precision == Precision::kBf16 && x_dtype != DType::kBf16; }
};

/// Checks every rule about the problem alone: sizes, dtype, direction, precision, eps, device type, flags, 64-bit products.
/// Throws INVALID_ARGUMENT naming the field, what it is and what was expected. What no implementation serves yet (fp64 on a
/// GPU, mxfp8) is left to the implementations, which decline it with a reason.
Problem validate_problem(const trimul_problem& problem);

/// The device of a C struct. INVALID_ARGUMENT for an unknown type or a negative index; whether it exists is describe_device's affair.
Device check_device(const trimul_device& device);

const char* direction_name(Direction direction);
const char* precision_name(Precision precision);

/// "B=1 N=256 C_z=128 C=128 bf16 outgoing mask"
std::string describe(const Problem& problem);

}  // namespace trimul::core
