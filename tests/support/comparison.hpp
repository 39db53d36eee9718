// SPDX-License-Identifier: Apache-2.0
// The verdict: is a result what the contract asks for. Every threshold is computed from the case (contract, "Rounding points and
// accuracy"): at most twice the error of the plain same-dtype composition plus a rounding's noise, the absolute limits of the path,
// and NaN and Inf where the reference has them and nowhere else.
#pragma once

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "support/case.hpp"

namespace trimul::testing {

/// RMS of the difference over RMS of the reference, over cells where both are finite; plain RMS of the difference where the
/// reference is zero.
double relative_rms(const std::vector<double>& got, const std::vector<double>& reference);
double rms(const std::vector<double>& values);

/// The fp64 reference through the C ABI, [B, N, N, C_z].
std::vector<double> reference_of(const Case& data, trimul_rounding rounding = TRIMUL_ROUNDING_NONE);

/// What a result is measured against; made once a case.
struct Oracle {
  std::vector<double> none;    // reference without roundings
  std::vector<double> kernel;  // with the GPU kernels' roundings, for those alone
  // Same-dtype composition, its products those of the implementation that is judged, its sums forwards and backwards: samples of its error,
  // of which the worst counts, and for a GPU's kernels the declared roundings by themselves are a third. LayerNorm over a few channels
  // that nearly agree amplifies a single rounding, so that one sample alone says little about its worst cell.
  std::vector<double> plain, plain_backward;
  std::vector<double> slope;  // a pair's share of the second LayerNorm's slope, for C < 32; cli/narrow_rule.hpp
};
/// `implementation`: that is to be judged.
Oracle make_oracle(const Case& data, std::string_view implementation);

struct Limits {
  bool absolute = true;    // the table's absolute limits as well; off where the data are outside of its sweep (C < 32 is always)
  double none = -1;        // overrides the table's limit on the relative RMS to "none"
  bool infinities = true;  // infinities must be the reference's; off: any value that is not finite will do in their place
};

/// `got`: [B, N, N, C_z] as stored in the result's dtype by `implementation`.
::testing::AssertionResult meets_contract(const Case& data, std::string_view implementation, const std::vector<double>& got,
                                          const Oracle& oracle, const Limits& limits = {});
/// With its own oracle.
::testing::AssertionResult meets_contract(const Case& data, std::string_view implementation, const std::vector<double>& got);

}  // namespace trimul::testing
