// SPDX-License-Identifier: Apache-2.0
// Every implementation against the fp64 reference, over a selection of the sweep that users' models span.
#include <gtest/gtest.h>

#include "support/comparison.hpp"
#include "support/runner.hpp"

namespace trimul::testing {
namespace {

class Accuracy : public ::testing::TestWithParam<std::string> {
 protected:
  /// Runs a case; does nothing when the implementation declines it, which `declined()` counts.
  void check(const Spec& spec, const RunOptions& options = {}) {
    const Case data(spec);
    if (!rejection_of(GetParam(), data.problem()).empty()) {
      ++declined_;
      return;
    }
    const Oracle oracle = make_oracle(data);  // before an in-place call changes x
    ++checked_;
    EXPECT_TRUE(meets_contract(data, GetParam(), run(data, GetParam(), options).values, oracle));
  }
  void TearDown() override { EXPECT_GT(checked_, 0) << GetParam() << " declined every case"; }

  int checked_ = 0;
  int declined_ = 0;
};

constexpr std::array kDirections{TRIMUL_OUTGOING, TRIMUL_INCOMING};
constexpr std::array kXDTypes{DType::kF32, DType::kBf16, DType::kF16, DType::kF64};

TEST_P(Accuracy, HoldsAtEveryNUpTo40) {
  for (std::int64_t n = 1; n <= 40; ++n)
    for (const auto direction : kDirections)
      check({.n = n, .c_z = 8, .c = 8 + n % 3, .x_dtype = kXDTypes[static_cast<std::size_t>(n) % 3], .direction = direction});
}

INSTANTIATE_TEST_SUITE_P(Every, Accuracy, ::testing::ValuesIn(serving_implementations()), test_name);

}  // namespace
}  // namespace trimul::testing
