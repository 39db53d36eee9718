// SPDX-License-Identifier: Apache-2.0
// The rule for single values of bf16 GPU kernels against the reference with their rounding points (docs/numerics.md): numbers alone, by
// which the command and the C++ tests judge alike. r: RMS of the reference.
#pragma once

#include <cmath>
#include <cstddef>

namespace trimul::cli {

inline constexpr double kNearShareOfRms = 4e-3;  // all but a few values
inline constexpr double kFarShareOfRms = 2e-2;   // all values

/// How far a value may be from `reference` at `share` of r. The last term is the value's own rounding, four times over.
inline double kernel_cell_limit(double share, double rms, double reference) {
  return share * rms + std::abs(reference) / 64;
}

/// How many of `count` values may lie beyond kNearShareOfRms: 300 in a million, and what a sample of them scatters. A rounding of y that
/// falls the other way than the reference's moves all outputs of its pair, the more where biases give y a common offset: values beyond the
/// limit come in clumps, whose squares' sum is up to three times their number, and so is the variance of their count. Four standard
/// deviations.
inline double most_beyond_near(std::size_t count) {
  constexpr double kShare = 300e-6;
  constexpr double kClump = 3.0;
  const double expected = kShare * static_cast<double>(count);
  return expected + 4 * std::sqrt(kClump * expected) + 1;
}

}  // namespace trimul::cli
