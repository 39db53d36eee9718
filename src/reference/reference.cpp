// SPDX-License-Identifier: Apache-2.0
#include "reference/reference.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/checked.hpp"
#include "core/parallel.hpp"

namespace trimul::reference {
namespace {

using core::DType;
using core::Precision;

double exact(double value) {
  return value;
}
double to_bf16(double value) {
  return static_cast<double>(core::float_from_bf16(core::bf16_from_float(static_cast<float>(value))));
}
double to_fp16(double value) {
  return static_cast<double>(core::float_from_half(core::half_from_float(static_cast<float>(value))));
}
double to_tf32(double value) {
  return static_cast<double>(core::round_mantissa(static_cast<float>(value), 10));
}

double sigmoid(double logit) {
  return 1.0 / (1.0 + std::exp(-logit));
}

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define TRIMUL_ALSO_FOR_AVX2 __attribute__((target_clones("default", "avx2")))
#else
#define TRIMUL_ALSO_FOR_AVX2
#endif

/// out[r] = sum over k of row[k] * matrix[k][r], + bias[r]; four terms at a time, in their order. `matrix`: [size of row, size of out].
TRIMUL_ALSO_FOR_AVX2 void product(std::span<const double> row, const std::vector<double>& matrix, const std::vector<double>& bias,
                                  std::span<double> out) {
  const std::size_t rows = out.size();
  double* __restrict sums = out.data();
  std::fill(out.begin(), out.end(), 0.0);
  for (std::size_t k = 0, terms = 0; k < row.size(); k += terms) {
    const double* weights = &matrix[k * rows];
    const double* factors = &row[k];
    terms = row.size() - k < 4 ? 1 : 4;
    if (terms == 1) {
      for (std::size_t r = 0; r < rows; ++r) sums[r] += factors[0] * weights[r];
      continue;
    }
    for (std::size_t r = 0; r < rows; ++r) {
      double sum = sums[r];
      sum += factors[0] * weights[r];
      sum += factors[1] * weights[r + rows];
      sum += factors[2] * weights[r + 2 * rows];
      sum += factors[3] * weights[r + 3 * rows];
      sums[r] = sum;
    }
  }
  for (std::size_t r = 0; r < rows; ++r) sums[r] += bias[r];
}

/// sums[channel] += a[k][channel] * b[k][channel] for `terms` values of k, 1 or 4, in their order. `step` is the distance of two values of
/// k in both operands. One multiplication and one addition a term, whatever the width of the instructions: the same bits on every machine.
TRIMUL_ALSO_FOR_AVX2 void add_products(double* __restrict sums, const double* __restrict a, const double* __restrict b, std::int64_t step,
                                       std::int64_t terms, std::int64_t channels) {
  if (terms == 1) {
    for (std::int64_t channel = 0; channel < channels; ++channel) sums[channel] += a[channel] * b[channel];
    return;
  }
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    double sum = sums[channel];
    sum += a[channel] * b[channel];
    sum += a[channel + step] * b[channel + step];
    sum += a[channel + 2 * step] * b[channel + 2 * step];
    sum += a[channel + 3 * step] * b[channel + 3 * step];
    sums[channel] = sum;
  }
}

/// How the GPU kernels of this problem round a matrix operand.
double (*operand_rounding(const core::Problem& problem))(double) {
  if (problem.precision == Precision::kBf16) return to_bf16;
  if (problem.precision == Precision::kIeee) return exact;
  if (problem.x_dtype == DType::kBf16) return to_bf16;
  if (problem.x_dtype == DType::kF16) return to_fp16;
  if (problem.x_dtype == DType::kF32 && problem.precision == Precision::kTf32) return to_tf32;
  return exact;
}

std::vector<double> as_doubles(const core::TensorView& tensor) {
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  for (std::size_t k = 0; k < values.size(); ++k) values[k] = core::load_as_double(tensor.data, tensor.dtype, static_cast<std::int64_t>(k));
  return values;
}

/// A [rows, columns] matrix as [columns, rows], the order in which `product` reads it.
std::vector<double> transposed(const std::vector<double>& matrix, std::int64_t columns) {
  const auto n = static_cast<std::size_t>(columns);
  std::vector<double> result(matrix.size());
  for (std::size_t k = 0; k < matrix.size(); ++k) result[k % n * (matrix.size() / n) + k / n] = matrix[k];
  return result;
}

std::vector<double> as_doubles(const std::optional<core::TensorView>& tensor, std::int64_t count, double absent) {
  return tensor ? as_doubles(*tensor) : std::vector<double>(static_cast<std::size_t>(count), absent);
}

}  // namespace

