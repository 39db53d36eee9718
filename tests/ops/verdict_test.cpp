// SPDX-License-Identifier: Apache-2.0
// The comparison must be able to fail: implementations that do nothing, and every known mistake, are told from the truth.
#include <cmath>
#include <cstring>

#include "support/composition.hpp"
#include "support/operator_test.hpp"

namespace trimul::testing {
namespace {

/// An implementation that runs `kExecute` in place of the operator.
template <void (*kExecute)(const core::Problem&, const core::ExecuteArgs&)>
core::Implementation impostor(std::string_view name) {
  class Weights final : public core::PackedWeights {
   public:
    [[nodiscard]] std::size_t bytes() const override { return 0; }
    [[nodiscard]] std::vector<core::ByteRange> ranges() const override { return {}; }
  };
  class Body final : public core::PlanBody {
   public:
    explicit Body(const core::Problem& problem) : problem_(problem) {}
    [[nodiscard]] std::size_t workspace_bytes() const override { return 0; }
    [[nodiscard]] std::string explain() const override { return ""; }
    [[nodiscard]] std::string_view weights_layout() const override { return "none"; }
    [[nodiscard]] std::unique_ptr<core::PackedWeights> pack_weights(const core::Parameters&, void*, void*) const override {
      return std::make_unique<Weights>();
    }
    void execute(const core::ExecuteArgs& args) const override { kExecute(problem_, args); }

   private:
    core::Problem problem_;
  };
  return {.name = name,
          .describe = [] { return std::string("for this test"); },
          .can_run = [](const core::Problem&, const core::DeviceInfo&) -> std::optional<core::Rejection> { return std::nullopt; },
          .make_plan = [](const core::Problem& problem, const core::DeviceInfo&,
                          const std::vector<core::Knob>&) -> std::unique_ptr<core::PlanBody> { return std::make_unique<Body>(problem); }};
}

void do_nothing(const core::Problem&, const core::ExecuteArgs&) {}
void copy_x(const core::Problem& problem, const core::ExecuteArgs& args) {
  std::memcpy(args.out, args.x, static_cast<std::size_t>(problem.x_elements()) * core::dtype_bytes(problem.x_dtype));
}
void write_zeros(const core::Problem& problem, const core::ExecuteArgs& args) {
  std::memset(args.out, 0, static_cast<std::size_t>(problem.x_elements()) * core::dtype_bytes(problem.out_dtype()));
}

TEST(Verdict, RejectsImplementationsThatDoNotCompute) {
  const std::array list{impostor<do_nothing>("no-op"), impostor<copy_x>("copy-x"), impostor<write_zeros>("zeros")};
  for (const core::Implementation& implementation : list)
    for (const DType dtype : kXDTypes)
      for (const std::int64_t n : {1, 2, 9, 16})
        for (const MaskKind mask : kAllMaskKinds)
          for (const bool residual : {false, true}) {
            const Case data({.n = n, .x_dtype = dtype, .mask = mask, .residual = residual});
            const core::Plan plan(core::validate_problem(data.problem()),
                                  {.implementation = std::string(implementation.name), .arch = {}, .knobs = {}}, list);
            ASSERT_EQ(plan.implementation(), implementation.name);
            EXPECT_FALSE(meets_contract(data, implementation.name, run_plan(plan, data).values))
                << implementation.name << ": " << describe(data.spec);
          }
}

struct Mistake {
  const char* name;
  Mutation mutation;
  Spec spec;
};

void PrintTo(const Mistake& mistake, std::ostream* stream) {
  *stream << mistake.name;
}

const Spec kFractional{.lead = {2}, .n = 9, .mask = MaskKind::kFractional};
const Spec kRandom{.lead = {2}, .n = 9, .mask = MaskKind::kRandom01};
/// y so small that eps decides.
const Spec kSmallY{.n = 9, .eps = 1e-3F, .absent = kProjectionBiases, .x_std = 1.3, .in_scale = 0.1};
const Spec kSmallX{.n = 9, .eps = 1e-3F, .x_mean = 0.0, .x_std = 0.05};
const Spec kLargeMean{.n = 9, .x_mean = 1e3, .x_std = 1.0};
const Spec kResidual{.n = 9, .residual = true};

const Mistake kMistakes[] = {
    {"OutgoingForIncoming", {.other_direction = true}, kRandom}, {"PAndGSwapped", {.swap_p_and_g = true}, kRandom},
    {"AAndBSwapped", {.swap_a_and_b = true}, kRandom},           {"MaskTransposed", {.transpose_mask = true}, kRandom},
    {"MaskAsZeroOrOne", {.binary_mask = true}, kFractional},     {"MaskIgnored", {.ignore_mask = true}, kRandom},
    {"OutputMasked", {.mask_output = true}, kFractional},        {"GateFromX", {.gate_from_x = true}, kRandom},
    {"InEpsIgnored", {.ignore_in_eps = true}, kSmallX},          {"OutEpsIgnored", {.ignore_out_eps = true}, kSmallY},
    {"ResidualForgotten", {.forget_residual = true}, kResidual},
};

class VerdictOnMistakes : public ::testing::TestWithParam<Mistake> {};

TEST_P(VerdictOnMistakes, RejectsTheMistakeAndAcceptsTheTruth) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16})
    for (const auto direction : kDirections) {
      Spec spec = GetParam().spec;
      spec.x_dtype = dtype;
      spec.direction = direction;
      const Case data(spec);
      const auto stored = [dtype](std::vector<double> values) {
        for (double& value : values) value = rounded_to(dtype, value);
        return values;
      };
      const Oracle oracle = make_oracle(data, "truth");
      EXPECT_TRUE(meets_contract(data, "truth", stored(compose<double>(data)), oracle));
      // With and without the absolute limits: the computed bound alone must tell them apart.
      EXPECT_FALSE(
          meets_contract(data, GetParam().name, stored(compose<double>(data, {}, GetParam().mutation)), oracle, {.absolute = false}))
          << describe(spec);
    }
}

