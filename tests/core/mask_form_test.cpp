// SPDX-License-Identifier: Apache-2.0
// Which shapes are a mask of x, and where their elements lie.
#include <gtest/gtest.h>

#include "core/arguments.hpp"
#include "support/errors.hpp"
#include "support/host_tensor.hpp"

namespace trimul::testing {
namespace {

core::Dims dims(const Sizes& sizes) {
  return core::Dims(sizes);
}

struct Bent {
  core::Problem problem;
  core::TensorView x;
};

Bent bent_x(const Sizes& x_sizes) {
  Bent result;
  const Sizes strides = contiguous_strides(x_sizes);
  result.x = {.name = "x", .data = nullptr, .device = {}, .dtype = DType::kF32, .sizes = dims(x_sizes), .strides = dims(strides)};
  result.problem.tokens = x_sizes[x_sizes.size() - 2];
  result.problem.c_z = x_sizes.back();
  return result;
}

core::MaskView mask_view(const Sizes& x_sizes, const Sizes& mask_sizes, Sizes strides = {}) {
  if (strides.empty()) strides = contiguous_strides(mask_sizes);
  const Bent call = bent_x(x_sizes);
  const core::TensorView mask{
      .name = "mask", .data = nullptr, .device = {}, .dtype = DType::kF32, .sizes = dims(mask_sizes), .strides = dims(strides)};
  return core::check_mask(mask, call.x, call.problem);
}

std::string refusal(const Sizes& x_sizes, const Sizes& mask_sizes) {
  return outcome_of([&] { mask_view(x_sizes, mask_sizes); });
}

/// Element offsets of all samples' first and last pairs.
Sizes offsets(const core::MaskView& view, std::int64_t batch, std::int64_t n) {
  Sizes list;
  for (std::int64_t b = 0; b < batch; ++b)
    for (const std::int64_t at : {std::int64_t{0}, n - 1})
      list.push_back(view.batch_offset(b) + at * view.stride_i + (n - 1) * view.stride_j);
  return list;
}

TEST(MaskForm, IsTakenAsIsWhenItsLastSizesAreNN) {
  EXPECT_EQ(offsets(mask_view({4, 4, 8}, {4, 4}), 1, 4), (Sizes{3, 15}));
  EXPECT_EQ(offsets(mask_view({2, 4, 4, 8}, {2, 4, 4}), 2, 4), (Sizes{3, 15, 19, 31}));
  EXPECT_EQ(offsets(mask_view({2, 3, 4, 4, 8}, {2, 3, 4, 4}), 6, 4), (Sizes{3, 15, 19, 31, 35, 47, 51, 63, 67, 79, 83, 95}));
}

TEST(MaskForm, ATrailingOneIsSqueezed) {
  EXPECT_EQ(offsets(mask_view({4, 4, 8}, {4, 4, 1}), 1, 4), (Sizes{3, 15}));
  EXPECT_EQ(offsets(mask_view({2, 4, 4, 8}, {2, 4, 4, 1}), 2, 4), (Sizes{3, 15, 19, 31}));
  EXPECT_EQ(offsets(mask_view({2, 4, 4, 8}, {4, 4, 1}), 2, 4), (Sizes{3, 15, 3, 15}));
}

TEST(MaskForm, AtOneTokenATrailingOneIsSqueezedWhereTheWholeDoesNotBroadcast) {
  EXPECT_EQ(offsets(mask_view({3, 1, 1, 8}, {3, 1, 1, 1}), 3, 1), (Sizes{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(offsets(mask_view({2, 3, 1, 1, 8}, {2, 3, 1, 1, 1}), 6, 1), (Sizes{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5}));
  EXPECT_EQ(offsets(mask_view({1, 1, 8}, {1, 1, 1}), 1, 1), (Sizes{0, 0}));
  EXPECT_EQ(offsets(mask_view({3, 1, 1, 8}, {1, 1, 1}), 3, 1), (Sizes{0, 0, 0, 0, 0, 0}));
  // Both readings broadcast: as it is, a value for each of the outer dimension.
  EXPECT_EQ(offsets(mask_view({2, 2, 1, 1, 8}, {2, 1, 1, 1}), 4, 1), (Sizes{0, 0, 0, 0, 1, 1, 1, 1}));
  // Neither does: the message is about the whole.
  EXPECT_TRUE(contains(refusal({3, 1, 1, 8}, {2, 1, 1, 1}), "mask: dimension 0 of [2, 1, 1, 1] is 2, expected 1"))
      << refusal({3, 1, 1, 8}, {2, 1, 1, 1});
}

TEST(MaskForm, LeadingDimensionsBroadcastFromTheRight) {
  EXPECT_EQ(offsets(mask_view({3, 4, 4, 8}, {4, 4}), 3, 4), (Sizes{3, 15, 3, 15, 3, 15}));
  EXPECT_EQ(offsets(mask_view({3, 4, 4, 8}, {1, 4, 4}), 3, 4), (Sizes{3, 15, 3, 15, 3, 15}));
  EXPECT_EQ(offsets(mask_view({2, 2, 4, 4, 8}, {2, 4, 4}), 4, 4), (Sizes{3, 15, 19, 31, 3, 15, 19, 31})) << "the inner dimension";
  EXPECT_EQ(offsets(mask_view({2, 2, 4, 4, 8}, {2, 1, 4, 4}), 4, 4), (Sizes{3, 15, 3, 15, 19, 31, 19, 31})) << "the outer dimension";
  EXPECT_EQ(offsets(mask_view({2, 4, 4, 8}, {1, 1, 2, 4, 4}), 2, 4), (Sizes{3, 15, 19, 31})) << "more dimensions than x, all of them one";
  EXPECT_EQ(offsets(mask_view({4, 4, 8}, {1, 4, 4}), 1, 4), (Sizes{3, 15}));
}

TEST(MaskForm, StridesOfAllKindsAreFollowed) {
  EXPECT_EQ(offsets(mask_view({2, 4, 4, 8}, {2, 4, 4}, {0, 4, 1}), 2, 4), (Sizes{3, 15, 3, 15})) << "expanded";
  EXPECT_EQ(offsets(mask_view({4, 4, 8}, {4, 4}, {1, 4}), 1, 4), (Sizes{12, 15})) << "transposed";
  EXPECT_EQ(offsets(mask_view({4, 4, 8}, {4, 4}, {0, 0}), 1, 4), (Sizes{0, 0})) << "one element";
  EXPECT_EQ(offsets(mask_view({4, 4, 8}, {4, 4}, {-4, -1}), 1, 4), (Sizes{-3, -15})) << "reversed";
}

TEST(MaskForm, AtOneTokenTheLastTwoSizesDecide) {
  EXPECT_EQ(offsets(mask_view({1, 1, 8}, {1, 1}), 1, 1), (Sizes{0, 0}));
  EXPECT_EQ(offsets(mask_view({1, 1, 8}, {1, 1, 1}), 1, 1), (Sizes{0, 0}));
  EXPECT_EQ(offsets(mask_view({3, 1, 1, 8}, {3, 1, 1}), 3, 1), (Sizes{0, 0, 1, 1, 2, 2})) << "[B, N, N], not [N, N, 1] with a wrong N";
  // [B, N, N, 1] cannot be told from [B, 1, N, N] here; the contract takes the latter where both broadcast.
  EXPECT_EQ(offsets(mask_view({3, 2, 1, 1, 8}, {3, 1, 1, 1}), 6, 1), (Sizes{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}));
}

TEST(MaskForm, TokenDimensionsNeverBroadcast) {
  EXPECT_EQ(refusal({4, 4, 8}, {1, 4}), "INVALID_ARGUMENT: mask: dimension N (0 of [1, 4]) is 1, expected 4 (from x)");
  EXPECT_EQ(refusal({4, 4, 8}, {4, 1}), "INVALID_ARGUMENT: mask: dimension N (1 of [4, 1]) is 1, expected 4 (from x)");
  EXPECT_EQ(refusal({4, 4, 8}, {1, 1}), "INVALID_ARGUMENT: mask: dimension N (0 of [1, 1]) is 1, expected 4 (from x)");
  EXPECT_EQ(refusal({4, 4, 8}, {1, 4, 1}), "INVALID_ARGUMENT: mask: dimension N (0 of [1, 4, 1]) is 1, expected 4 (from x)");
  EXPECT_EQ(refusal({2, 4, 4, 8}, {2, 4, 1, 1}), "INVALID_ARGUMENT: mask: dimension N (2 of [2, 4, 1, 1]) is 1, expected 4 (from x)");
  EXPECT_EQ(refusal({512, 512, 8}, {511, 512}), "INVALID_ARGUMENT: mask: dimension N (0 of [511, 512]) is 511, expected 512 (from x)");
}

TEST(MaskForm, RefusesOtherRanksAndBatches) {
  EXPECT_EQ(refusal({4, 4, 8}, {4}),
            "INVALID_ARGUMENT: mask: number of dimensions is 1 ([4]), expected at least 2: [..., N, N] or [..., N, N, 1]");
  EXPECT_EQ(refusal({4, 4, 8}, {}),
            "INVALID_ARGUMENT: mask: number of dimensions is 0 ([]), expected at least 2: [..., N, N] or [..., N, N, 1]");
  EXPECT_EQ(refusal({3, 4, 4, 8}, {2, 4, 4}), "INVALID_ARGUMENT: mask: dimension 0 of [2, 4, 4] is 2, expected 3 or 1 (x is [3, 4, 4, 8])");
  EXPECT_EQ(refusal({4, 4, 8}, {2, 4, 4}), "INVALID_ARGUMENT: mask: dimension 0 of [2, 4, 4] is 2, expected 1 (x is [4, 4, 8])");
  EXPECT_EQ(refusal({2, 3, 4, 4, 8}, {2, 4, 4}),
            "INVALID_ARGUMENT: mask: dimension 0 of [2, 4, 4] is 2, expected 3 or 1 (x is [2, 3, 4, 4, 8])");
  EXPECT_EQ(refusal({2, 4, 4, 8}, {3, 2, 4, 4}),
            "INVALID_ARGUMENT: mask: dimension 0 of [3, 2, 4, 4] is 3, expected 1 (x is [2, 4, 4, 8])");
  EXPECT_EQ(refusal({4, 4, 8}, {4, 4, 8}), "INVALID_ARGUMENT: mask: dimension N (2 of [4, 4, 8]) is 8, expected 4 (from x)");
}

}  // namespace
}  // namespace trimul::testing
