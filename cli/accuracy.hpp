// SPDX-License-Identifier: Apache-2.0
// How far a result may be from the fp64 reference, and how far it is.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "problem_set.hpp"

namespace trimul::cli {

/// Relative RMS bounds against the reference without rounding points and, for GPU kernels, with theirs (docs/numerics.md).
struct Bounds {
  double to_none = 0.0;
  std::optional<double> to_kernel;
};

/// Bounds for widths C of at least kNarrowWidth. Below, the bound is taken from a plain composition: narrow_bound.
Bounds bounds_of(std::string_view implementation, const ProblemLine& line);
inline constexpr std::int64_t kNarrowWidth = 32;

/// Twice the plain composition's error plus the dtype's noise.
double narrow_bound(double plain_error, trimul_dtype dtype);

/// Root mean square of the differences, relative to that of the reference, or absolute where the reference is all zero. Cells
/// that are not finite in the reference do not enter; `mismatch` says where they, or NaN and Inf elsewhere, disagree.
struct ErrorFigures {
  double relative_rms = 0.0;
  bool is_absolute = false;
  std::string mismatch;
};
ErrorFigures compare(const std::vector<double>& got, const std::vector<double>& reference);

/// The rule for single values of GPU kernels: with r the reference's root mean square, all within 2e-2 r + |reference| / 64, and all but
/// 300 in a million (and three standard deviations of that count) within 4e-3 r + |reference| / 64. Returns what is wrong, or nothing.
std::string judge_cells(const std::vector<double>& got, const std::vector<double>& reference);

}  // namespace trimul::cli