INSTANTIATE_TEST_SUITE_P(Each, VerdictOnMistakes, ::testing::ValuesIn(kMistakes), [](const auto& instance) { return instance.param.name; });

TEST(Verdict, RejectsOnePassVariance) {
  const Case data(kLargeMean);
  EXPECT_FALSE(meets_contract(data, "one pass", compose<float>(data, {}, {.one_pass_variance = true})));
}

TEST(Verdict, RejectsNanThatSpreadsFromMaskedPairs) {
  Case data({.n = 9, .mask = MaskKind::kPadded});
  for (std::int64_t i = 0; i < 9; ++i)
    for (std::int64_t j = 0; j < 9; ++j)
      if (data.mask_at(0, i, j) == 0.0) data.set_x(0, i, j, 0, std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(meets_contract(data, "truth", compose<float>(data)));
  EXPECT_FALSE(meets_contract(data, "multiplied", compose<float>(data, {}, {.multiply_mask_into_nan = true})));
}

TEST(Verdict, RejectsOneWrongCellOfMany) {
  const Case data({.n = 24, .c_z = 33});
  auto values = compose<float>(data);
  const Oracle oracle = make_oracle(data, "truth");
  ASSERT_TRUE(meets_contract(data, "truth", values, oracle));
  const double scale = rms(oracle.none);
  values[1234] += 1e-3 * scale;  // far below what the RMS over 19,008 cells would show
  EXPECT_FALSE(meets_contract(data, "one cell", values, oracle));
}

TEST(Verdict, RejectsRoundingWhereThePathHasNone) {
  // bf16 operands are 3e-3: legal for a GPU's bf16, not for fp32 and not for the CPU, whose only rounding is the output's.
  const Case fp32({.n = 12});
  Spec spec = fp32.spec;
  spec.x_dtype = DType::kBf16;
  const RoundingPoints bf16 = kernel_points(spec);
  EXPECT_FALSE(meets_contract(fp32, "cpu", compose<double>(fp32, bf16)));
  const Case stored(spec);
  auto values = compose<double>(stored, bf16);
  for (double& value : values) value = rounded_to(DType::kBf16, value);
  EXPECT_TRUE(meets_contract(stored, "cuda:sm90", values));
  EXPECT_FALSE(meets_contract(stored, "cpu", values));
}

std::vector<double> stored_as(DType dtype, std::vector<double> values) {
  for (double& value : values) value = rounded_to(dtype, value);
  return values;
}

/// The case computed in fp32 with the roundings of GPU kernels under another precision than its own.
std::vector<double> computed_with(const Case& data, std::int32_t precision) {
  Spec spec = data.spec;
  spec.precision = precision;
  return stored_as(data.out_dtype(), compose<float>(data, kernel_points(spec)));
}

TEST(Verdict, HoldsEachPrecisionToItsOwnError) {
  for (const std::int64_t c : {2, 5, 31, 32, 48})
    for (const auto direction : kDirections) {
      Spec spec{.lead = {2}, .n = 13, .c_z = 40, .c = c, .direction = direction, .mask = MaskKind::kFractional};
      for (const std::int32_t precision :
           {TRIMUL_PRECISION_DEFAULT, TRIMUL_PRECISION_TF32, TRIMUL_PRECISION_TF32X3, TRIMUL_PRECISION_IEEE, TRIMUL_PRECISION_BF16}) {
        spec.precision = precision;
        const Case data(spec);
        const Oracle oracle = make_oracle(data, "cuda:sm80");
        EXPECT_TRUE(meets_contract(data, "cuda:sm80", computed_with(data, precision), oracle));
        if (precision == TRIMUL_PRECISION_BF16) continue;
        // Coarser operands than those that were asked for.
        EXPECT_EQ(static_cast<bool>(meets_contract(data, "cuda:sm80", computed_with(data, TRIMUL_PRECISION_TF32), oracle)),
                  precision == TRIMUL_PRECISION_TF32)
            << describe(spec);
        EXPECT_FALSE(meets_contract(data, "cuda:sm80", computed_with(data, TRIMUL_PRECISION_BF16), oracle)) << describe(spec);
        // On the CPU every precision is fp32.
        EXPECT_FALSE(meets_contract(data, "cpu", computed_with(data, TRIMUL_PRECISION_TF32))) << describe(spec);
      }
    }
}

TEST(Verdict, RejectsBf16OperandsOfBf16XUnderIeee) {
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    const Case data({.n = 24, .x_dtype = dtype, .precision = TRIMUL_PRECISION_IEEE});
    const Oracle oracle = make_oracle(data, "cuda:sm80");
    EXPECT_TRUE(meets_contract(data, "cuda:sm80", stored_as(dtype, compose<float>(data)), oracle));
    // fp16 operands are as exact as an fp16 output, so that no bound tells the two apart; those of bf16 are not.
    EXPECT_FALSE(meets_contract(data, "cuda:sm80", computed_with(data, TRIMUL_PRECISION_BF16), oracle)) << describe(data.spec);
  }
}