ReferenceWeights::ReferenceWeights(const core::Parameters& p, std::int64_t c_z, std::int64_t c)
    : norm_in_weight(as_doubles(p.norm_in_weight, c_z, 1.0)),
      norm_in_bias(as_doubles(p.norm_in_bias, c_z, 0.0)),
      p_in_weight(transposed(as_doubles(p.p_in_weight), c_z)),
      g_in_weight(transposed(as_doubles(p.g_in_weight), c_z)),
      p_in_bias(as_doubles(p.p_in_bias, 2 * c, 0.0)),
      g_in_bias(as_doubles(p.g_in_bias, 2 * c, 0.0)),
      norm_out_weight(as_doubles(p.norm_out_weight, c, 1.0)),
      norm_out_bias(as_doubles(p.norm_out_bias, c, 0.0)),
      p_out_weight(transposed(as_doubles(p.p_out_weight), c)),
      g_out_weight(transposed(as_doubles(p.g_out_weight), c_z)),
      p_out_bias(as_doubles(p.p_out_bias, c_z, 0.0)),
      g_out_bias(as_doubles(p.g_out_bias, c_z, 0.0)) {}

void layer_norm(std::span<const double> row, std::span<const double> weight, std::span<const double> bias, double eps,
                std::span<double> out) {
  const auto count = static_cast<double>(row.size());
  double mean = 0.0;
  for (const double value : row) mean += value / count;
  // The mean of the deviations takes back what rounding left in the mean: a constant row of 3e38 has no deviation, not one of 1e22.
  double shift = 0.0;
  for (const double value : row) shift += (value - mean) / count;
  mean += shift;
  double variance = 0.0;
  for (const double value : row) variance += (value - mean) * (value - mean) / count;
  const double scale = 1.0 / std::sqrt(variance + eps);
  for (std::size_t k = 0; k < row.size(); ++k) out[k] = (row[k] - mean) * scale * weight[k] + bias[k];
}

Reference::Reference(const core::Problem& problem, const void* x, const std::optional<core::MaskView>& mask,
                     const ReferenceWeights& weights, Rounding rounding)
    : problem_(problem), x_(x), mask_(mask), weights_(weights), round_operand_(exact), round_y_(exact) {
  if (rounding == Rounding::kNone) return;
  round_operand_ = operand_rounding(problem);
  if (round_operand_ == to_bf16) round_y_ = to_bf16;  // fp16 and wider keep y in fp32, which no test can tell from fp64
  for (auto* matrix : {&weights_.p_in_weight, &weights_.g_in_weight, &weights_.p_out_weight, &weights_.g_out_weight})
    for (double& value : *matrix) value = round_operand_(value);
}

double Reference::x_value(std::int64_t index) const {
  const double value = core::load_as_double(x_, problem_.x_dtype, index);
  return problem_.rounds_x_to_bf16() ? to_bf16(value) : value;
}

