// SPDX-License-Identifier: Apache-2.0
// Vectorised loads and stores against the scalar conversions, which tests/core holds to their definition.
#include <bit>
#include <cmath>
#include <numeric>

#include "core/dtype.hpp"
#include "stages/row_kernels_of_this_machine.hpp"
#include "support/random.hpp"

namespace trimul::cpu {
namespace {

using testing::Random;

class Conversions : public RowKernelTest {};

bool same(float left, float right) {
  return std::isnan(left) ? std::isnan(right) : std::bit_cast<std::uint32_t>(left) == std::bit_cast<std::uint32_t>(right);
}

TEST_P(Conversions, LoadsEverySixteenBitPattern) {
  std::vector<std::uint16_t> stored(65536);
  std::iota(stored.begin(), stored.end(), std::uint16_t{0});
  std::vector<float> loaded(65536);
  kernels().load(stored.data(), Storage::kF16, false, 65536, loaded.data());
  for (std::size_t k = 0; k < 65536; ++k) ASSERT_TRUE(same(loaded[k], core::float_from_half(stored[k]))) << k;
  kernels().load(stored.data(), Storage::kBf16, false, 65536, loaded.data());
  for (std::size_t k = 0; k < 65536; ++k) ASSERT_TRUE(same(loaded[k], core::float_from_bf16(stored[k]))) << k;
  kernels().load(stored.data(), Storage::kF16, true, 65536, loaded.data());
  for (std::size_t k = 0; k < 65536; ++k) ASSERT_TRUE(same(loaded[k], core::round_mantissa(core::float_from_half(stored[k]), 7))) << k;
}

/// Every 16-bit value, the points half way between neighbours and their neighbours in fp32, and random bits.
std::vector<float> interesting_floats() {
  std::vector<float> values;
  for (std::uint32_t bits = 0; bits < 65536; ++bits)
    for (const float value :
         {core::float_from_half(static_cast<std::uint16_t>(bits)), core::float_from_bf16(static_cast<std::uint16_t>(bits))}) {
      const std::uint32_t pattern = std::bit_cast<std::uint32_t>(value);
      for (const std::uint32_t offset : {0x0U, 0x1U, 0xfffU, 0x1000U, 0x1001U, 0x7fffU, 0x8000U, 0x8001U})
        values.push_back(std::bit_cast<float>(pattern + offset));
    }
  Random random(3);
  for (int k = 0; k < 200000; ++k) values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random.integer(0, 0xffffffffLL))));
  return values;
}

TEST_P(Conversions, StoresRoundToNearestEven) {
  // A gate of +30 is exactly 1 and a residual of nothing leaves the value alone.
  const std::vector<float> values = interesting_floats();
  const auto count = static_cast<std::int64_t>(values.size());
  const std::vector<float> gates(values.size(), 60.0F), zeros(values.size(), 0.0F);
  std::vector<std::uint16_t> stored(values.size());
  kernels().gate_output(values.data(), gates.data(), zeros.data(), zeros.data(), nullptr, 1, count, stored.data(), Storage::kF16);
  for (std::size_t k = 0; k < values.size(); ++k)
    ASSERT_TRUE(same(core::float_from_half(stored[k]), core::float_from_half(core::half_from_float(values[k] + 0.0F))))
        << std::bit_cast<std::uint32_t>(values[k]);
  kernels().gate_output(values.data(), gates.data(), zeros.data(), zeros.data(), nullptr, 1, count, stored.data(), Storage::kBf16);
  for (std::size_t k = 0; k < values.size(); ++k)
    ASSERT_TRUE(same(core::float_from_bf16(stored[k]), core::float_from_bf16(core::bf16_from_float(values[k] + 0.0F))))
        << std::bit_cast<std::uint32_t>(values[k]);
}

TEST_P(Conversions, RoundsFp32ToBf16OnTheWayIn) {
  const std::vector<float> values = interesting_floats();
  std::vector<float> loaded(values.size());
  kernels().load(values.data(), Storage::kF32, true, static_cast<std::int64_t>(values.size()), loaded.data());
  for (std::size_t k = 0; k < values.size(); ++k)
    ASSERT_TRUE(same(loaded[k], core::round_mantissa(values[k], 7))) << std::bit_cast<std::uint32_t>(values[k]);
  kernels().load(values.data(), Storage::kF32, false, static_cast<std::int64_t>(values.size()), loaded.data());
  for (std::size_t k = 0; k < values.size(); ++k) ASSERT_TRUE(same(loaded[k], values[k]));
}

TEST_P(Conversions, TouchNothingPastTheCount) {
  for (std::int64_t count = 0; count <= 40; ++count) {
    const std::vector<std::uint16_t> stored(static_cast<std::size_t>(count), 0x3c00);
    std::vector<float> loaded(static_cast<std::size_t>(count) + 8, -7.0F);
    kernels().load(stored.data(), Storage::kF16, false, count, loaded.data());
    for (std::size_t k = 0; k < loaded.size(); ++k) EXPECT_EQ(loaded[k], k < stored.size() ? 1.0F : -7.0F);
  }
}

TRIMUL_INSTANTIATE_ROW_KERNEL_TEST(Conversions);

}  // namespace
}  // namespace trimul::cpu