TEST(Verdict, AcceptsRoundingsOfYThatFallTheOtherWayUnderALargeOffset) {
  // Biases of p_in alone: y has an offset that bf16 resolves less well. Sums in fp32, backwards: some of the roundings differ.
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    for (const auto direction : kDirections) {
      Case data({.n = 33,
                 .c_z = 48,
                 .c = 48,
                 .x_dtype = DType::kBf16,
                 .direction = direction,
                 .mask = MaskKind::kPadded,
                 .absent = kProjectionBiases & ~bit(kPInBias),
                 .seed = base_seed() + seed});
      for (std::int64_t k = 0; k < 96; k += 12) data.parameters[kPInBias]->set({k}, 1.0);
      RoundingPoints points = kernel_points(data.spec);
      points.backward_sums = true;
      const Oracle oracle = make_oracle(data, "cuda:sm80");
      const auto right = stored_as(DType::kBf16, compose<float>(data, points));
      EXPECT_TRUE(meets_contract(data, "cuda:sm80", right, oracle)) << describe(data.spec);
      // One value of every second pair off by a little more than two roundings may be: 1e-2 of the RMS.
      auto wrong = right;
      const double step = 1.2e-2 * rms(oracle.kernel);
      for (std::size_t k = 5; k < wrong.size(); k += 96) wrong[k] = oracle.kernel[k] + step + std::abs(oracle.kernel[k]) / 64;
      EXPECT_FALSE(meets_contract(data, "cuda:sm80", wrong, oracle)) << describe(data.spec);
    }
}

}  // namespace
}  // namespace trimul::testing
