// SPDX-License-Identifier: Apache-2.0
// Element types of tensors as numbers: exact loads, stores that round to nearest even.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "trimul/trimul.h"

namespace trimul::cli {

inline float float_from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t bf16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

inline float float_from_fp16(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f;
  const auto mantissa = static_cast<float>(bits & 0x3ff);
  float magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024.0F, exponent - 25);
  if (exponent == 0x1f) magnitude = mantissa == 0.0F ? HUGE_VALF : std::nanf("");
  return (bits & 0x8000U) != 0 ? -magnitude : magnitude;
}

inline std::uint16_t fp16_from_float(float value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000U : 0U);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (magnitude >= 65520.0F) return static_cast<std::uint16_t>(sign | 0x7c00U);  // rounds beyond the largest, 65504
  // Adding a power of two whose last fp32 bit is the last fp16 bit of `value` makes the adder round for us.
  const int exponent = magnitude < 0x1p-14F ? -14 : std::ilogb(magnitude);
  const float rounder = std::ldexp(1.0F, exponent + 13);
  const float rounded = (magnitude + rounder) - rounder;
  if (rounded < 0x1p-14F) return static_cast<std::uint16_t>(sign | static_cast<unsigned>(std::ldexp(rounded, 24)));
  const auto bits = std::bit_cast<std::uint32_t>(rounded);
  return static_cast<std::uint16_t>(sign | ((bits >> 13) - (112U << 10)));
}

template <typename T>
T load_as(const void* data, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void store_as(void* data, std::int64_t index, T value) {
  std::memcpy(static_cast<char*>(data) + static_cast<std::size_t>(index) * sizeof(T), &value, sizeof(T));
}

inline double load_number(const void* data, trimul_dtype dtype, std::int64_t index) {
  switch (dtype) {
    case TRIMUL_F64: return load_as<double>(data, index);
    case TRIMUL_F32: return static_cast<double>(load_as<float>(data, index));
    case TRIMUL_F16: return static_cast<double>(float_from_fp16(load_as<std::uint16_t>(data, index)));
    case TRIMUL_BF16: return static_cast<double>(float_from_bf16(load_as<std::uint16_t>(data, index)));
    case TRIMUL_BOOL: return load_as<std::uint8_t>(data, index) != 0 ? 1.0 : 0.0;
    case TRIMUL_U8: return load_as<std::uint8_t>(data, index);
    case TRIMUL_I8: return load_as<std::int8_t>(data, index);
    case TRIMUL_I16: return load_as<std::int16_t>(data, index);
    case TRIMUL_I32: return load_as<std::int32_t>(data, index);
    case TRIMUL_I64: return static_cast<double>(load_as<std::int64_t>(data, index));
  }
  return std::nan("");
}

/// Float dtypes and those masks use; integers take the value's integer part.
inline void store_number(void* data, trimul_dtype dtype, std::int64_t index, double value) {
  switch (dtype) {
    case TRIMUL_F64: return store_as(data, index, value);
    case TRIMUL_F32: return store_as(data, index, static_cast<float>(value));
    case TRIMUL_F16: return store_as(data, index, fp16_from_float(static_cast<float>(value)));
    case TRIMUL_BF16: return store_as(data, index, bf16_from_float(static_cast<float>(value)));
    case TRIMUL_BOOL: return store_as(data, index, static_cast<std::uint8_t>(value != 0.0));
    case TRIMUL_U8: return store_as(data, index, static_cast<std::uint8_t>(value));
    case TRIMUL_I8: return store_as(data, index, static_cast<std::int8_t>(value));
    case TRIMUL_I16: return store_as(data, index, static_cast<std::int16_t>(value));
    case TRIMUL_I32: return store_as(data, index, static_cast<std::int32_t>(value));
    case TRIMUL_I64: return store_as(data, index, static_cast<std::int64_t>(value));
  }
}

}  // namespace trimul::cli
