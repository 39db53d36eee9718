// SPDX-License-Identifier: Apache-2.0
// The oracle: the operator in plain fp64 loops, too simple to be wrong. Not the CPU implementation; speed is no aim here.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/problem.hpp"
#include "core/tensor.hpp"

namespace trimul::reference {

/// kNone: fp64 throughout, from the stored inputs. kKernel: additionally rounds where the GPU kernels round
/// (docs/numerics.md): weights, both normalised rows, a and b, and for bf16 also y. The output is never rounded here.
enum class Rounding { kNone, kKernel };

/// The twelve parameters as fp64, absent ones filled in (ones, zeros), matrices transposed.
struct ReferenceWeights {
  std::vector<double> norm_in_weight, norm_in_bias;    // [C_z]
  std::vector<double> p_in_weight, g_in_weight;        // [C_z, 2C]
  std::vector<double> p_in_bias, g_in_bias;            // [2C]
  std::vector<double> norm_out_weight, norm_out_bias;  // [C]
  std::vector<double> p_out_weight;                    // [C, C_z]
  std::vector<double> g_out_weight;                    // [C_z, C_z]
  std::vector<double> p_out_bias, g_out_bias;          // [C_z]

  ReferenceWeights(const core::Parameters& parameters, std::int64_t c_z, std::int64_t c_hidden);
};

/// A cell of the result: sample b, tokens i and j.
struct Cell {
  std::int64_t b = 0, i = 0, j = 0;
};

class Reference {
 public:
  /// Receives the C_z output values of one cell.
  using Sink = std::function<void(const Cell& cell, const double* values)>;

  /// x: [B, N, N, C_z] of problem.x_dtype. Keeps references to its arguments.
  Reference(const core::Problem& problem, const void* x, const std::optional<core::MaskView>& mask, const ReferenceWeights& weights,
            Rounding rounding);

  /// Doubles of scratch that `all` needs: a and b of one sample.
  static std::int64_t scratch_doubles(const core::Problem& problem) { return 2 * problem.pairs() * problem.c_hidden; }

  /// Every cell, sample by sample; `sink` is called from up to num_threads threads, never twice for one cell. `sink` may overwrite
  /// x of its own cell, but of no other.
  void all(int num_threads, std::span<double> scratch, const Sink& sink) const;

  /// Only the given cells, in O(N C C_z) each; cells that share a token row share its projection.
  void sampled(std::span<const Cell> cells, int num_threads, const Sink& sink) const;

 private:
  void normalised_input(const Cell& cell, std::span<double> z) const;
  void project(const Cell& cell, double* a, double* b) const;
  void output(const Cell& cell, std::span<const double> y, std::span<double> out) const;
  [[nodiscard]] double x_value(std::int64_t index) const;
  [[nodiscard]] double mask_value(const Cell& cell) const;

  const core::Problem& problem_;
  const void* x_;
  const std::optional<core::MaskView>& mask_;
  ReferenceWeights weights_;  // rounded copy under Rounding::kKernel
  double (*round_operand_)(double);
  double (*round_y_)(double);
};

/// out[k] = (row[k] - mean) / sqrt(variance + eps) * weight[k] + bias[k], population variance, two passes.
void layer_norm(std::span<const double> row, std::span<const double> weight, std::span<const double> bias, double eps,
                std::span<double> out);

}  // namespace trimul::reference
