// SPDX-License-Identifier: Apache-2.0
// Data that break a LayerNorm, a range or an eps.
#include <cmath>
#include <limits>

#include "support/composition.hpp"
#include "support/operator_test.hpp"

namespace trimul::testing {
namespace {

class Extremes : public OperatorTest {};

TEST_P(Extremes, RowsWithALargeMeanKeepTheirDeviations) {
  for (const double mean : {1e2, 1e3, 1e4, -4e4, 4e4})
    for (const std::int64_t c_z : {32, 100, 384})
      for (const auto direction : kDirections) {
        const Spec spec = fitted({.n = 7, .c_z = c_z, .direction = direction, .x_mean = mean, .x_std = 1.0});
        // Hopper's kernels normalise by one fused multiply-add, which is off by 2^-24 of |mean| / std before the value is rounded to bf16:
        // more cells than the sweep's 300 in a million round to a neighbour.
        check(spec, {}, {.absolute = !on_gpu() || spec.x_dtype == DType::kF32});
      }
  for (const DType dtype : {DType::kBf16, DType::kF16}) check({.n = 7, .c_z = 100, .x_dtype = dtype, .x_mean = 2e4, .x_std = 1e3});
}

TEST_P(Extremes, ConstantRowsNormaliseToTheBias) {
  for (const std::int64_t c_z : {32, 48, 100, 7}) {
    Case data(fitted({.n = 8, .c_z = c_z}));
    const double constants[] = {0.0, 1e-3, 1.0, -7.3, 4e4, 3e12, 1e-30, 3e38};
    for (std::int64_t i = 0; i < 8; ++i)
      for (std::int64_t j = i % 2; j < 8; j += 2)
        for (std::int64_t k = 0; k < data.spec.c_z; ++k) data.set_x(0, i, j, k, constants[j]);
    check(data);
    if (data.spec.c_z != c_z) break;  // one width
  }
}

TEST_P(Extremes, OneHugeChannelDoesNotHideTheOthers) {
  for (const double huge : {1e3, 3e4, 1e10, 1e20, 3e38})
    for (const std::int64_t channel : {0, 17, 31}) {
      Case data(fitted({.n = 7, .direction = TRIMUL_INCOMING}));
      for (std::int64_t i = 0; i < 7; ++i)
        for (std::int64_t j = 0; j < 7; j += 1 + i % 2) data.set_x(0, i, j, channel, huge);
      check(data);
    }
}

TEST_P(Extremes, ScaleOfXDoesNotMatterButForEps) {
  for (const double scale : {1e-30, 1e-20, 1e-10, 1e-5, 1e-3, 1e4, 1e10, 1e18, 3e18, 1e19, 1e30, 1e37})
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF64}) check({.n = 7, .x_dtype = dtype, .x_mean = 0.0, .x_std = scale});
}

TEST_P(Extremes, ScaleOfYDoesNotMatter) {
  // Without biases y scales with the square of in_scale: up to 1e32 here, whose square no fp32 holds.
  for (const double in_scale : {1e4, 1e8, 3e9, 1e10, 1e13, 1e16})
    for (const DType dtype : {DType::kF32, DType::kBf16})
      check({.n = 7, .x_dtype = dtype, .absent = kProjectionBiases, .in_scale = in_scale});
}

TEST_P(Extremes, EpsIsExactInBothNormsAtEveryScale) {
  // Without biases y is as small as in_scale squared: eps then decides the result.
  constexpr unsigned kAbsent = kProjectionBiases | bit(kNormInBias) | bit(kNormOutBias);
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16})
    for (const float eps : {1e-30F, 1e-12F, 1e-8F, 1e-5F, 1e-3F, 1.0F, 1e4F})
      for (const double in_scale : {1e-3, 0.03, 1.0, 30.0, 1e3})
        for (const double x_std : {1e-3, 1.3}) {
          if (dtype == DType::kF16 && (eps > 1e-5F || in_scale < 0.03)) continue;  // the result would be subnormal
          check({.n = 6, .x_dtype = dtype, .eps = eps, .absent = kAbsent, .x_mean = 0.0, .x_std = x_std, .in_scale = in_scale});
        }
}

TEST_P(Extremes, Fp16ServesLargeYWithoutOverflow) {
  for (const std::int64_t n : {8, 24})
    for (const auto direction : kDirections) {
      Spec spec{.n = n, .x_dtype = DType::kF16, .direction = direction, .mask = MaskKind::kNone};
      double largest = 0.0;
      for (const double y : compose_y(Case(spec))) largest = std::max(largest, std::abs(y));
      spec.in_scale = std::sqrt(1.7e6 / largest);  // y is a product of two factors that scale with it
      const Case data(spec);
      check(data, {}, {.none = 2e-3});
      if (!accepts(data)) continue;
      for (const double value : run(data, implementation()).values) ASSERT_TRUE(std::isfinite(value));
    }
}

TEST_P(Extremes, ResultsBeyondTheDtypeBecomeInfAndNothingElseDoes) {
  Case data({.n = 5, .x_dtype = DType::kF16});
  for (std::int64_t k = 0; k < 32; ++k) data.parameters[kPOutWeight]->set({3, k}, k % 3 == 0 ? -6e4 : 6e4);
  check(data, {}, {.absolute = false});
}

TEST_P(Extremes, NanAndInfStandWhereTheReferenceHasThem) {
  for (const double payload : {std::nan(""), HUGE_VAL, -HUGE_VAL})
    for (const DType dtype : kXDTypes)
      for (const auto direction : kDirections) {
        Case data(fitted({.lead = {2}, .n = 9, .x_dtype = dtype, .direction = direction, .mask = MaskKind::kFractional}));
        if (on_gpu() && dtype != data.spec.x_dtype) continue;
        data.set_x(1, 2, 5, 3, payload);
        data.set_mask(1, 2, 5, 0.5);
        check(data);
      }
}

TEST_P(Extremes, NanAndInfInTheMaskSpreadAsTheReferenceSays) {
  for (const double payload : {std::nan(""), HUGE_VAL})
    for (const auto direction : kDirections) {
      Case data(fitted({.n = 9, .direction = direction, .mask = MaskKind::kFractional}));
      data.set_mask(0, 2, 5, payload);
      check(data);
    }
}

TEST_P(Extremes, NanInAParameterReachesExactlyWhatItTouches) {
  for (unsigned k = 0; k < kNumParameters; ++k)
    for (const double payload : {std::nan(""), HUGE_VAL}) {
      Case data(fitted({.n = 6}));
      HostTensor& parameter = *data.parameters[k];
      parameter.set(parameter.sizes().size() == 2 ? Sizes{5, 7} : Sizes{5}, payload);
      // v sigmoid(g) is v / 2 + v / 2 tanh(g / 2) on a GPU: inf - inf where the gate is below one half. And bf16's rounding decides the
      // sign of what an infinite weight meets near zero (docs/numerics.md).
      check(data, {}, {.absolute = false, .infinities = !on_gpu()});
    }
}

TRIMUL_INSTANTIATE_OPERATOR_TEST(Extremes);

}  // namespace
}  // namespace trimul::testing
