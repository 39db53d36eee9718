// SPDX-License-Identifier: Apache-2.0
// How far a result may be from the fp64 reference, and how far it is.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "narrow_rule.hpp"
#include "problem_set.hpp"

namespace trimul::cli {

/// Relative RMS bounds against the reference without rounding points and, for GPU kernels, with theirs (docs/numerics.md).
struct Bounds {
  double to_none = 0.0;
  std::optional<double> to_kernel;
};

/// Bounds for widths C of at least kNarrowWidth. Below, they are taken from a plain composition: narrow_rule.hpp.
Bounds bounds_of(std::string_view implementation, const ProblemLine& line);

/// A plain composition in the result's dtype, its sums forwards and backwards, and what LayerNorm's slope may move each cell's C_z values
/// by. Its products are those of the implementation that is judged.
struct PlainSamples {
  trimul_dtype dtype = TRIMUL_F32;
  Products products = Products::kStored;
  std::vector<double> forward, backward;
  std::vector<double> slope;  // one for each cell
};
/// The bound of the relative RMS for widths below kNarrowWidth. `kernel`: the reference with the rounding points of a GPU's kernels, a
/// third sample of what the plain composition's error may be, since that rounds there too; null for other implementations.
double narrow_bound(const PlainSamples& plain, const std::vector<double>* kernel, const std::vector<double>& reference);
/// The rule for single values there. Returns what is wrong, or nothing.
std::string judge_narrow_cells(const std::vector<double>& got, const std::vector<double>& reference, const PlainSamples& plain,
                               const std::vector<double>* kernel);

/// Root mean square of the differences, relative to that of the reference, or absolute where the reference is all zero. Cells
/// that are not finite in the reference do not enter; `mismatch` says where they, or NaN and Inf elsewhere, disagree.
struct ErrorFigures {
  double relative_rms = 0.0;
  bool is_absolute = false;
  std::string mismatch;
};
ErrorFigures compare(const std::vector<double>& got, const std::vector<double>& reference);

/// The rule for single values of bf16 GPU kernels: kernel_cell_rule.hpp. Returns what is wrong, or nothing.
std::string judge_cells(const std::vector<double>& got, const std::vector<double>& reference);

}  // namespace trimul::cli
