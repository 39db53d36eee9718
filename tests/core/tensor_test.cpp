// SPDX-License-Identifier: Apache-2.0
// Views of hostile tensors.
#include "core/tensor.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "support/errors.hpp"

namespace trimul::testing {
namespace {

using Sizes = std::vector<std::int64_t>;
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

alignas(64) float memory[64];

trimul_tensor tensor_of(const Sizes& sizes, const Sizes* strides = nullptr, std::int32_t dtype = TRIMUL_F32) {
  return {memory, {TRIMUL_CPU, 0}, static_cast<std::int32_t>(sizes.size()),
          dtype,  sizes.data(),    strides == nullptr ? nullptr : strides->data()};
}

std::string viewed(const trimul_tensor& tensor) {
  return outcome_of([&] { core::view_tensor("x", &tensor); });
}

TEST(TensorView, NamesWhatIsMalformed) {
  const Sizes sizes{2, 3};
  const auto changed = [&](auto change) {
    trimul_tensor tensor = tensor_of(sizes);
    change(tensor);
    return viewed(tensor);
  };
  EXPECT_EQ(outcome_of([] { core::view_tensor("mask", nullptr); }), "INVALID_ARGUMENT: mask: is missing, expected a tensor");
  EXPECT_EQ(changed([](auto& t) { t.dtype = 0; }), "INVALID_ARGUMENT: x: dtype is 0, expected a trimul_dtype (1 to 10)");
  EXPECT_EQ(changed([](auto& t) { t.dtype = 11; }), "INVALID_ARGUMENT: x: dtype is 11, expected a trimul_dtype (1 to 10)");
  EXPECT_EQ(changed([](auto& t) { t.device.type = 10; }), "INVALID_ARGUMENT: x: device type is 10, expected 1 (CPU) or 2 (CUDA)");
  EXPECT_EQ(changed([](auto& t) { t.ndim = -1; }), "INVALID_ARGUMENT: x: number of dimensions is -1, expected 0 to 32");
  EXPECT_EQ(changed([](auto& t) { t.ndim = 33; }), "INVALID_ARGUMENT: x: number of dimensions is 33, expected 0 to 32");
  EXPECT_EQ(changed([](auto& t) { t.sizes = nullptr; }), "INVALID_ARGUMENT: x: sizes is NULL, expected 2 numbers");
  EXPECT_EQ(changed([](auto& t) { t.data = nullptr; }), "INVALID_ARGUMENT: x: data is NULL, expected 6 elements");
  EXPECT_EQ(changed([](auto& t) { t.data = reinterpret_cast<char*>(memory) + 2; }),
            "INVALID_ARGUMENT: x: data is not aligned to its element size, expected a multiple of 4 bytes");
  const Sizes negative{2, -3};
  EXPECT_EQ(viewed(tensor_of(negative)), "INVALID_ARGUMENT: x: dimension 1 is -3, expected at least 0");
}

TEST(TensorView, RefusesElementCountsBeyond64BitBytes) {
  for (const Sizes& sizes :
       std::vector<Sizes>{{kMost}, {kMost / 4 + 1}, {std::int64_t{1} << 32, std::int64_t{1} << 32}, {kMost, kMost, kMost}, {2, kMost}})
    EXPECT_TRUE(contains(viewed(tensor_of(sizes)), "does not fit into 64-bit byte counts")) << viewed(tensor_of(sizes));
}

TEST(TensorView, EmptyTensorsMayHaveAnyOtherSizesAndNoData) {
  for (const Sizes& sizes : std::vector<Sizes>{
           {0}, {0, kMost, kMost}, {kMost, kMost, 0}, {std::int64_t{1} << 40, std::int64_t{1} << 40, 0}, {kMost, 0, kMost}}) {
    trimul_tensor tensor = tensor_of(sizes);
    tensor.data = nullptr;
    ASSERT_EQ(viewed(tensor), "OK");
    const core::TensorView view = core::view_tensor("x", &tensor);
    EXPECT_EQ(view.elements(), 0);
    EXPECT_TRUE(view.is_contiguous());
    EXPECT_FALSE(view.bytes().intersects({0, std::numeric_limits<std::uintptr_t>::max()}));
  }
}

TEST(TensorView, RefusesStridesThatReachBeyondTheAddressSpace) {
  const Sizes sizes{2, 2};
  for (const Sizes& strides : std::vector<Sizes>{{kMost, 1},
                                                 {kLeast, 1},
                                                 {kMost / 4, 1},
                                                 {1, kMost / 4 + 1},
                                                 {kMost / 4, kMost / 4},
                                                 {-(kMost / 4), -(kMost / 4)},
                                                 {(std::int64_t{1} << 61) - 1, 0},
                                                 {-(std::int64_t{1} << 46), 0}})
    EXPECT_TRUE(contains(viewed(tensor_of(sizes, &strides)), "x: strides reach beyond"))
        << strides[0] << ", " << strides[1] << ": " << viewed(tensor_of(sizes, &strides));
  const Sizes single{1, 1};  // strides of single elements do not matter
  const Sizes wild{kMost, kLeast};
  EXPECT_EQ(viewed(tensor_of(single, &wild)), "OK");
}

TEST(TensorView, KnowsItsBytesForAnyStrides) {
  const auto base = reinterpret_cast<std::uintptr_t>(memory);
  const auto range = [](const Sizes& sizes, const Sizes& strides) {
    const trimul_tensor tensor = tensor_of(sizes, &strides);
    return core::view_tensor("x", &tensor).bytes();
  };
  EXPECT_EQ(range({2, 3}, {3, 1}).begin, base);
  EXPECT_EQ(range({2, 3}, {3, 1}).end, base + 24);
  EXPECT_EQ(range({2, 3}, {1, 2}).end, base + 24);   // transposed
  EXPECT_EQ(range({2, 3}, {0, 1}).end, base + 12);   // expanded
  EXPECT_EQ(range({2, 3}, {0, 0}).end, base + 4);    // one element
  EXPECT_EQ(range({2, 3}, {10, 2}).end, base + 60);  // with holes
  EXPECT_EQ(range({2, 3}, {-3, 1}).begin, base - 12);
  EXPECT_EQ(range({2, 3}, {-3, 1}).end, base + 12);
  EXPECT_EQ(range({2, 3}, {-3, -1}).begin, base - 20);
  EXPECT_EQ(range({2, 3}, {-3, -1}).end, base + 4);
}

TEST(TensorView, ContiguityLooksAtDimensionsThatMatter) {
  const auto contiguous = [](const Sizes& sizes, const Sizes& strides) {
    const trimul_tensor tensor = tensor_of(sizes, &strides);
    return core::view_tensor("x", &tensor).is_contiguous();
  };
  EXPECT_TRUE(contiguous({2, 3}, {3, 1}));
  EXPECT_TRUE(contiguous({1, 2, 1, 3}, {99, 3, -5, 1}));
  EXPECT_FALSE(contiguous({2, 3}, {1, 2}));
  EXPECT_FALSE(contiguous({2, 3}, {0, 1}));
  EXPECT_FALSE(contiguous({2, 3}, {4, 1}));
  EXPECT_FALSE(contiguous({2, 3}, {3, -1}));
}

TEST(TensorView, FillsContiguousStrides) {
  const Sizes sizes{2, 3, 4};
  const trimul_tensor tensor = tensor_of(sizes);
  const core::TensorView view = core::view_tensor("x", &tensor);
  EXPECT_EQ(Sizes(view.strides.begin(), view.strides.end()), (Sizes{12, 4, 1}));
  EXPECT_EQ(core::view_tensor("x", &tensor).shape_text(), "[2, 3, 4]");
}

TEST(ByteRange, IntersectsWhenOneByteIsShared) {
  const core::ByteRange range{100, 200};
  EXPECT_TRUE(range.intersects({199, 300}));
  EXPECT_FALSE(range.intersects({200, 300}));
  EXPECT_TRUE(range.intersects({0, 101}));
  EXPECT_FALSE(range.intersects({0, 100}));
  EXPECT_TRUE(range.intersects({150, 151}));
  EXPECT_TRUE(range.intersects({0, 1000}));
  EXPECT_FALSE(range.intersects({150, 150}));  // nothing shares no byte
}

}  // namespace
}  // namespace trimul::testing