/// The mask is an fp32 factor whatever its dtype (fp64 problems alone keep it whole).
double Reference::mask_value(const Cell& cell) const {
  if (!mask_) return 1.0;
  const std::int64_t index = mask_->batch_offset(cell.b) + cell.i * mask_->stride_i + cell.j * mask_->stride_j;
  const double value = core::load_as_double(mask_->data, mask_->dtype, index);
  return problem_.x_dtype == DType::kF64 ? value : static_cast<double>(static_cast<float>(value));
}

void Reference::normalised_input(const Cell& cell, std::span<double> z) const {
  const std::int64_t n = problem_.tokens;
  const std::int64_t first = ((cell.b * n + cell.i) * n + cell.j) * problem_.c_z;
  std::vector<double> row(z.size());
  for (std::size_t k = 0; k < row.size(); ++k) row[k] = x_value(first + static_cast<std::int64_t>(k));
  layer_norm(row, weights_.norm_in_weight, weights_.norm_in_bias, static_cast<double>(problem_.eps), z);
  for (double& value : z) value = round_operand_(value);
}

/// a, b: C values each. A zero mask selects zero, whatever x holds there.
void Reference::project(const Cell& cell, double* a, double* b) const {
  const std::int64_t c = problem_.c_hidden;
  const double mask = mask_value(cell);
  if (mask == 0.0) {
    std::fill(a, a + c, 0.0);
    std::fill(b, b + c, 0.0);
    return;
  }
  std::vector<double> z(static_cast<std::size_t>(problem_.c_z));
  std::vector<double> gates(static_cast<std::size_t>(2 * c));
  std::vector<double> values(gates.size());
  normalised_input(cell, z);
  product(z, weights_.g_in_weight, weights_.g_in_bias, gates);
  product(z, weights_.p_in_weight, weights_.p_in_bias, values);
  for (std::size_t row = 0; row < gates.size(); ++row) values[row] = round_operand_(sigmoid(gates[row]) * values[row] * mask);
  std::copy(values.begin(), values.begin() + c, a);
  std::copy(values.begin() + c, values.end(), b);
}

void Reference::output(const Cell& cell, std::span<const double> y, std::span<double> out) const {
  const std::int64_t n = problem_.tokens;
  std::vector<double> z(static_cast<std::size_t>(problem_.c_z));
  normalised_input(cell, z);
  std::vector<double> rounded_y(y.begin(), y.end());
  for (double& value : rounded_y) value = round_y_(value);
  std::vector<double> u(y.size());
  layer_norm(rounded_y, weights_.norm_out_weight, weights_.norm_out_bias, static_cast<double>(problem_.eps), u);
  for (double& value : u) value = round_operand_(value);
  std::vector<double> gates(out.size());
  product(z, weights_.g_out_weight, weights_.g_out_bias, gates);
  product(u, weights_.p_out_weight, weights_.p_out_bias, out);
  const std::int64_t first = ((cell.b * n + cell.i) * n + cell.j) * problem_.c_z;
  for (std::size_t row = 0; row < out.size(); ++row) {
    const double residual = problem_.residual ? x_value(first + static_cast<std::int64_t>(row)) : 0.0;
    out[row] = sigmoid(gates[row]) * out[row] + residual;
  }
}

