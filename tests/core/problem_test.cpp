// SPDX-License-Identifier: Apache-2.0
// Rules about the problem alone.
#include "core/problem.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <locale>

#include "core/plan.hpp"
#include "support/errors.hpp"

namespace trimul::testing {
namespace {

trimul_problem valid_problem() {
  trimul_problem problem = TRIMUL_PROBLEM_INIT;
  problem.tokens = 8;
  problem.c_z = 32;
  problem.c_hidden = 16;
  return problem;
}

std::string validated(const trimul_problem& problem) {
  return outcome_of([&] { core::validate_problem(problem); });
}

struct BadField {
  const char* name;
  void (*change)(trimul_problem&);
  const char* message;
};
void PrintTo(const BadField& field, std::ostream* stream) {
  *stream << field.name;
}

const BadField kBadFields[] = {
    {"NegativeBatch", [](trimul_problem& p) { p.batch = -1; }, "problem: batch B is -1, expected at least 0"},
    {"NegativeTokens", [](trimul_problem& p) { p.tokens = -3; }, "problem: tokens N is -3, expected at least 0"},
    {"ZeroPairWidth", [](trimul_problem& p) { p.c_z = 0; }, "problem: c_z is 0, expected at least 1"},
    {"NegativePairWidth", [](trimul_problem& p) { p.c_z = -8; }, "problem: c_z is -8, expected at least 1"},
    {"ZeroHiddenWidth", [](trimul_problem& p) { p.c_hidden = 0; }, "problem: c_hidden is 0, expected at least 1"},
    {"UnknownDirection", [](trimul_problem& p) { p.direction = 2; }, "problem: direction is 2, expected 0 (outgoing) or 1 (incoming)"},
    {"NegativeDirection", [](trimul_problem& p) { p.direction = -1; }, "problem: direction is -1, expected 0 (outgoing) or 1 (incoming)"},
    {"UnknownPrecision", [](trimul_problem& p) { p.precision = 99; },
     "problem: precision is 99, expected -1 (none), 0 (default), 1 (tf32), 2 (tf32x3), 3 (ieee), 4 (mxfp8) or 5 (bfloat16)"},
    {"PrecisionBelowNone", [](trimul_problem& p) { p.precision = -2; },
     "problem: precision is -2, expected -1 (none), 0 (default), 1 (tf32), 2 (tf32x3), 3 (ieee), 4 (mxfp8) or 5 (bfloat16)"},
    {"PrecisionAboveBf16", [](trimul_problem& p) { p.precision = 6; },
     "problem: precision is 6, expected -1 (none), 0 (default), 1 (tf32), 2 (tf32x3), 3 (ieee), 4 (mxfp8) or 5 (bfloat16)"},
    {"IntegerX", [](trimul_problem& p) { p.x_dtype = TRIMUL_I32; }, "x: dtype is int32 (9), expected bf16, fp16, fp32 or fp64"},
    {"BoolX", [](trimul_problem& p) { p.x_dtype = TRIMUL_BOOL; }, "x: dtype is bool (5), expected bf16, fp16, fp32 or fp64"},
    {"UnknownX", [](trimul_problem& p) { p.x_dtype = 77; }, "x: dtype is unknown (77), expected bf16, fp16, fp32 or fp64"},
    {"ZeroEps", [](trimul_problem& p) { p.eps = 0.0F; }, "problem: eps is 0, expected finite and greater than 0"},
    {"NegativeEps", [](trimul_problem& p) { p.eps = -1.0F; }, "problem: eps is -1, expected finite and greater than 0"},
    {"InfiniteEps", [](trimul_problem& p) { p.eps = HUGE_VALF; }, "problem: eps is inf, expected finite and greater than 0"},
    {"NanEps", [](trimul_problem& p) { p.eps = std::nanf(""); }, "problem: eps is nan, expected finite and greater than 0"},
    {"MaskFlag", [](trimul_problem& p) { p.has_mask = 2; }, "problem: has_mask is 2, expected 0 or 1"},
    {"InBiasFlag", [](trimul_problem& p) { p.has_in_bias = -1; }, "problem: has_in_bias is -1, expected 0 or 1"},
    {"OutBiasFlag", [](trimul_problem& p) { p.has_out_bias = 7; }, "problem: has_out_bias is 7, expected 0 or 1"},
    {"ResidualFlag", [](trimul_problem& p) { p.residual = 3; }, "problem: residual is 3, expected 0 or 1"},
    {"DeviceType", [](trimul_problem& p) { p.device.type = 3; }, "problem: device type is 3, expected 1 (CPU) or 2 (CUDA)"},
    {"DeviceIndex", [](trimul_problem& p) { p.device.index = -1; }, "problem: device index is -1, expected at least 0"},
    {"CpuIndex", [](trimul_problem& p) { p.device.index = 1; }, "problem: device index is 1, expected 0 for the CPU"},
};

class BadProblem : public ::testing::TestWithParam<BadField> {};

TEST_P(BadProblem, IsRefusedNamingFieldValueAndExpectation) {
  trimul_problem problem = valid_problem();
  GetParam().change(problem);
  EXPECT_EQ(validated(problem), std::string("INVALID_ARGUMENT: ") + GetParam().message);
  trimul_plan* plan = nullptr;
  EXPECT_EQ(outcome(trimul_plan_create(&problem, nullptr, &plan)), std::string("INVALID_ARGUMENT: ") + GetParam().message);
  EXPECT_EQ(plan, nullptr);
}

INSTANTIATE_TEST_SUITE_P(Each, BadProblem, ::testing::ValuesIn(kBadFields), [](const auto& instance) { return instance.param.name; });

TEST(Problem, TakesEveryLegalValueOfEveryField) {
  for (const std::int32_t dtype : {TRIMUL_F64, TRIMUL_F32, TRIMUL_F16, TRIMUL_BF16})
    for (std::int32_t precision = TRIMUL_PRECISION_NONE; precision <= TRIMUL_PRECISION_BF16; ++precision) {
      trimul_problem problem = valid_problem();
      problem.x_dtype = dtype;
      problem.precision = precision;
      problem.direction = TRIMUL_INCOMING;
      problem.has_mask = 0;
      problem.residual = problem.has_in_bias = problem.has_out_bias = 1;
      problem.eps = std::numeric_limits<float>::denorm_min();
      EXPECT_EQ(validated(problem), "OK");
    }
  trimul_problem empty = valid_problem();
  empty.batch = 0;
  EXPECT_EQ(validated(empty), "OK");
  empty.tokens = 0;
  EXPECT_EQ(validated(empty), "OK");
}

TEST(Problem, ResultDtypeIsThatOfXButForPrecisionBfloat16) {
  for (const std::int32_t dtype : {TRIMUL_F64, TRIMUL_F32, TRIMUL_F16, TRIMUL_BF16})
    for (std::int32_t precision = TRIMUL_PRECISION_NONE; precision <= TRIMUL_PRECISION_BF16; ++precision) {
      trimul_problem problem = valid_problem();
      problem.x_dtype = dtype;
      problem.precision = precision;
      trimul_dtype result = TRIMUL_BOOL;
      ASSERT_EQ(trimul_problem_out_dtype(&problem, &result), TRIMUL_OK);
      EXPECT_EQ(result, precision == TRIMUL_PRECISION_BF16 ? TRIMUL_BF16 : static_cast<trimul_dtype>(dtype));
    }
  trimul_problem problem = valid_problem();
  EXPECT_EQ(outcome(trimul_problem_out_dtype(&problem, nullptr)), "INVALID_ARGUMENT: out_dtype: is NULL, expected a place for the result");
  problem.direction = 5;
  trimul_dtype result = TRIMUL_BOOL;
  EXPECT_EQ(trimul_problem_out_dtype(&problem, &result), TRIMUL_INVALID_ARGUMENT);
}

/// What validation says of an else valid problem of these sizes.
std::string sized(std::int64_t b, std::int64_t n, std::int64_t c_z, std::int64_t c) {
  trimul_problem problem = valid_problem();
  problem.batch = b;
  problem.tokens = n;
  problem.c_z = c_z;
  problem.c_hidden = c;
  return validated(problem);
}

TEST(Problem, RefusesSizesWhoseProductsLeave64Bits) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(
      sized(1, std::int64_t{1} << 32, 128, 64),
      "INVALID_ARGUMENT: problem: B * N * N * max(C_z, C) = 1 * 4294967296 * 4294967296 * 128 elements do not fit into 64-bit byte counts");
  EXPECT_NE(sized(kMost, 1, 1, 1), "OK");
  EXPECT_NE(sized(1, kMost, 1, 1), "OK");
  EXPECT_NE(sized(1, 1, kMost, 1), "OK");
  EXPECT_NE(sized(1, 1, 1, kMost), "OK");
  EXPECT_NE(sized(0, kMost, 1, 1), "OK") << "an empty batch of impossible samples";
  EXPECT_EQ(sized(0, 1 << 20, 128, 128), "OK");
  EXPECT_EQ(sized(kMost, 0, 128, 128), "OK");
  EXPECT_EQ(sized(1, 100'000, 128, 128), "OK");
}

/// docs/op.md, "Limits": each of three products is below 2^63. Both sides of each.
TEST(Problem, TheLimitsOfTheContractAreThoseThatAreChecked) {
  const auto accepts = [](std::int64_t b, std::int64_t n, std::int64_t c_z, std::int64_t c) { return sized(b, n, c_z, c) == "OK"; };
  constexpr std::int64_t kPer128 = std::numeric_limits<std::int64_t>::max() / 128;
  EXPECT_TRUE(accepts(kPer128, 1, 1, 1));
  EXPECT_FALSE(accepts(kPer128 + 1, 1, 1, 1));
  EXPECT_TRUE(accepts(0, (1 << 28) - 1, 1, 1));
  EXPECT_FALSE(accepts(0, 1 << 28, 1, 1));
  for (const auto& [b, n] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {0, 1}, {1, 0}}) {
    EXPECT_TRUE(accepts(b, n, (1 << 28) - 1, 1));
    EXPECT_FALSE(accepts(b, n, 1 << 28, 1));
    EXPECT_FALSE(accepts(b, n, 1, 1 << 28));
  }
}

/// At the largest problems that are accepted no figure about them overflows: all are positive and as large as in floating point.
TEST(Problem, FiguresOfTheLargestLegalProblemsDoNotOverflow) {
  for (const std::int32_t dtype : {TRIMUL_F64, TRIMUL_F32})
    for (const auto& [c_z, c] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {128, 128}, {4096, 1}, {1, 4096}, {1 << 27, 1 << 27}}) {
      trimul_problem problem = valid_problem();
      problem.x_dtype = dtype;
      problem.c_z = c_z;
      problem.c_hidden = c;
      std::int64_t low = 1, high = std::int64_t{1} << 32;  // the largest accepted N
      while (high - low > 1) {
        problem.tokens = low + (high - low) / 2;
        (validated(problem) == "OK" ? low : high) = problem.tokens;
      }
      problem.tokens = low;
      const core::Plan plan(core::validate_problem(problem), {});
      const double pairs = static_cast<double>(low) * static_cast<double>(low);
      const double per_pair = (dtype == TRIMUL_F64 ? 8.0 : 4.0) * (3.0 * static_cast<double>(c_z) + 6.0 * static_cast<double>(c)) + 2;
      EXPECT_NEAR(static_cast<double>(plan.traffic_bytes()) / (pairs * per_pair), 1.0, 1e-9) << problem.tokens;
      EXPECT_GT(static_cast<double>(plan.workspace_bytes()), pairs * static_cast<double>(c) * 8) << problem.tokens;
      EXPECT_LT(static_cast<double>(plan.workspace_bytes()), 9.2e18) << problem.tokens;
    }
}

class Grouping : public std::numpunct<char> {
  [[nodiscard]] char do_thousands_sep() const override { return '.'; }
  [[nodiscard]] std::string do_grouping() const override { return "\3"; }
};

TEST(Problem, MessagesDoNotFollowTheProcessLocale) {
  trimul_problem problem = valid_problem();
  problem.precision = 123456;
  const std::locale former = std::locale::global(std::locale(std::locale::classic(), new Grouping));
  const std::string message = validated(problem);
  std::locale::global(former);
  EXPECT_TRUE(contains(message, "precision is 123456,")) << message;
}

TEST(Problem, DescribesItselfOnOneLine) {
  trimul_problem problem = valid_problem();
  EXPECT_EQ(core::describe(core::validate_problem(problem)), "B=1 N=8 C_z=32 C=16 fp32 outgoing mask");
  problem.precision = TRIMUL_PRECISION_IEEE;
  problem.direction = TRIMUL_INCOMING;
  problem.has_mask = 0;
  problem.has_in_bias = problem.has_out_bias = problem.residual = 1;
  EXPECT_EQ(core::describe(core::validate_problem(problem)), "B=1 N=8 C_z=32 C=16 fp32 incoming precision=ieee in_bias out_bias residual");
}

}  // namespace
}  // namespace trimul::testing
