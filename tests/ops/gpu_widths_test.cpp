// SPDX-License-Identifier: Apache-2.0
// Widths of every kind on a GPU: rows of one element and of broken vectors, rows that no shared memory holds, and the tiles of the widths
// between. No instance without a GPU.
#include <set>
#include <utility>

#include "support/gpu_call.hpp"
#include "support/operator_test.hpp"

namespace trimul::testing {
namespace {

class GpuWidths : public OperatorTest {};

struct Arithmetic {
  DType x_dtype;
  std::int32_t precision;
};
constexpr Arithmetic kArithmetics[] = {
    {DType::kBf16, TRIMUL_PRECISION_DEFAULT}, {DType::kF16, TRIMUL_PRECISION_DEFAULT}, {DType::kF32, TRIMUL_PRECISION_DEFAULT},
    {DType::kF32, TRIMUL_PRECISION_TF32},     {DType::kF32, TRIMUL_PRECISION_IEEE},    {DType::kF32, TRIMUL_PRECISION_BF16},
    {DType::kF16, TRIMUL_PRECISION_BF16},     {DType::kBf16, TRIMUL_PRECISION_IEEE},   {DType::kF16, TRIMUL_PRECISION_IEEE}};

Spec with(const Arithmetic& arithmetic, Spec spec) {
  spec.x_dtype = arithmetic.x_dtype;
  spec.precision = arithmetic.precision;
  return spec;
}

bool may_be_in_place(const Case& data) {
  return data.spec.residual && data.out_dtype() == data.spec.x_dtype;
}

TEST_P(GpuWidths, EveryArithmeticIsAsExactAsPromised) {
  constexpr std::pair<std::int64_t, std::int64_t> kWidths[] = {{1, 1},    {5, 5},    {1, 48},   {48, 1},    {48, 48},   {33, 65},
                                                               {96, 160}, {128, 64}, {64, 128}, {768, 128}, {384, 256}, {130, 258}};
  std::size_t k = 0;
  for (const auto& [c_z, c] : kWidths)
    for (const Arithmetic& arithmetic : kArithmetics) {
      ++k;
      const Case data(with(arithmetic, {.lead = {1 + static_cast<std::int64_t>(k % 2)},
                                        .n = 9 + static_cast<std::int64_t>(k % 5),
                                        .c_z = c_z,
                                        .c = c,
                                        .direction = kDirections[k % 2],
                                        .mask = kAllMaskKinds[k % 6],
                                        .mixed_weights = k % 3 == 0,
                                        .residual = k % 4 == 0}));
      // One channel of x is the same z in every pair: too few roundings for the limits of the sweep.
      check(data, {}, {.absolute = c_z >= 32});
    }
}

TEST_P(GpuWidths, TilesOfEveryArithmeticMeetTheirEdges) {
  // Slabs of k are 32 or 64 wide, tiles of the contraction 64 or 128: tokens on both sides of each.
  for (const std::int64_t n : {31, 32, 33, 63, 64, 65, 96, 127, 128, 129})
    for (const Arithmetic& arithmetic : kArithmetics)
      check(Case(with(arithmetic, {.n = n, .c_z = 3, .c = 4, .direction = kDirections[static_cast<std::size_t>(n) % 2]})));
}

TEST_P(GpuWidths, AddressesChangeNothing) {
  for (const Arithmetic& arithmetic : kArithmetics)
    for (const std::int64_t c_z : {1, 5, 33, 48, 100, 128}) {
      const Case aligned(with(arithmetic, {.lead = {2}, .n = 13, .c_z = c_z, .c = 20, .mask_dtype = DType::kF16, .residual = true}));
      if (!accepts(aligned)) continue;
      const auto expected = run(aligned, implementation()).raw;
      for (const std::int64_t offset : {1, 2, 3, 4, 5, 8}) {
        Spec spec = aligned.spec;
        spec.offset = offset;  // of x, the mask, the parameters and out
        const Case shifted(spec);
        EXPECT_TRUE(run(shifted, implementation()).raw == expected) << describe(spec);
        EXPECT_TRUE(run(shifted, implementation(), {.packs_parameters = true}).raw == expected) << "packed: " << describe(spec);
        EXPECT_TRUE(run(shifted, implementation(), {.out_offset = 0}).raw == expected) << "x alone: " << describe(spec);
        EXPECT_TRUE(run(aligned, implementation(), {.out_offset = offset}).raw == expected) << "out alone: " << describe(spec);
        if (may_be_in_place(shifted)) {
          EXPECT_TRUE(run(shifted, implementation(), {.in_place = true}).raw == expected) << "in place: " << describe(spec);
        }
      }
    }
}

/// A width whose rows do not fit beside a ring of weights in 227 KiB, 32 positions at a time.
std::int64_t too_wide(const Arithmetic& arithmetic) {
  const bool is_16_bit =
      arithmetic.precision == TRIMUL_PRECISION_BF16 || (arithmetic.x_dtype != DType::kF32 && arithmetic.precision != TRIMUL_PRECISION_IEEE);
  return is_16_bit ? 3200 : 1600;
}

/// They are normalised part by part; in place, the rows of x are copied before they are overwritten.
TEST_P(GpuWidths, RowsThatFitNoSharedMemory) {
  std::vector<Spec> specs{{.c_z = 4096, .c = 24}, {.c_z = 24, .c = 4096}, {.c_z = 24, .c = 4096, .x_dtype = DType::kBf16}};
  for (const Arithmetic& arithmetic : kArithmetics)
    for (const bool is_x : {true, false}) {
      const std::int64_t wide = too_wide(arithmetic) + (is_x ? 3 : 0);
      specs.push_back(with(arithmetic, {.c_z = is_x ? wide : 24, .c = is_x ? 24 : wide, .direction = TRIMUL_INCOMING}));
    }
  for (Spec& spec : specs) {
    spec.n = 3;
    spec.residual = true;
    const Case data(spec);
    check(data);
    if (!accepts(data)) continue;
    const auto expected = run(data, implementation()).raw;
    EXPECT_TRUE(run(data, implementation(), {.poison = std::byte{0x7f}, .packs_parameters = true}).raw == expected) << describe(spec);
    if (!may_be_in_place(data)) continue;
    EXPECT_TRUE(run(data, implementation(), {.in_place = true}).raw == expected) << "in place: " << describe(spec);
    Spec shifted = spec;
    shifted.offset = 1;
    EXPECT_TRUE(run(Case(shifted), implementation(), {.in_place = true}).raw == expected) << "in place: " << describe(shifted);
  }
}

/// More tiles than blocks that have room for copies.
TEST_P(GpuWidths, WideRowsInPlaceTakeTurnsWithTheirRoom) {
  for (const Arithmetic& arithmetic : {kArithmetics[0], kArithmetics[2]}) {
    const Case data(with(arithmetic, {.n = 96, .c_z = too_wide(arithmetic), .c = 3, .residual = true}));
    if (!accepts(data)) continue;
    const auto expected = run(data, implementation()).raw;
    EXPECT_TRUE(run(data, implementation(), {.in_place = true}).raw == expected) << describe(data.spec);
  }
}

TEST_P(GpuWidths, SamplesDoNotDependOnTheirBatchWhereRowsAreWide) {
  for (const Arithmetic& arithmetic : kArithmetics) {
    const Case data(with(arithmetic, {.lead = {3}, .n = 7, .c_z = 24, .c = too_wide(arithmetic)}));
    if (!accepts(data)) continue;
    const auto whole = run(data, implementation()).raw;
    const std::size_t sample_bytes = whole.size() / 3;
    for (std::int64_t b = 0; b < 3; ++b) {
      const auto got = run(sample_of(data, b), implementation()).raw;
      EXPECT_TRUE(std::equal(got.begin(), got.end(), whole.begin() + b * static_cast<std::ptrdiff_t>(sample_bytes)))
          << "sample " << b << ": " << describe(data.spec);
    }
  }
}

/// Every combination of the knobs' values: a plan is refused for a value that does not fit these widths, or gives the same bits.
TEST_P(GpuWidths, EveryCombinationOfKnobsGivesTheSameBits) {
  std::vector<std::vector<trimul_knob>> combinations{{}};
  for (std::size_t k = 0; k < trimul_implementation_num_knobs(implementation().c_str()); ++k) {
    trimul_knob_range range = TRIMUL_KNOB_RANGE_INIT;
    ASSERT_EQ(trimul_implementation_knob(implementation().c_str(), k, &range), TRIMUL_OK) << trimul_last_error();
    std::vector<std::vector<trimul_knob>> longer;
    for (const auto& combination : combinations)
      for (std::int64_t value = range.least; value <= range.most; ++value) {
        longer.push_back(combination);
        longer.back().push_back({range.name, value});
      }
    combinations = std::move(longer);
  }
  std::vector<Spec> specs = testing::gpu_specs(implementation(), {.lead = {2}, .n = 43, .mask = MaskKind::kFractional, .residual = true});
  if (implementation() == "cuda:sm80") {
    for (const Arithmetic& arithmetic : kArithmetics)
      for (const auto& [c_z, c] : {std::pair{384, 256}, std::pair{40, 1500}, std::pair{1500, 40}})
        specs.push_back(with(arithmetic, {.n = 19, .c_z = c_z, .c = c, .direction = TRIMUL_INCOMING, .residual = true}));
  }
  for (const Spec& spec : specs) {
    const Case data(spec);
    ASSERT_TRUE(accepts(data));
    GpuCall call(data, implementation());
    call.execute(nullptr);
    const auto expected = call.result(nullptr);
    int planned = 0;
    for (const auto& knobs : combinations) {
      trimul_problem problem = data.problem();
      problem.device = device_of(implementation());
      trimul_plan_options options = TRIMUL_PLAN_OPTIONS_INIT;
      options.implementation = implementation().c_str();
      options.knobs = knobs.data();
      options.num_knobs = knobs.size();
      trimul_plan* plan = nullptr;
      const trimul_status status = trimul_plan_create(&problem, &options, &plan);
      if (status != TRIMUL_OK) {
        EXPECT_EQ(status, TRIMUL_UNSUPPORTED);
        EXPECT_EQ(std::string(trimul_last_error()).find("knob "), 0U) << trimul_last_error();
        continue;
      }
      ++planned;
      GpuCall again(data, implementation(), knobs);
      trimul_plan_destroy(plan);
      again.execute(nullptr);
      EXPECT_TRUE(again.result(nullptr) == expected) << describe(spec);
    }
    EXPECT_GT(planned, 0) << describe(spec);
  }
}

TEST_P(GpuWidths, MasksOfEveryFormAndParametersOfEveryDtype) {
  std::size_t k = 0;
  for (const MaskForm form : kAllMaskForms)
    for (const DType mask_dtype : {DType::kBool, DType::kI64, DType::kBf16, DType::kF32, DType::kF64})
      for (const Arithmetic& arithmetic : kArithmetics)
        check(Case(with(arithmetic, {.lead = {2, 3},
                                     .n = 6,
                                     .c_z = 17,
                                     .c = 36,
                                     .direction = kDirections[++k % 2],
                                     .mask = MaskKind::kFractional,
                                     .mask_form = form,
                                     .mask_dtype = mask_dtype,
                                     .mixed_weights = k % 2 == 0,
                                     .offset = static_cast<std::int64_t>(k % 3)})));
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuWidths);
INSTANTIATE_TEST_SUITE_P(Every, GpuWidths, ::testing::ValuesIn(gpu_implementations()), test_name);

}  // namespace
}  // namespace trimul::testing
