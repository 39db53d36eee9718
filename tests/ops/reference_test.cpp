// SPDX-License-Identifier: Apache-2.0
// The oracle itself: against numbers computed by hand, against a differently structured implementation in wider arithmetic, and
// against itself where it has two ways to one result.
#include <cmath>

#include "reference/reference.hpp"
#include "support/composition.hpp"
#include "support/operator_test.hpp"

namespace trimul::testing {
namespace {

double sigmoid(double logit) {
  return 1.0 / (1.0 + std::exp(-logit));
}

/// C_z = C = 1: LayerNorm of one value is its bias, so every intermediate is known without arithmetic on x.
Case one_channel(std::int64_t n, std::int32_t direction, bool residual) {
  Case data({.n = n, .c_z = 1, .c = 1, .x_dtype = DType::kF64, .direction = direction, .mask_dtype = DType::kF64, .residual = residual});
  const double values[kNumParameters] = {7.0, 0.5, 2.0, 0.25, -1.0, 0.75, 3.0, -0.5, 4.0, 0.125, 0.5, -0.25};
  for (unsigned k = 0; k < kNumParameters; ++k) {
    double next = values[k];
    data.parameters[k]->fill([&next] { return next *= -1.5; });  // the a row and the b row differ
  }
  return data;
}

TEST(Reference, MatchesHandComputationAtOneChannel) {
  // z = norm_in_bias, u = norm_out_bias, whatever x, mask, direction and n.
  const double z = 0.5 * -1.5, u = -0.5 * -1.5;
  const double expected = sigmoid(0.5 * -1.5 * z + -0.25 * -1.5) * (4.0 * -1.5 * u + 0.125 * -1.5);
  for (const auto direction : kDirections)
    for (const std::int64_t n : {1, 2})
      for (const bool residual : {false, true}) {
        const Case data = one_channel(n, direction, residual);
        const auto x = data.x.values();
        const auto got = reference_of(data);
        for (std::size_t k = 0; k < got.size(); ++k) EXPECT_NEAR(got[k], expected + (residual ? x[k] : 0.0), 1e-14);
      }
}

/// C_z = 1, C = 2, N = 2: y decides, through a LayerNorm over two channels: u = +-d / sqrt(d^2 + eps), d = half the difference.
TEST(Reference, MatchesHandComputationAtTwoTokens) {
  for (const auto direction : kDirections) {
    Case data({.n = 2,
               .c_z = 1,
               .c = 2,
               .x_dtype = DType::kF64,
               .direction = direction,
               .eps = 0.25F,
               .mask = MaskKind::kFractional,
               .mask_dtype = DType::kF64,
               .absent = kProjectionBiases | kNormVectors});
    data.spec.absent &= ~bit(kNormInBias);
    data.parameters[kNormInBias].emplace(DType::kF64, Sizes{1}).set({0}, 1.0);  // z = 1 everywhere
    const double p[4] = {1.0, 2.0, 3.0, -1.0};                                  // a0, a1, b0, b1
    for (std::int64_t k = 0; k < 4; ++k) {
      data.parameters[kPInWeight]->set({k, 0}, p[k]);
      data.parameters[kGInWeight]->set({k, 0}, 0.0);  // gates of one half
    }
    data.parameters[kPOutWeight]->set({0, 0}, 5.0);
    data.parameters[kPOutWeight]->set({0, 1}, 1.0);
    data.parameters[kGOutWeight]->set({0, 0}, 0.0);
    const double m[2][2] = {{1.0, -0.5}, {2.0, 0.0}};
    for (std::int64_t i = 0; i < 2; ++i)
      for (std::int64_t j = 0; j < 2; ++j) data.set_mask(0, i, j, m[i][j]);
    // a = p_a m / 2, b = p_b m / 2; y[i, j] = p_a p_b / 4 * s with s = sum_k m[i, k] m[j, k] or sum_k m[k, i] m[k, j].
    const double outgoing[2][2] = {{1.25, 2.0}, {2.0, 4.0}};
    const double incoming[2][2] = {{5.0, -0.5}, {-0.5, 0.25}};
    const auto got = reference_of(data);
    for (std::size_t i = 0; i < 2; ++i)
      for (std::size_t j = 0; j < 2; ++j) {
        const double s = direction == TRIMUL_OUTGOING ? outgoing[i][j] : incoming[i][j];
        const double y0 = 1.0 * 3.0 / 4 * s, y1 = 2.0 * -1.0 / 4 * s;
        const double d = (y0 - y1) / 2, u = d / std::sqrt(d * d + 0.25);
        EXPECT_NEAR(got[i * 2 + j], 0.5 * (5.0 * u - 1.0 * u), 1e-14) << i << ", " << j;
      }
  }
}

TEST(Reference, MatchesAnIndependentCompositionInLongDouble) {
  for (const std::int64_t n : {1, 2, 3, 7, 12})
    for (const std::int64_t c_z : {1, 3, 32, 40})
      for (const std::int64_t c : {1, 5, 33})
        for (const auto direction : kDirections) {
          const auto k = static_cast<std::size_t>(n + c_z + c);
          const Case data({.lead = {2},
                           .n = n,
                           .c_z = c_z,
                           .c = c,
                           .x_dtype = kXDTypes[k % 4],
                           .direction = direction,
                           .mask = kAllMaskKinds[k % 6],
                           .mask_form = kAllMaskForms[k % 7],
                           .mixed_weights = k % 2 == 0,
                           .residual = k % 3 == 0});
          const auto expected = compose<long double>(data);
          const double noise = relative_rms(compose<double>(data), expected);
          EXPECT_LE(relative_rms(reference_of(data), expected), 2 * noise + 1e-14) << describe(data.spec);
        }
}

TEST(Reference, MatchesLongDoubleOnExtremeRows) {
  for (const double mean : {0.0, 1e3, 4e4, 1e8})
    for (const float eps : {1e-20F, 1e-5F, 1.0F}) {
      const Case data({.n = 5, .c_z = 33, .x_dtype = DType::kF64, .eps = eps, .x_mean = mean});
      const auto expected = compose<long double>(data);
      EXPECT_LE(relative_rms(reference_of(data), expected), 2 * relative_rms(compose<double>(data), expected) + 1e-14);
    }
}

TEST(Reference, ConstantRowsHaveNoDeviationAtTheSmallestEps) {
  for (const std::size_t width : {1U, 3U, 48U, 100U, 129U})
    for (const double value : {0.1, 4e4, 3e38, 1e300}) {
      const std::vector<double> row(width, value), weight(width, 1.0), bias(width, 0.75);
      std::vector<double> out(width);
      reference::layer_norm(row, weight, bias, 1e-38, out);
      for (const double normalised : out) EXPECT_EQ(normalised, 0.75) << width << " values of " << value;
    }
}

TEST(Reference, KernelRoundingMatchesAnIndependentComposition) {
  for (const DType dtype : kXDTypes)
    for (const std::int32_t precision :
         {TRIMUL_PRECISION_DEFAULT, TRIMUL_PRECISION_TF32, TRIMUL_PRECISION_TF32X3, TRIMUL_PRECISION_IEEE, TRIMUL_PRECISION_BF16})
      for (const auto direction : kDirections) {
        const Case data({.lead = {2},
                         .n = 9,
                         .c_z = 40,
                         .c = 33,
                         .x_dtype = dtype,
                         .direction = direction,
                         .precision = precision,
                         .mask = MaskKind::kFractional,
                         .weight_dtype = DType::kF32,
                         .residual = true});
        const auto expected = compose<double>(data, kernel_points(data.spec));
        const auto got = reference_of(data, TRIMUL_ROUNDING_KERNEL);
        // Values an ulp of fp64 apart may round to either side: a fraction of a rounding in single cells, nothing on average.
        EXPECT_LE(relative_rms(got, expected), 2e-5) << describe(data.spec);
        const double effect = relative_rms(got, reference_of(data));
        const bool rounds = kernel_points(data.spec).masked != RoundingPoints::keep;
        if (rounds) {
          EXPECT_GT(effect, 5e-5) << describe(data.spec);
        } else {
          EXPECT_EQ(effect, 0.0) << describe(data.spec);
        }
      }
}

TEST(Reference, KernelRoundingOfBf16IsAsLargeAsKnown) {
  const Case data(
      {.n = 24, .c_z = 128, .c = 128, .x_dtype = DType::kBf16, .mask = MaskKind::kNone, .absent = kProjectionBiases, .x_mean = 0.0});
  const double effect = relative_rms(reference_of(data, TRIMUL_ROUNDING_KERNEL), reference_of(data));
  EXPECT_GT(effect, 1.5e-3);
  EXPECT_LT(effect, 1e-2);
}

TEST(Reference, SampledCellsEqualTheFullReference) {
  for (const auto direction : kDirections)
    for (const auto rounding : {TRIMUL_ROUNDING_NONE, TRIMUL_ROUNDING_KERNEL}) {
      const Case data({.lead = {2, 2},
                       .n = 11,
                       .c_z = 24,
                       .c = 17,
                       .x_dtype = DType::kBf16,
                       .direction = direction,
                       .mask = MaskKind::kFractional,
                       .residual = true});
      const auto full = reference_of(data, rounding);
      Random random(data.spec.seed);
      std::vector<std::int64_t> cells;
      for (int k = 0; k < 40; ++k) cells.insert(cells.end(), {random.integer(0, 3), random.integer(0, 10), random.integer(0, 10)});
      cells.insert(cells.end(), cells.begin(), cells.begin() + 3);  // one twice
      const Bound bound(data);
      const trimul_update_args args = bound.update_args(data);
      std::vector<double> sampled(cells.size() / 3 * 24);
      ASSERT_EQ(trimul_reference(&args, rounding, cells.data(), cells.size() / 3, sampled.data()), TRIMUL_OK) << trimul_last_error();
      for (std::size_t k = 0; k < cells.size() / 3; ++k)
        for (std::size_t channel = 0; channel < 24; ++channel) {
          const auto cell = static_cast<std::size_t>((cells[3 * k] * 11 + cells[3 * k + 1]) * 11 + cells[3 * k + 2]);
          EXPECT_EQ(sampled[k * 24 + channel], full[cell * 24 + channel]);
        }
    }
}

TEST(Reference, RefusesCellsOutsideOfTheProblem) {
  const Case data({.lead = {2}, .n = 3});
  const Bound bound(data);
  const trimul_update_args args = bound.update_args(data);
  std::vector<double> result(32);
  for (const auto& cell : std::vector<std::vector<std::int64_t>>{{2, 0, 0}, {-1, 0, 0}, {0, 3, 0}, {0, 0, 3}, {0, -1, 0}}) {
    EXPECT_EQ(trimul_reference(&args, TRIMUL_ROUNDING_NONE, cell.data(), 1, result.data()), TRIMUL_INVALID_ARGUMENT);
    EXPECT_NE(std::string(trimul_last_error()).find("cells: entry 0"), std::string::npos) << trimul_last_error();
  }
}

}  // namespace
}  // namespace trimul::testing
