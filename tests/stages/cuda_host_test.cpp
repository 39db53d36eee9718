// SPDX-License-Identifier: Apache-2.0
// Host arithmetic of the GPU implementations, which needs neither a GPU nor nvcc: division by multiplication, and masks as kernels see
// them.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "core/error.hpp"
#include "cuda/common/fast_division.hpp"
#include "cuda/host/mask_params.hpp"
#include "support/errors.hpp"
#include "support/random.hpp"

namespace trimul::cuda {
namespace {

constexpr std::uint32_t kLargest = 0x7fffffffU;

void expect_division(const FastDivisor& fast, std::uint32_t number) {
  const auto [quotient, remainder] = fast.divide(number);
  ASSERT_EQ(quotient, number / fast.divisor) << number << " / " << fast.divisor;
  ASSERT_EQ(remainder, number % fast.divisor) << number << " / " << fast.divisor;
}

TEST(FastDivision, AgreesWithDivisionAroundEveryMultiple) {
  for (std::uint32_t divisor = 1; divisor <= 4200; ++divisor) {
    const FastDivisor fast(divisor);
    for (std::uint32_t k = 0; k < 64; ++k)
      for (const std::uint32_t factor : {k, kLargest / divisor - std::min(k, kLargest / divisor)}) {
        const std::uint32_t multiple = factor * divisor;
        for (const std::uint32_t number : {multiple, multiple + 1, multiple + divisor - 1, multiple == 0 ? 0 : multiple - 1})
          if (number <= kLargest) expect_division(fast, number);
      }
    expect_division(fast, kLargest);
  }
}

TEST(FastDivision, AgreesWithDivisionAtRandom) {
  testing::Random random(testing::base_seed());
  for (int k = 0; k < 200'000; ++k) {
    const auto bits = random.integer(1, 31);
    const auto divisor = static_cast<std::uint32_t>(random.integer(1, (std::int64_t{1} << bits) - 1));
    const FastDivisor fast(divisor);
    expect_division(fast, static_cast<std::uint32_t>(random.integer(0, kLargest)));
    expect_division(fast, std::min(kLargest, divisor));
  }
  for (const std::uint32_t divisor : {kLargest, kLargest - 1, 1U << 30, (1U << 30) + 1}) expect_division(FastDivisor(divisor), kLargest);
}

struct Leading {
  std::int64_t size, stride;
};

core::MaskView view_of(const std::vector<Leading>& leading, std::int64_t stride_i, std::int64_t stride_j) {
  core::MaskView view;
  view.dtype = core::DType::kBf16;
  view.num_leading = static_cast<int>(leading.size());
  for (std::size_t d = 0; d < leading.size(); ++d) {
    view.leading_sizes[d] = leading[d].size;
    view.leading_strides[d] = leading[d].stride;
  }
  view.stride_i = stride_i;
  view.stride_j = stride_j;
  return view;
}

core::Problem problem_of(std::int64_t batch, std::int64_t tokens) {
  core::Problem problem;
  problem.batch = batch;
  problem.tokens = tokens;
  return problem;
}

/// Offset of sample b as the kernels compute it from the packed form.
std::int64_t packed_offset(const MaskParams& mask, std::int64_t sample) {
  std::int64_t offset = 0;
  for (int d = mask.num_leading - 1; d > 0; --d) {
    offset += sample % mask.leading_sizes[d] * mask.leading_strides[d];
    sample /= mask.leading_sizes[d];
  }
  return offset + sample * mask.leading_strides[0];
}

/// And from the dimensions themselves.
std::int64_t plain_offset(const std::vector<Leading>& leading, std::int64_t sample) {
  std::int64_t offset = 0;
  for (std::size_t d = leading.size(); d-- > 0; sample /= leading[d].size) offset += sample % leading[d].size * leading[d].stride;
  return offset;
}

TEST(PackedMask, OffsetsAreThoseOfTheView) {
  const std::vector<std::vector<Leading>> forms{
      {},
      {{1, 0}},
      {{4, 49}},
      {{4, 0}},                            // shared by all samples
      {{2, 147}, {3, 49}},                 // contiguous: one dimension
      {{2, 0}, {3, 0}},                    // expanded
      {{2, 0}, {3, 49}},                   // one for each of the inner
      {{2, 49}, {3, 0}},                   // one for each of the outer
      {{2, 49}, {3, 98}},                  // transposed
      {{2, -147}, {3, -49}},               // reversed
      {{2, 1}, {1, 77}, {3, 2}, {1, -5}},  // sizes of 1 do not count
      {{2, 3000}, {2, 900}, {2, 300}, {2, 100}, {3, 7}, {2, 0}},
  };
  for (std::size_t k = 0; k < forms.size(); ++k) {
    std::int64_t batch = 1;
    for (const Leading& dim : forms[k]) batch *= dim.size;
    const MaskParams packed = pack_mask(view_of(forms[k], 7, 1), problem_of(batch, 7), true);
    EXPECT_GE(packed.num_leading, 1);
    EXPECT_LE(packed.num_leading, kMaxMaskDims);
    EXPECT_EQ(packed.element_bytes, 2);
    for (std::int64_t b = 0; b < batch; ++b) EXPECT_EQ(packed_offset(packed, b), plain_offset(forms[k], b)) << "form " << k << ", " << b;
  }
  EXPECT_EQ(pack_mask(view_of({{2, 147}, {3, 49}}, 7, 1), problem_of(6, 7), true).num_leading, 1);
}

TEST(PackedMask, IsLinearExactlyWhereElementsLieInTheOrderOfThePairs) {
  const auto is_linear = [](const std::vector<Leading>& leading, std::int64_t stride_i, std::int64_t stride_j, std::int64_t batch,
                            bool is_flat = true) {
    return pack_mask(view_of(leading, stride_i, stride_j), problem_of(batch, 8), is_flat).is_linear;
  };
  EXPECT_TRUE(is_linear({}, 8, 1, 1));
  EXPECT_TRUE(is_linear({{3, 64}}, 8, 1, 3));
  EXPECT_TRUE(is_linear({{2, 192}, {3, 64}}, 8, 1, 6));
  EXPECT_FALSE(is_linear({{3, 64}}, 8, 1, 3, false)) << "positions of a tile are not pairs where rows are padded";
  EXPECT_FALSE(is_linear({{3, 0}}, 8, 1, 3));
  EXPECT_FALSE(is_linear({{3, 65}}, 8, 1, 3));
  EXPECT_FALSE(is_linear({{3, 64}}, 1, 8, 3));
  EXPECT_FALSE(is_linear({}, 16, 2, 1));
  EXPECT_FALSE(is_linear({}, -8, -1, 1));
  EXPECT_FALSE(is_linear({{2, 64}, {3, 128}}, 8, 1, 6));
}

TEST(PackedMask, RefusesMoreIndependentDimensionsThanKernelsTake) {
  const std::vector<Leading> seven(7, Leading{2, 5});  // no dimension continues its neighbour
  const std::string text = testing::outcome_of([&] { (void)pack_mask(view_of(seven, 7, 1), problem_of(128, 7), false); });
  EXPECT_TRUE(testing::contains(text, "UNSUPPORTED: mask: its 7 leading dimensions")) << text;
}

}  // namespace
}  // namespace trimul::cuda
