// SPDX-License-Identifier: Apache-2.0
// Element types and their conversions. Scalar and exact; the vectorised forms of the CPU implementation are tested against these.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "trimul/trimul.h"

namespace trimul::core {

enum class DType : std::int32_t {
  kF64 = TRIMUL_F64,
  kF32 = TRIMUL_F32,
  kF16 = TRIMUL_F16,
  kBf16 = TRIMUL_BF16,
  kBool = TRIMUL_BOOL,
  kU8 = TRIMUL_U8,
  kI8 = TRIMUL_I8,
  kI16 = TRIMUL_I16,
  kI32 = TRIMUL_I32,
  kI64 = TRIMUL_I64,
};

/// Bytes of one element, 0 for a value outside the enum.
constexpr std::size_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64: return 8;
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kF16:
    case DType::kBf16:
    case DType::kI16: return 2;
    case DType::kBool:
    case DType::kU8:
    case DType::kI8: return 1;
  }
  return 0;
}

constexpr const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF64: return "fp64";
    case DType::kF32: return "fp32";
    case DType::kF16: return "fp16";
    case DType::kBf16: return "bf16";
    case DType::kBool: return "bool";
    case DType::kU8: return "uint8";
    case DType::kI8: return "int8";
    case DType::kI16: return "int16";
    case DType::kI32: return "int32";
    case DType::kI64: return "int64";
  }
  return "unknown";
}

constexpr bool is_floating(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBf16;
}

/// Rounds to nearest even at `kept_bits` bits of fp32 mantissa (7: bf16, 10: TF32). Inf and NaN stay what they are.
inline float round_mantissa(float value, int kept_bits) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const int dropped = 23 - kept_bits;
  const std::uint32_t mask = (1U << dropped) - 1U;
  if ((bits & 0x7f800000U) == 0x7f800000U) {
    const bool is_nan = (bits & 0x007fffffU) != 0;
    return std::bit_cast<float>(is_nan ? ((bits | 0x00400000U) & ~mask) : bits);
  }
  const std::uint32_t half_up = (1U << (dropped - 1)) - 1U + ((bits >> dropped) & 1U);
  return std::bit_cast<float>((bits + half_up) & ~mask);
}

inline float float_from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t bf16_from_float(float value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(round_mantissa(value, 7)) >> 16);
}

inline float float_from_half(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fU;
  const std::uint32_t mantissa = half & 0x3ffU;
  if (exponent == 0x1fU) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));  // Inf, NaN
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;  // subnormal: exact
  return sign != 0 ? -magnitude : magnitude;
}

inline std::uint16_t half_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U | ((magnitude >> 13) & 0x3ffU));
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // >= 65520 rounds to Inf
  if (magnitude < 0x38800000U) {                                                    // below 2^-14: subnormal half
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p24F;
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::nearbyintf(scaled)));
  }
  const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

/// Element `index` of an array of any dtype, exactly (int64 beyond 2^53 rounds to the nearest double).
inline double load_as_double(const void* data, DType dtype, std::int64_t index) {
  const auto* bytes = static_cast<const std::byte*>(data) + index * static_cast<std::int64_t>(dtype_bytes(dtype));
  const auto read = [bytes]<typename T>(T value) {
    std::memcpy(&value, bytes, sizeof(T));
    return value;
  };
  switch (dtype) {
    case DType::kF64: return read(0.0);
    case DType::kF32: return static_cast<double>(read(0.0F));
    case DType::kF16: return static_cast<double>(float_from_half(read(std::uint16_t{})));
    case DType::kBf16: return static_cast<double>(float_from_bf16(read(std::uint16_t{})));
    case DType::kBool: return read(std::uint8_t{}) != 0 ? 1.0 : 0.0;
    case DType::kU8: return read(std::uint8_t{});
    case DType::kI8: return read(std::int8_t{});
    case DType::kI16: return read(std::int16_t{});
    case DType::kI32: return read(std::int32_t{});
    case DType::kI64: return static_cast<double>(read(std::int64_t{}));
  }
  return 0.0;
}

/// Stores `value` rounded once to a floating dtype (fp64 -> fp32 -> 16 bit for the narrow ones).
inline void store_from_double(void* data, DType dtype, std::int64_t index, double value) {
  auto* bytes = static_cast<std::byte*>(data) + index * static_cast<std::int64_t>(dtype_bytes(dtype));
  const auto write = [bytes](auto stored) { std::memcpy(bytes, &stored, sizeof(stored)); };
  switch (dtype) {
    case DType::kF64: write(value); break;
    case DType::kF32: write(static_cast<float>(value)); break;
    case DType::kF16: write(half_from_float(static_cast<float>(value))); break;
    case DType::kBf16: write(bf16_from_float(static_cast<float>(value))); break;
    default: break;  // results are floating; problem.cpp refuses the rest
  }
}

}  // namespace trimul::core
