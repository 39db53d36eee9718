// SPDX-License-Identifier: Apache-2.0
// Conversions against their definitions: values by powers of two, rounding by the distance to both neighbours.
#include "core/dtype.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "support/random.hpp"

namespace trimul::core {
namespace {

using trimul::testing::Random;

struct Format {
  const char* name;
  int exponent_bits;
  int mantissa_bits;
  float (*decode)(std::uint16_t);
  std::uint16_t (*encode)(float);
};
constexpr Format kFormats[] = {{"fp16", 5, 10, float_from_half, half_from_float}, {"bf16", 8, 7, float_from_bf16, bf16_from_float}};

/// Value of a 16-bit pattern from the definition of a binary interchange format.
double defined_value(const Format& format, std::uint16_t bits) {
  const int exponent = (bits >> format.mantissa_bits) & ((1 << format.exponent_bits) - 1);
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << format.exponent_bits) - 1) return mantissa != 0 ? std::nan("") : sign * HUGE_VAL;
  const double fraction = std::ldexp(mantissa, -format.mantissa_bits) + (exponent != 0 ? 1.0 : 0.0);
  return sign * std::ldexp(fraction, (exponent != 0 ? exponent : 1) - bias);
}

bool is_nan_pattern(const Format& format, std::uint16_t bits) {
  return std::isnan(defined_value(format, bits));
}

class SixteenBit : public ::testing::TestWithParam<Format> {};

TEST_P(SixteenBit, EveryPatternDecodesToItsDefinition) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const double expected = defined_value(GetParam(), pattern);
    const double got = static_cast<double>(GetParam().decode(pattern));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(got, expected) << bits;
      ASSERT_EQ(std::signbit(got), std::signbit(expected)) << bits;
    }
  }
}

TEST_P(SixteenBit, EveryPatternSurvivesTheWayThroughFloat) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const std::uint16_t back = GetParam().encode(GetParam().decode(pattern));
    if (is_nan_pattern(GetParam(), pattern)) {
      ASSERT_TRUE(is_nan_pattern(GetParam(), back)) << bits;
      ASSERT_EQ(back & 0x8000, pattern & 0x8000) << bits;
    } else {
      ASSERT_EQ(back, pattern);
    }
  }
}

TEST_P(SixteenBit, RoundsToTheNearestAndTiesToEven) {
  const Format& format = GetParam();
  const auto infinity = static_cast<std::uint16_t>(((1 << format.exponent_bits) - 1) << format.mantissa_bits);
  for (std::uint16_t low = 0; low < infinity; ++low) {
    const auto high = static_cast<std::uint16_t>(low + 1);
    // Beyond the largest finite value the next step counts as if the format went on, as IEEE 754 rounds.
    const double below = defined_value(format, low);
    const double above =
        high == infinity ? 2 * below - defined_value(format, static_cast<std::uint16_t>(low - 1)) : defined_value(format, high);
    const double middle = (below + above) / 2;
    const std::uint16_t even = low % 2 == 0 ? low : high;
    for (const double sign : {1.0, -1.0}) {
      const auto flag = static_cast<std::uint16_t>(sign < 0 ? 0x8000 : 0);
      const auto at = static_cast<float>(sign * middle);
      ASSERT_EQ(static_cast<double>(at), sign * middle);
      ASSERT_EQ(format.encode(at), even | flag) << low;
      ASSERT_EQ(format.encode(std::nextafterf(at, 0.0F)), low | flag) << low;
      ASSERT_EQ(format.encode(std::nextafterf(at, static_cast<float>(sign) * HUGE_VALF)), high | flag) << low;
    }
  }
}

TEST_P(SixteenBit, SpecialValuesStaySpecial) {
  const Format& format = GetParam();
  for (const float value : {HUGE_VALF, -HUGE_VALF, 3.4e38F, -3.4e38F}) {
    if (std::isinf(value) || format.exponent_bits == 5) {
      EXPECT_EQ(static_cast<double>(format.decode(format.encode(value))), std::copysign(HUGE_VAL, static_cast<double>(value)));
    }
  }
  // NaN whose payload lies only in the bits that are dropped must not become Inf.
  for (const std::uint32_t bits : {0x7f800001U, 0xff800001U, 0x7fc00000U, 0x7fffffffU, 0xffffffffU})
    EXPECT_TRUE(std::isnan(format.decode(format.encode(std::bit_cast<float>(bits))))) << bits;
  EXPECT_EQ(format.encode(-0.0F), 0x8000);
  EXPECT_EQ(format.encode(1e-45F), 0);
}

INSTANTIATE_TEST_SUITE_P(Every, SixteenBit, ::testing::ValuesIn(kFormats), [](const auto& instance) { return instance.param.name; });

