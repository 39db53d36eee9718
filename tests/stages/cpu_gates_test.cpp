// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "core/dtype.hpp"
#include "stages/row_kernels_of_this_machine.hpp"
#include "support/random.hpp"

namespace trimul::cpu {
namespace {

using testing::Random;

class Gates : public RowKernelTest {
 protected:
  /// sigmoid of each logit as the kernels compute it.
  [[nodiscard]] std::vector<float> sigmoid(const std::vector<float>& logits) const {
    const std::vector<float> ones(logits.size(), 1.0F);
    std::vector<float> out(logits.size());
    kernels().gate_channel(ones.data(), logits.data(), 0.0F, 0.0F, nullptr, static_cast<std::int64_t>(logits.size()), out.data());
    return out;
  }
};

double exact_sigmoid(float logit) {
  return 1.0 / (1.0 + std::exp(-static_cast<double>(logit)));
}

TEST_P(Gates, SigmoidIsRelativelyAccurateOverItsRange) {
  std::vector<float> logits;
  for (float x = -86.0F; x <= 90.0F; x += 0.0009F) logits.push_back(x);
  Random random(5);
  for (int k = 0; k < 100000; ++k) logits.push_back(static_cast<float>(random.normal() * 3));
  for (float x = 1.0F; x > 1e-38F; x *= 0.5F) logits.insert(logits.end(), {x, -x});
  const auto got = sigmoid(logits);
  double worst = 0.0;
  for (std::size_t k = 0; k < logits.size(); ++k)
    worst = std::max(worst, std::abs(static_cast<double>(got[k]) / exact_sigmoid(logits[k]) - 1.0));
  EXPECT_LT(worst, 4e-7);
}

TEST_P(Gates, SigmoidOfExtremesIsZeroOneOrNan) {
  const std::vector<float> logits{0.0F, -0.0F, 100.0F, 1e30F, HUGE_VALF, -100.0F, -1e30F, -HUGE_VALF, std::nanf("")};
  const auto got = sigmoid(logits);
  for (const std::size_t k : {0U, 1U}) EXPECT_EQ(got[k], 0.5F);
  for (const std::size_t k : {2U, 3U, 4U}) EXPECT_EQ(got[k], 1.0F);
  for (const std::size_t k : {5U, 6U, 7U}) {
    EXPECT_GE(got[k], 0.0F);
    EXPECT_LT(got[k], 1e-37F);
  }
  EXPECT_TRUE(std::isnan(got[8]));
}

TEST_P(Gates, ChannelIsGateTimesValueTimesMask) {
  Random random(6);
  for (std::int64_t count = 1; count <= 70; count += 3) {
    const auto size = static_cast<std::size_t>(count);
    std::vector<float> value(size), gate(size), mask(size), out(size + 4, -7.0F);
    for (std::size_t k = 0; k < size; ++k) {
      value[k] = static_cast<float>(random.normal());
      gate[k] = static_cast<float>(random.normal());
      mask[k] = random.coin(0.3) ? 0.0F : static_cast<float>(random.uniform(-1, 2));
    }
    kernels().gate_channel(value.data(), gate.data(), 0.25F, -0.5F, mask.data(), count, out.data());
    for (std::size_t k = 0; k < size; ++k) {
      const double expected = exact_sigmoid(gate[k] - 0.5F) * static_cast<double>(value[k] + 0.25F) * static_cast<double>(mask[k]);
      EXPECT_NEAR(static_cast<double>(out[k]), expected, std::abs(expected) * 1e-6);
    }
    for (std::size_t k = size; k < out.size(); ++k) EXPECT_EQ(out[k], -7.0F);
  }
}

TEST_P(Gates, AZeroMaskGivesPositiveZeroWhateverIsThere) {
  const float specials[] = {std::nanf(""), HUGE_VALF, -HUGE_VALF, 3e38F, -3e38F, -1.0F};
  for (const float zero : {0.0F, -0.0F}) {
    std::vector<float> value, gate;
    for (const float v : specials)
      for (const float g : specials) {
        value.push_back(v);
        gate.push_back(g);
      }
    const std::vector<float> mask(value.size(), zero);
    std::vector<float> out(value.size(), 5.0F);
    kernels().gate_channel(value.data(), gate.data(), 1.0F, 1.0F, mask.data(), static_cast<std::int64_t>(value.size()), out.data());
    for (const float result : out) {
      EXPECT_EQ(result, 0.0F);
      EXPECT_FALSE(std::signbit(result));
    }
  }
}

TEST_P(Gates, OutputAddsTheResidualBeforeItsOneRounding) {
  Random random(7);
  for (const std::int64_t rows : {1, 3})
    for (const std::int64_t width : {1, 5, 16, 33, 100}) {
      const auto size = static_cast<std::size_t>(rows * width);
      std::vector<float> value(size), gate(size), residual(size), value_bias(static_cast<std::size_t>(width)), gate_bias(value_bias.size());
      for (auto* list : {&value, &gate, &residual, &value_bias, &gate_bias})
        for (float& v : *list) v = static_cast<float>(random.normal());
      for (const bool with_residual : {false, true}) {
        std::vector<float> out(size + 4, -7.0F);
        std::vector<std::uint16_t> narrow(size);
        const float* const x = with_residual ? residual.data() : nullptr;
        kernels().gate_output(value.data(), gate.data(), value_bias.data(), gate_bias.data(), x, rows, width, out.data(), Storage::kF32);
        for (std::size_t k = 0; k < size; ++k) {
          const std::size_t column = k % static_cast<std::size_t>(width);
          const double expected = exact_sigmoid(gate[k] + gate_bias[column]) * static_cast<double>(value[k] + value_bias[column]) +
                                  (with_residual ? static_cast<double>(residual[k]) : 0.0);
          EXPECT_NEAR(static_cast<double>(out[k]), expected, 2e-6);
        }
        for (std::size_t k = size; k < out.size(); ++k) EXPECT_EQ(out[k], -7.0F);
        kernels().gate_output(value.data(), gate.data(), value_bias.data(), gate_bias.data(), x, rows, width, narrow.data(),
                              Storage::kBf16);
        for (std::size_t k = 0; k < size; ++k) EXPECT_EQ(narrow[k], core::bf16_from_float(out[k]));
        kernels().gate_output(value.data(), gate.data(), value_bias.data(), gate_bias.data(), x, rows, width, narrow.data(), Storage::kF16);
        for (std::size_t k = 0; k < size; ++k) EXPECT_EQ(narrow[k], core::half_from_float(out[k]));
      }
    }
}

TEST_P(Gates, OutputMayReplaceItsResidual) {
  Random random(8);
  for (const std::int64_t width : {1, 7, 16, 40, 129}) {
    const auto size = static_cast<std::size_t>(2 * width);
    std::vector<float> value(size), gate(size), residual(size), zeros(static_cast<std::size_t>(width)), expected(size);
    for (auto* list : {&value, &gate, &residual})
      for (float& v : *list) v = static_cast<float>(random.normal());
    kernels().gate_output(value.data(), gate.data(), zeros.data(), zeros.data(), residual.data(), 2, width, expected.data(), Storage::kF32);
    kernels().gate_output(value.data(), gate.data(), zeros.data(), zeros.data(), residual.data(), 2, width, residual.data(), Storage::kF32);
    EXPECT_EQ(residual, expected);
  }
}

TRIMUL_INSTANTIATE_ROW_KERNEL_TEST(Gates);

}  // namespace
}  // namespace trimul::cpu
