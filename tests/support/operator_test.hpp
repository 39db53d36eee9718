// SPDX-License-Identifier: Apache-2.0
// Fixture of the operator's tests: parameterised over every implementation that serves this machine's CPU problems.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <iostream>
#include <set>
#include <string>

#include "support/comparison.hpp"
#include "support/random.hpp"
#include "support/runner.hpp"

namespace trimul::testing {

inline constexpr std::array kDirections{TRIMUL_OUTGOING, TRIMUL_INCOMING};
inline constexpr std::array kXDTypes{DType::kF32, DType::kBf16, DType::kF16, DType::kF64};

class OperatorTest : public ::testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] const std::string& implementation() const { return GetParam(); }

  /// False, with the reason printed once, when the implementation declines the problem.
  bool accepts(const Case& data) {
    const std::string reason = rejection_of(implementation(), data.problem());
    if (!reason.empty() && reasons_.insert(reason).second) std::cout << "left out: " << implementation() << ": " << reason << '\n';
    if (reason.empty()) ++accepted_;
    return reason.empty();
  }

  /// Runs the case against its oracle unless the implementation declines it.
  void check(const Spec& spec, const RunOptions& options = {}, const Limits& limits = {}) { check(Case(spec), options, limits); }
  void check(const Case& data, const RunOptions& options = {}, const Limits& limits = {}) {
    if (!accepts(data)) return;
    const Oracle oracle = make_oracle(data);  // before an in-place call changes x
    EXPECT_TRUE(meets_contract(data, implementation(), run(data, implementation(), options).values, oracle, limits));
  }

  void TearDown() override { EXPECT_GT(accepted_, 0) << implementation() << " declined every case of this test"; }

 private:
  int accepted_ = 0;
  std::set<std::string> reasons_;
};

#define TRIMUL_INSTANTIATE_OPERATOR_TEST(Suite) \
  INSTANTIATE_TEST_SUITE_P(Every, Suite, ::testing::ValuesIn(serving_implementations()), test_name)

}  // namespace trimul::testing