TEST(RoundMantissa, KeepsTenBitsForTf32) {
  Random random(7);
  for (int k = 0; k < 100000; ++k) {
    const float value = std::ldexp(static_cast<float>(random.normal()), static_cast<int>(random.integer(-100, 120)));
    if (std::abs(value) < std::numeric_limits<float>::min()) continue;
    int exponent = 0;
    const double fraction = std::frexp(static_cast<double>(value), &exponent);
    const double expected = std::ldexp(std::nearbyint(std::ldexp(fraction, 11)), exponent - 11);
    ASSERT_EQ(static_cast<double>(round_mantissa(value, 10)), expected) << static_cast<double>(value);
  }
  EXPECT_EQ(round_mantissa(HUGE_VALF, 10), HUGE_VALF);
  EXPECT_TRUE(std::isnan(round_mantissa(std::bit_cast<float>(0x7f800001U), 10)));
  EXPECT_EQ(round_mantissa(std::numeric_limits<float>::max(), 10), HUGE_VALF);
}

TEST(LoadAsDouble, ReadsEveryDtypeAtAnyIndex) {
  const auto check = []<typename T>(DType dtype, std::initializer_list<T> values) {
    std::vector<T> data(values);
    ASSERT_EQ(dtype_bytes(dtype), sizeof(T));
    for (std::size_t k = 0; k < data.size(); ++k)
      EXPECT_EQ(load_as_double(data.data(), dtype, static_cast<std::int64_t>(k)), static_cast<double>(data[k])) << dtype_name(dtype);
    EXPECT_EQ(load_as_double(data.data() + data.size(), dtype, -1), static_cast<double>(data.back())) << "negative index";
  };
  check(DType::kF64, {1e300, -0.5, 3.0});
  check(DType::kF32, {1e30F, -0.5F, 3.0F});
  check(DType::kU8, {std::uint8_t{0}, std::uint8_t{255}});
  check(DType::kI8, {std::int8_t{-128}, std::int8_t{127}});
  check(DType::kI16, {std::int16_t{-32768}, std::int16_t{32767}});
  check(DType::kI32, {std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()});
  check(DType::kI64, {std::int64_t{-1} << 40, (std::int64_t{1} << 53) - 1, std::numeric_limits<std::int64_t>::max()});
  const std::uint8_t bools[] = {0, 1, 2, 255};
  for (std::int64_t k = 0; k < 4; ++k) EXPECT_EQ(load_as_double(bools, DType::kBool, k), k == 0 ? 0.0 : 1.0);
}

TEST(StoreFromDouble, RoundsEachFloatDtypeOnce) {
  double memory[2] = {7.0, 7.0};
  store_from_double(memory, DType::kF64, 1, 0.1);
  EXPECT_EQ(memory[1], 0.1);
  EXPECT_EQ(memory[0], 7.0);
  store_from_double(memory, DType::kF32, 0, 0.1);
  EXPECT_EQ(load_as_double(memory, DType::kF32, 0), static_cast<double>(0.1F));
  store_from_double(memory, DType::kF16, 1, 65519.0);
  EXPECT_EQ(load_as_double(memory, DType::kF16, 1), 65504.0);
  store_from_double(memory, DType::kF16, 1, 65520.0);
  EXPECT_EQ(load_as_double(memory, DType::kF16, 1), HUGE_VAL);
  store_from_double(memory, DType::kBf16, 1, 1.0 + 0x1p-8);
  EXPECT_EQ(load_as_double(memory, DType::kBf16, 1), 1.0);
}

TEST(DtypeNames, AreThoseOfTheContractAndUnknownBeyond) {
  const std::pair<trimul_dtype, const char*> names[] = {
      {TRIMUL_F64, "fp64"}, {TRIMUL_F32, "fp32"}, {TRIMUL_F16, "fp16"},  {TRIMUL_BF16, "bf16"}, {TRIMUL_BOOL, "bool"},
      {TRIMUL_U8, "uint8"}, {TRIMUL_I8, "int8"},  {TRIMUL_I16, "int16"}, {TRIMUL_I32, "int32"}, {TRIMUL_I64, "int64"}};
  const std::size_t bytes[] = {8, 4, 2, 2, 1, 1, 1, 2, 4, 8};
  for (std::size_t k = 0; k < 10; ++k) {
    EXPECT_STREQ(trimul_dtype_name(names[k].first), names[k].second);
    EXPECT_EQ(trimul_dtype_bytes(names[k].first), bytes[k]);
  }
  for (const std::int32_t unknown : {0, 11, -1, 1000}) {
    EXPECT_STREQ(dtype_name(static_cast<DType>(unknown)), "unknown");
    EXPECT_EQ(dtype_bytes(static_cast<DType>(unknown)), 0U);
  }
}

}  // namespace
}  // namespace trimul::core
