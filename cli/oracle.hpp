// SPDX-License-Identifier: Apache-2.0
// The fp64 reference's values for a problem: all of them where that is affordable, else those of a grid of cells.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "accuracy.hpp"
#include "problem_set.hpp"

namespace trimul::cli {

class Oracle {
 public:
  /// `inputs` must outlive this object.
  Oracle(const ProblemLine& line, const Inputs& inputs, std::uint64_t seed);

  /// Values without rounding points, C_z for each cell.
  [[nodiscard]] const std::vector<double>& none() const { return none_; }
  /// With the rounding points of GPU kernels; computed when first asked for.
  [[nodiscard]] const std::vector<double>& kernel();
  /// Of plain compositions in the result's dtype; computed when first asked for.
  [[nodiscard]] const PlainSamples& plain(Products products);
  /// The values of the oracle's cells out of all of `out`, which is of the given dtype.
  [[nodiscard]] std::vector<double> select(const void* out, trimul_dtype dtype) const;
  [[nodiscard]] bool is_sampled() const { return is_sampled_; }

 private:
  [[nodiscard]] std::vector<double> compute(trimul_rounding rounding) const;
  void choose_cells(std::uint64_t seed);

  ProblemLine line_;
  const Inputs& inputs_;
  bool is_sampled_ = false;
  std::vector<std::array<std::int64_t, 3>> cells_;  // (b, i, j); empty when all
  std::vector<double> none_;
  std::optional<std::vector<double>> kernel_;
  std::map<Products, PlainSamples> plain_;
};

}  // namespace trimul::cli
