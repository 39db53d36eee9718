// SPDX-License-Identifier: Apache-2.0
// Each precision is what it says: operands that lose a bit where TF32 is asked for and nowhere else, and errors of the size that it has.
#include <cmath>

#include "support/operator_test.hpp"

namespace trimul::testing {
namespace {

class PrecisionTest : public OperatorTest {
 protected:
  [[nodiscard]] double error_of(Spec spec, std::int32_t precision) {
    spec.precision = precision;
    const Case data(spec);
    return relative_rms(run(data, implementation()).values, reference_of(data));
  }
};

// 4097 has 13 significant bits: TF32, which has 11, makes 4096 of it, whichever way it rounds halves.
constexpr double kLong = 4097.0;
constexpr double kShort = 4096.0;
/// A gate that is open: sigmoid(100) is 1 in fp32.
constexpr double kOpen = 100.0;

/// One operand of a matrix product is kLong; the result is `exact` where it stays, `rounded` where it becomes kShort.
struct Probe {
  const char* name;
  void (*set)(Case& data);
  double exact, rounded;
};

void set(Case& data, ParameterId id, const std::vector<double>& values) {
  std::size_t next = 0;
  data.parameters[id]->fill([&] { return values[next++ % values.size()]; });
}

/// C_z = C = 2 and z = (1, 1), since the weight of the first LayerNorm is 0 and its bias 1. Gates are open. Without more, a = b = 0.
Case blank(std::int32_t direction, std::int32_t precision, std::int64_t n = 3) {
  Case data({.n = n, .c_z = 2, .c = 2, .direction = direction, .precision = precision, .mask = MaskKind::kNone});
  for (auto& parameter : data.parameters) parameter->fill([] { return 0.0; });
  set(data, kNormInBias, {1.0});
  set(data, kGInBias, {kOpen});
  set(data, kGOutBias, {kOpen});
  return data;
}

/// b = (1, 1), and the first channel of LayerNorm(y): about 1 where a is larger in the first channel, 0 where it is the same.
void compare_a(Case& data) {
  set(data, kNormOutWeight, {1.0});
  set(data, kPOutWeight, {1.0, 0.0});
}

const double kHalfOpen = 1.0 / (1.0 + std::exp(-1.0));
const Probe kProbes[] = {
    {"z",
     [](Case& data) {
       compare_a(data);
       set(data, kNormInBias, {kLong, 0.0});
       set(data, kPInWeight, {1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0});
       set(data, kPInBias, {-kShort, 0.0, 1.0, 1.0});
     },
     1.0, 0.0},
    {"p_in_weight",
     [](Case& data) {
       compare_a(data);
       set(data, kPInWeight, {kLong, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0});
       set(data, kPInBias, {-kShort, 0.0, 1.0, 1.0});
     },
     1.0, 0.0},
    {"g_in_weight",
     [](Case& data) {
       compare_a(data);
       set(data, kGInWeight, {kLong, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0});
       set(data, kGInBias, {-kShort, kOpen, kOpen, kOpen});
       set(data, kPInBias, {1.0, 0.5, 1.0, 1.0});  // sigmoid(0) = 0.5
     },
     1.0, 0.0},
    {"a",
     [](Case& data) {
       compare_a(data);
       set(data, kPInBias, {kLong, kShort, 1.0, 1.0});
     },
     1.0, 0.0},
    {"b",
     [](Case& data) {
       compare_a(data);
       set(data, kPInBias, {1.0, 1.0, kLong, kShort});
     },
     1.0, 0.0},
    {"u",
     [](Case& data) {
       set(data, kNormOutBias, {kLong, 0.0});
       set(data, kPOutWeight, {1.0, 0.0});
       set(data, kPOutBias, {-kShort});
     },
     1.0, 0.0},
    {"p_out_weight",
     [](Case& data) {
       set(data, kNormOutBias, {1.0, 0.0});
       set(data, kPOutWeight, {kLong, 0.0});
       set(data, kPOutBias, {-kShort});
     },
     1.0, 0.0},
    {"g_out_weight",
     [](Case& data) {
       set(data, kGOutWeight, {kLong, 0.0});
       set(data, kGOutBias, {-kShort});
       set(data, kPOutBias, {1.0});
     },
     kHalfOpen, 0.5},
};

TEST_P(PrecisionTest, EachOperandKeepsItsBitsUnlessTf32IsAskedFor) {
  for (const Probe& probe : kProbes)
    for (const auto direction : kDirections)
      for (const std::int32_t precision :
           {TRIMUL_PRECISION_DEFAULT, TRIMUL_PRECISION_TF32, TRIMUL_PRECISION_TF32X3, TRIMUL_PRECISION_IEEE}) {
        Case data = blank(direction, precision);
        probe.set(data);
        const bool is_tf32 = precision == TRIMUL_PRECISION_TF32;
        for (const double value : reference_of(data)) ASSERT_NEAR(value, probe.exact, 1e-4) << probe.name;
        for (const double value : reference_of(data, TRIMUL_ROUNDING_KERNEL))
          ASSERT_NEAR(value, is_tf32 ? probe.rounded : probe.exact, 1e-4) << probe.name;
        if (!accepts(data)) continue;
        for (const double value : run(data, implementation()).values)
          EXPECT_NEAR(value, is_tf32 && on_gpu() ? probe.rounded : probe.exact, 1e-4) << probe.name << ": " << describe(data.spec);
      }
}

TEST_P(PrecisionTest, IeeeKeepsEveryBit) {
  // 24 significant bits, of which the two fp16 parts of an operand hold 22 or 23.
  constexpr double kLongest = 8'392'703.0;
  for (const auto direction : kDirections) {
    Case data = blank(direction, TRIMUL_PRECISION_IEEE, 1);  // y is a b itself, without a sum
    if (!accepts(data)) continue;
    compare_a(data);
    set(data, kPInBias, {kLongest, kLongest - 1, 1.0, 1.0});
    for (const double value : run(data, implementation()).values) EXPECT_NEAR(value, 1.0, 1e-4);
  }
}

TEST_P(PrecisionTest, ErrorsAreOfThePrecisionsSize) {
  for (const auto direction : kDirections) {
    const Spec spec{.n = 40, .c_z = 64, .c = 64, .direction = direction, .mask = MaskKind::kFractional};
    if (!accepts(Case(spec))) return;
    const double tf32 = error_of(spec, TRIMUL_PRECISION_TF32), tf32x3 = error_of(spec, TRIMUL_PRECISION_TF32X3);
    const double ieee = error_of(spec, TRIMUL_PRECISION_IEEE);
    std::cout << implementation() << ": tf32 " << tf32 << ", tf32x3 " << tf32x3 << ", ieee " << ieee << '\n';
    EXPECT_EQ(error_of(spec, TRIMUL_PRECISION_DEFAULT), tf32x3);
    EXPECT_LE(tf32x3, 1e-5);
    EXPECT_LE(ieee, 1e-5);
    EXPECT_LE(ieee, 4 * tf32x3) << "fp32 products are no coarser than split ones";
    if (on_gpu()) {
      EXPECT_GE(tf32, 1e-5);
    }
    EXPECT_LE(tf32, 1e-3);
    EXPECT_GE(error_of(spec, TRIMUL_PRECISION_BF16), 1e-3);
  }
}

/// A case whose operands leave fp16's range by far, while what they come to together does not: channels of LayerNorm that are large and
/// small by turns, with weights that make up for it, rows of weights of every size, and mask elements of very different size, of which one
/// row or column of the pairs has the same.
Case stretched(std::int32_t direction, std::int32_t precision) {
  const Spec spec{.lead = {2}, .n = 41, .c_z = 64, .c = 64, .direction = direction, .precision = precision};
  Case data(spec);
  set(data, kPInBias, {0.0});
  const auto scale_columns = [&](ParameterId id, std::int64_t width, auto&& factor) {
    std::vector<double> values = data.parameters[id]->values();
    for (std::size_t k = 0; k < values.size(); ++k)
      values[k] *= factor(static_cast<std::int64_t>(k) / width, static_cast<std::int64_t>(k) % width);
    set(data, id, values);
  };
  const auto of_channel = [](std::int64_t channel) { return std::ldexp(1.0, channel % 2 == 0 ? 30 : -30); };
  for (const ParameterId id : {kNormInWeight, kNormInBias, kNormOutWeight, kNormOutBias})
    scale_columns(id, spec.c_z, [&](std::int64_t, std::int64_t column) { return of_channel(column); });
  for (const ParameterId id : {kGInWeight, kGOutWeight, kPOutWeight})
    scale_columns(id, spec.c_z, [&](std::int64_t, std::int64_t column) { return 1.0 / of_channel(column); });
  // Channel 0 of a is 2^20 times channel 1, that of b as much smaller, so that y's channels stay alike.
  scale_columns(kPInWeight, spec.c_z, [&](std::int64_t row, std::int64_t column) {
    const double of_plane = std::ldexp(1.0, (row % 2 == 0) == (row < spec.c) ? 20 : -20);
    return of_plane / of_channel(column);
  });
  for (std::int64_t b = 0; b < spec.batch(); ++b)
    for (std::int64_t i = 0; i < spec.n; ++i)
      for (std::int64_t k = 0; k < spec.n; ++k) {
        const std::int64_t token = direction == TRIMUL_OUTGOING ? i : k;
        data.set_mask(b, i, k, std::ldexp(data.mask_at(b, i, k) + 0.5, token == 3 ? 20 : token == 5 && b == 1 ? -3 : 0));
      }
  return data;
}

TEST_P(PrecisionTest, OperandsOfAnySizeKeepTheirBits) {
  for (const auto direction : kDirections)
    for (const auto& [precision, bound] : {std::pair{TRIMUL_PRECISION_DEFAULT, 1e-5}, std::pair{TRIMUL_PRECISION_TF32, 1e-3}}) {
      const Case data = stretched(direction, precision);
      if (!accepts(data)) continue;
      const double error = relative_rms(run(data, implementation()).values, reference_of(data));
      std::cout << implementation() << ": " << describe(data.spec) << ": " << error << '\n';
      EXPECT_LE(error, bound) << describe(data.spec);
    }
}

TEST_P(PrecisionTest, Tf32DoesNotConcern16BitX) {
  for (const DType dtype : {DType::kBf16, DType::kF16})
    for (const std::int64_t c_z : {32, 33}) {
      Spec spec = fitted({.lead = {2}, .n = 17, .c_z = c_z, .c = 40, .x_dtype = dtype});
      if (!accepts_new(Case(spec))) continue;
      const auto expected = run(Case(spec), implementation()).raw;
      for (const std::int32_t precision : {TRIMUL_PRECISION_NONE, TRIMUL_PRECISION_TF32, TRIMUL_PRECISION_TF32X3}) {
        spec.precision = precision;
        if (!accepts(Case(spec))) continue;
        EXPECT_TRUE(run(Case(spec), implementation()).raw == expected) << describe(spec);
      }
    }
}

TEST_P(PrecisionTest, IeeeOf16BitXRoundsTheOutputAlone) {
  for (const DType dtype : {DType::kBf16, DType::kF16})
    for (const std::int64_t c_z : {32, 33, 128})
      check({.lead = {2}, .n = 24, .c_z = c_z, .c = 48, .x_dtype = dtype, .precision = TRIMUL_PRECISION_IEEE, .weight_dtype = DType::kF32});
}

TRIMUL_INSTANTIATE_OPERATOR_TEST(PrecisionTest);

}  // namespace
}  // namespace trimul::testing
