// SPDX-License-Identifier: Apache-2.0
// Mask zero is a selection: padding may hold anything.
#include <cmath>

#include "support/operator_test.hpp"

namespace trimul::testing {
namespace {

class MaskSelection : public OperatorTest {
 protected:
  static bool is_masked(const Case& data, std::int64_t b, std::int64_t i, std::int64_t j) { return data.mask_at(b, i, j) == 0.0; }

  /// A copy of the case whose x holds `payload` in every masked pair.
  static Case with_payload(const Spec& spec, double payload) {
    Case data(spec);
    for (std::int64_t b = 0; b < spec.batch(); ++b)
      for (std::int64_t i = 0; i < spec.n; ++i)
        for (std::int64_t j = 0; j < spec.n; ++j)
          if (is_masked(data, b, i, j))
            for (std::int64_t k = 0; k < spec.c_z; ++k) data.set_x(b, i, j, k, payload);
    return data;
  }
};

TEST_P(MaskSelection, MaskedPairsContributeNothingEvenIfTheyHoldNan) {
  for (const DType dtype : kXDTypes)
    for (const double payload : {std::nan(""), HUGE_VAL, -HUGE_VAL, dtype == DType::kF16 ? 6e4 : 3e38})
      for (const MaskKind kind : {MaskKind::kRandom01, MaskKind::kPadded, MaskKind::kFractional, MaskKind::kOneTokenOff})
        for (const auto direction : kDirections) {
          const Spec spec = fitted({.lead = {2}, .n = 9, .x_dtype = dtype, .direction = direction, .mask = kind, .residual = true});
          const Case clean(spec);
          if (on_gpu() && dtype != spec.x_dtype) continue;  // one of the four is the GPU's
          if (!accepts(clean)) continue;
          const Case filled = with_payload(spec, payload);
          const auto expected = run(clean, implementation()).values;
          const auto got = run(filled, implementation()).values;
          std::size_t different = 0;
          std::size_t at = 0;
          for (std::int64_t b = 0; b < 2; ++b)
            for (std::int64_t i = 0; i < 9; ++i)
              for (std::int64_t j = 0; j < 9; ++j)
                for (std::int64_t k = 0; k < spec.c_z; ++k, ++at)
                  if (!is_masked(clean, b, i, j) && got[at] != expected[at]) ++different;
          EXPECT_EQ(different, 0U) << implementation() << ", payload " << payload << ": " << describe(spec);
        }
}

TEST_P(MaskSelection, AMaskedPairsOwnOutputDependsOnItsX) {
  const Spec spec = fitted({.n = 9, .mask = MaskKind::kRandom01});
  const Case filled = with_payload(spec, std::nan(""));
  ASSERT_TRUE(accepts(filled));
  const auto got = run(filled, implementation()).values;
  for (std::int64_t i = 0; i < 9; ++i)
    for (std::int64_t j = 0; j < 9; ++j)
      EXPECT_EQ(std::isnan(got[static_cast<std::size_t>((i * 9 + j) * spec.c_z)]), is_masked(filled, 0, i, j)) << i << ", " << j;
}

TEST_P(MaskSelection, OutputsOfMaskedPairsAreNotMasked) {
  const Case data(fitted({.n = 9, .mask = MaskKind::kAllZero}));
  ASSERT_TRUE(accepts(data));
  check(data);
  for (const double value : run(data, implementation()).values) EXPECT_NE(value, 0.0);
}

TEST_P(MaskSelection, NegativeZeroIsZero) {
  Case data(fitted({.n = 6, .mask = MaskKind::kPadded}));
  ASSERT_TRUE(accepts(data));
  const auto expected = run(data, implementation()).values;
  for (std::int64_t i = 0; i < 6; ++i)
    for (std::int64_t j = 0; j < 6; ++j)
      if (is_masked(data, 0, i, j)) {
        data.set_mask(0, i, j, -0.0);
        data.set_x(0, i, j, 0, std::nan(""));
      }
  const auto got = run(data, implementation()).values;
  for (std::int64_t i = 0; i < 6; ++i)
    for (std::int64_t j = 0; j < 6; ++j)
      if (const auto at = static_cast<std::size_t>((i * 6 + j) * data.spec.c_z); !is_masked(data, 0, i, j)) {
        EXPECT_EQ(got[at], expected[at]);
      }
}

TEST_P(MaskSelection, FormsOfOneMaskGiveOneResult) {
  // Bit for bit: a mask's dtype and layout are not part of the mathematics.
  const Spec plain = fitted({.lead = {3}, .n = 7, .mask = MaskKind::kRandom01});
  Case expected_case(plain);
  ASSERT_TRUE(accepts(expected_case));
  for (std::int64_t b = 1; b < 3; ++b)  // the same mask for every sample, so that shared forms can hold it
    for (std::int64_t i = 0; i < 7; ++i)
      for (std::int64_t j = 0; j < 7; ++j) expected_case.set_mask(b, i, j, expected_case.mask_at(0, i, j));
  const auto expected = run(expected_case, implementation()).raw;
  for (const MaskForm form : kAllMaskForms)
    for (const DType dtype :
         {DType::kBool, DType::kI8, DType::kU8, DType::kI16, DType::kI32, DType::kI64, DType::kBf16, DType::kF16, DType::kF64}) {
      Spec spec = plain;
      spec.mask_form = form;
      spec.mask_dtype = dtype;
      Case data(spec);
      for (std::int64_t b = 0; b < 3; ++b)
        for (std::int64_t i = 0; i < 7; ++i)
          for (std::int64_t j = 0; j < 7; ++j) data.set_mask(b, i, j, expected_case.mask_at(0, i, j));
      EXPECT_TRUE(run(data, implementation()).raw == expected) << implementation() << ": " << describe(spec);
    }
}

TEST_P(MaskSelection, AllOnesIsTheSameAsNoMask) {
  Case ones(fitted({.lead = {2}, .n = 11}));
  ASSERT_TRUE(accepts(ones));
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t i = 0; i < 11; ++i)
      for (std::int64_t j = 0; j < 11; ++j) ones.set_mask(b, i, j, 1.0);
  Spec none = ones.spec;
  none.mask = MaskKind::kNone;
  EXPECT_TRUE(run(ones, implementation()).raw == run(Case(none), implementation()).raw);
}

TRIMUL_INSTANTIATE_OPERATOR_TEST(MaskSelection);

}  // namespace
}  // namespace trimul::testing