void Reference::all(int num_threads, std::span<double> scratch, const Sink& sink) const {
  const std::int64_t n = problem_.tokens;
  const std::int64_t c = problem_.c_hidden;
  double* const a = scratch.data();  // [N, N, C]
  double* const b = a + n * n * c;   // [N, N, C]
  const bool outgoing = problem_.direction == core::Direction::kOutgoing;
  for (std::int64_t sample = 0; sample < problem_.batch; ++sample) {
    core::parallel_for(num_threads, n, [&](std::int64_t i, int) {
      for (std::int64_t j = 0; j < n; ++j) project({sample, i, j}, a + (i * n + j) * c, b + (i * n + j) * c);
    });
    // Cells in blocks, so that a and b travel through the caches once for many of them; each sum still runs over k from 0 to N - 1.
    constexpr std::int64_t kRows = 16;
    constexpr std::int64_t kColumns = 8;
    const std::int64_t token = outgoing ? n * c : c;  // from one token of the output to the next, in a and b
    const std::int64_t term = outgoing ? c : n * c;   // from one k to the next
    core::parallel_for(num_threads, core::ceil_div(n, kRows), [&](std::int64_t block, int) {
      const std::int64_t first_i = block * kRows;
      const std::int64_t end_i = std::min(first_i + kRows, n);
      std::vector<double> sums(static_cast<std::size_t>(kRows * kColumns * c));
      std::vector<double> out(static_cast<std::size_t>(problem_.c_z));
      for (std::int64_t first_j = 0; first_j < n; first_j += kColumns) {
        const std::int64_t end_j = std::min(first_j + kColumns, n);
        const auto y = [&](std::int64_t i, std::int64_t j) {
          return &sums[static_cast<std::size_t>(((i - first_i) * kColumns + j - first_j) * c)];
        };
        std::fill(sums.begin(), sums.end(), 0.0);
        for (std::int64_t k = 0, terms = 0; k < n; k += terms) {
          terms = n - k < 4 ? 1 : 4;
          for (std::int64_t j = first_j; j < end_j; ++j)
            for (std::int64_t i = first_i; i < end_i; ++i)
              add_products(y(i, j), a + i * token + k * term, b + j * token + k * term, term, terms, c);
        }
        for (std::int64_t i = first_i; i < end_i; ++i)
          for (std::int64_t j = first_j; j < end_j; ++j) {
            output({sample, i, j}, std::span(y(i, j), static_cast<std::size_t>(c)), out);
            sink({sample, i, j}, out.data());
          }
      }
    });
  }
}

void Reference::sampled(std::span<const Cell> cells, int num_threads, const Sink& sink) const {
  const std::int64_t n = problem_.tokens;
  const std::int64_t c = problem_.c_hidden;
  const bool outgoing = problem_.direction == core::Direction::kOutgoing;
  // a along token i and b along token j of every sampled cell: [N, C] for each (sample, token).
  using Line = std::vector<double>;
  std::map<std::pair<std::int64_t, std::int64_t>, Line> lines_a;
  std::map<std::pair<std::int64_t, std::int64_t>, Line> lines_b;
  for (const Cell& cell : cells) {
    lines_a[{cell.b, cell.i}];
    lines_b[{cell.b, cell.j}];
  }
  const auto fill = [&](std::int64_t sample, std::int64_t token, bool want_a, Line& line) {
    line.resize(static_cast<std::size_t>(n * c));
    core::parallel_for(num_threads, n, [&](std::int64_t k, int) {
      Line unused(static_cast<std::size_t>(c));
      const Cell at = outgoing ? Cell{sample, token, k} : Cell{sample, k, token};
      project(at, want_a ? &line[static_cast<std::size_t>(k * c)] : unused.data(),
              want_a ? unused.data() : &line[static_cast<std::size_t>(k * c)]);
    });
  };
  for (auto& [key, line] : lines_a) fill(key.first, key.second, true, line);
  for (auto& [key, line] : lines_b) fill(key.first, key.second, false, line);
  std::vector<double> y(static_cast<std::size_t>(c));
  std::vector<double> out(static_cast<std::size_t>(problem_.c_z));
  for (const Cell& cell : cells) {
    const Line& left = lines_a.at({cell.b, cell.i});
    const Line& right = lines_b.at({cell.b, cell.j});
    std::fill(y.begin(), y.end(), 0.0);
    for (std::int64_t k = 0; k < n; ++k)
      for (std::int64_t channel = 0; channel < c; ++channel) {
        const auto at = static_cast<std::size_t>(k * c + channel);
        y[static_cast<std::size_t>(channel)] += left[at] * right[at];
      }
    output(cell, y, out);
    sink(cell, out.data());
  }
}

}  // namespace trimul::reference
