// SPDX-License-Identifier: Apache-2.0
// Fixture of the operator's tests: parameterised over every implementation that serves problems of this machine, on its CPU or its GPU.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <iostream>
#include <set>
#include <string>
#include <vector>

#include "support/comparison.hpp"
#include "support/random.hpp"
#include "support/runner.hpp"

namespace trimul::testing {

inline constexpr std::array kDirections{TRIMUL_OUTGOING, TRIMUL_INCOMING};
inline constexpr std::array kXDTypes{DType::kF32, DType::kBf16, DType::kF16, DType::kF64};

class OperatorTest : public ::testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] const std::string& implementation() const { return GetParam(); }

  [[nodiscard]] bool on_gpu() const { return runs_on_gpu(implementation()); }

  /// The case as given where the implementation accepts it, else as a GPU implementation of few widths and dtypes can serve it.
  [[nodiscard]] Spec fitted(const Spec& spec) const {
    return !on_gpu() || rejection_of(implementation(), Case(spec).problem()).empty() ? spec : gpu_spec(spec);
  }

  /// gpu_specs for small N, where they are cheap; else one of them, the next at every call, beginning one later in every round, so that in
  /// loops of any length each kind meets each turn.
  std::vector<Spec> gpu_specs(const Spec& spec) {
    constexpr std::int64_t kCheap = 40;
    const std::vector<Spec> all = testing::gpu_specs(implementation(), spec);
    if (spec.n <= kCheap || all.empty()) return all;
    const std::size_t kind = next_kind_++;
    return {all[(kind + kind / all.size()) % all.size()]};
  }

  /// False, with the reason printed once, when the implementation declines the problem.
  bool accepts(const Case& data) {
    const std::string reason = rejection_of(implementation(), data.problem());
    if (!reason.empty() && reasons_.insert(reason).second) std::cout << "left out: " << implementation() << ": " << reason << '\n';
    if (reason.empty()) ++accepted_;
    return reason.empty();
  }
  /// The same, and false for a case that this test has met before: fitting makes one of several.
  bool accepts_new(const Case& data) { return (!on_gpu() || met_.insert(describe(data.spec)).second) && accepts(data); }

  /// Runs the case, fitted, against its oracle unless the implementation declines it.
  void check(const Spec& spec, const RunOptions& options = {}, const Limits& limits = {}) {
    const Spec served = fitted(spec);
    if (on_gpu() && !met_.insert(describe(served) + (options.in_place ? " in place" : "")).second) return;
    check(Case(served), options, limits);
  }
  /// The case as it is.
  void check(const Case& data, const RunOptions& options = {}, const Limits& limits = {}) {
    if (!accepts(data)) return;
    const Oracle oracle = make_oracle(data, implementation());  // before an in-place call changes x
    EXPECT_TRUE(meets_contract(data, implementation(), run(data, implementation(), options).values, oracle, limits));
  }

  void TearDown() override {
    if (accepted_ > 0 || IsSkipped()) return;
    // The CPU's implementations serve some case of every test; a GPU's may serve a dtype less.
    if (on_gpu()) GTEST_SKIP() << implementation() << ": " << (reasons_.empty() ? "no case" : *reasons_.begin());
    ADD_FAILURE() << implementation() << " declined every case of this test";
  }

 private:
  int accepted_ = 0;
  std::size_t next_kind_ = 0;
  std::set<std::string> reasons_;
  std::set<std::string> met_;
};

#define TRIMUL_INSTANTIATE_OPERATOR_TEST(Suite) \
  INSTANTIATE_TEST_SUITE_P(Every, Suite, ::testing::ValuesIn(serving_implementations()), test_name)

}  // namespace trimul::testing
