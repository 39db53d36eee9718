// SPDX-License-Identifier: Apache-2.0
#include "support/composition.hpp"

#include <cmath>
#include <utility>

namespace trimul::testing {
namespace {

double to_bf16(double value) {
  return rounded_to(DType::kBf16, value);
}
double to_fp16(double value) {
  return rounded_to(DType::kF16, value);
}
/// To 11 significant bits, ties to even.
double to_tf32(double value) {
  if (value == 0.0 || !std::isfinite(value)) return value;
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, 11)), exponent - 11);
}

template <typename Real>
using Tensor = std::vector<Real>;  // row-major

template <typename Real>
class Composer {
 public:
  Composer(const Case& data, const RoundingPoints& points, const Mutation& mutation)
      : data_(data), points_(points), mutation_(mutation), n_(data.spec.n), c_z_(data.spec.c_z), c_(data.spec.c) {}

  std::vector<double> run() {
    std::vector<double> result;
    const Tensor<Real> all = x_values();
    const auto sample_size = static_cast<std::ptrdiff_t>(n_ * n_ * c_z_);
    for (std::int64_t b = 0; b < data_.spec.batch(); ++b) {
      const Tensor<Real> x(all.begin() + b * sample_size, all.begin() + (b + 1) * sample_size);
      for (const Real value : sample(b, x)) result.push_back(static_cast<double>(value));
    }
    return result;
  }

  [[nodiscard]] const Tensor<Real>& all_y() const { return all_y_; }

 private:
  Tensor<Real> sample(std::int64_t b, const Tensor<Real>& x) {
    const Tensor<Real> z = layer_norm(x, c_z_, kNormInWeight, kNormInBias, mutation_.ignore_in_eps);
    const ParameterId p_weight = mutation_.swap_p_and_g ? kGInWeight : kPInWeight;
    const ParameterId p_bias = mutation_.swap_p_and_g ? kGInBias : kPInBias;
    const ParameterId g_weight = mutation_.swap_p_and_g ? kPInWeight : kGInWeight;
    const ParameterId g_bias = mutation_.swap_p_and_g ? kPInBias : kGInBias;
    Tensor<Real> ab = linear(z, c_z_, 2 * c_, p_weight, p_bias);
    multiply(ab, sigmoid(linear(z, c_z_, 2 * c_, g_weight, g_bias)));
    apply_mask(b, ab);
    if (points_.magnitudes)
      for (Real& value : ab) value = std::abs(value);
    const Tensor<Real> y = triangle(ab);
    all_y_.insert(all_y_.end(), y.begin(), y.end());
    const Tensor<Real> u = layer_norm(y, c_, kNormOutWeight, kNormOutBias, mutation_.ignore_out_eps);
    Tensor<Real> out = linear(u, c_, c_z_, kPOutWeight, kPOutBias);
    multiply(out, sigmoid(linear(mutation_.gate_from_x ? x : z, c_z_, c_z_, kGOutWeight, kGOutBias)));
    for (std::size_t k = 0; k < out.size(); ++k) {
      const auto pair = static_cast<std::int64_t>(k) / c_z_;
      if (mutation_.mask_output) out[k] *= mask(b, pair / n_, pair % n_);
      out[k] = rounded(points_.out, out[k]);
      if (data_.spec.residual && !mutation_.forget_residual) out[k] = rounded(points_.out, out[k] + x[k]);
    }
    return out;
  }

  Tensor<Real> x_values() const {
    Tensor<Real> values;
    for (const double value : data_.x.values())
      values.push_back(static_cast<Real>(data_.spec.precision == TRIMUL_PRECISION_BF16 ? to_bf16(value) : value));
    return values;
  }

  /// As a matrix product takes it.
  [[nodiscard]] Tensor<Real> operand(Tensor<Real> values) const {
    if (points_.operand != RoundingPoints::keep)
      for (Real& value : values) value = rounded(points_.operand, value);
    return values;
  }

  static Real rounded(RoundingPoints::Round round, Real value) {
    if (round == RoundingPoints::keep) return value;
    return static_cast<Real>(round(static_cast<double>(value)));
  }

  Tensor<Real> parameter(ParameterId id, std::int64_t count, double absent) const {
    if (!data_.parameters[id]) return Tensor<Real>(static_cast<std::size_t>(count), static_cast<Real>(absent));
    Tensor<Real> values;
    for (const double value : data_.parameters[id]->values())
      values.push_back(data_.parameters[id]->sizes().size() == 2 ? rounded(points_.weight, static_cast<Real>(value))
                                                                 : static_cast<Real>(value));
    return values;
  }

  Tensor<Real> layer_norm(const Tensor<Real>& in, std::int64_t width, ParameterId weight_id, ParameterId bias_id, bool ignore_eps) const {
    const Tensor<Real> weight = parameter(weight_id, width, 1.0);
    const Tensor<Real> bias = parameter(bias_id, width, 0.0);
    const auto w = static_cast<std::size_t>(width);
    const Real eps = ignore_eps ? Real(0) : static_cast<Real>(data_.spec.eps);
    Tensor<Real> out(in.size());
    for (std::size_t first = 0; first < in.size(); first += w) {
      Real sum = 0, squares = 0;
      for (std::size_t k = 0; k < w; ++k) sum += in[first + k];
      const Real mean = sum / static_cast<Real>(width);
      for (std::size_t k = 0; k < w; ++k) {
        const Real deviation = mutation_.one_pass_variance ? in[first + k] : in[first + k] - mean;
        squares += deviation * deviation;
      }
      const Real variance = squares / static_cast<Real>(width) - (mutation_.one_pass_variance ? mean * mean : Real(0));
      const Real deviation = std::sqrt(variance + eps);
      for (std::size_t k = 0; k < w; ++k)
        out[first + k] = rounded(points_.normalised, (in[first + k] - mean) / deviation * weight[k] + bias[k]);
    }
    return out;
  }

  /// in [rows, depth] times the transpose of weight [width, depth], plus bias: one term of every sum at a time.
  Tensor<Real> linear(const Tensor<Real>& rows_in, std::int64_t depth, std::int64_t width, ParameterId weight_id,
                      ParameterId bias_id) const {
    const Tensor<Real> in = operand(rows_in);
    const Tensor<Real> weight = operand(parameter(weight_id, depth * width, 0.0));
    const Tensor<Real> bias = parameter(bias_id, width, 0.0);
    const auto d = static_cast<std::size_t>(depth);
    const auto w = static_cast<std::size_t>(width);
    Tensor<Real> columns(weight.size());  // [depth, width]
    for (std::size_t row = 0; row < w; ++row)
      for (std::size_t k = 0; k < d; ++k) columns[k * w + row] = weight[row * d + k];
    const std::size_t rows = in.size() / d;
    Tensor<Real> out(rows * w);
    for (std::size_t r = 0; r < rows; ++r) {
      Real* const sums = &out[r * w];
      for (std::size_t step = 0; step < d; ++step) {
        const std::size_t k = points_.backward_sums ? d - 1 - step : step;
        for (std::size_t col = 0; col < w; ++col) sums[col] += in[r * d + k] * columns[k * w + col];
      }
      for (std::size_t col = 0; col < w; ++col) sums[col] = rounded(points_.linear, sums[col] + bias[col]);
    }
    return out;
  }

  Tensor<Real> sigmoid(Tensor<Real> values) const {
    for (Real& value : values) value = rounded(points_.product, Real(1) / (Real(1) + std::exp(-value)));
    return values;
  }

  void multiply(Tensor<Real>& values, const Tensor<Real>& factors) const {
    for (std::size_t k = 0; k < values.size(); ++k) values[k] = rounded(points_.product, values[k] * factors[k]);
  }

  Real mask(std::int64_t b, std::int64_t i, std::int64_t j) const {
    if (mutation_.transpose_mask) std::swap(i, j);
    const double value = mutation_.ignore_mask ? 1.0 : data_.mask_at(b, i, j);
    if (mutation_.binary_mask) return value != 0.0 ? Real(1) : Real(0);
    return data_.spec.x_dtype == DType::kF64 ? static_cast<Real>(value) : static_cast<Real>(static_cast<float>(value));
  }

  /// ab: [N, N, 2C]. A zero selects zero.
  void apply_mask(std::int64_t b, Tensor<Real>& ab) const {
    for (std::int64_t i = 0; i < n_; ++i)
      for (std::int64_t j = 0; j < n_; ++j) {
        const Real factor = mask(b, i, j);
        const bool selects_zero = factor == Real(0) && !mutation_.multiply_mask_into_nan;
        for (std::int64_t k = 0; k < 2 * c_; ++k) {
          Real& value = ab[static_cast<std::size_t>((i * n_ + j) * 2 * c_ + k)];
          value = selects_zero ? Real(0) : rounded(points_.masked, value * factor);
        }
      }
  }

  /// einsum: ikc,jkc->ijc (outgoing) or kic,kjc->ijc (incoming), one channel and one k at a time.
  Tensor<Real> triangle(const Tensor<Real>& planes) const {
    const Tensor<Real> ab = operand(planes);
    const bool outgoing = (data_.spec.direction == TRIMUL_OUTGOING) != mutation_.other_direction;
    const auto at = [this, &ab](std::int64_t row, std::int64_t column, std::int64_t channel) {
      return ab[static_cast<std::size_t>((row * n_ + column) * 2 * c_ + channel)];
    };
    Tensor<Real> y(static_cast<std::size_t>(n_ * n_ * c_));
    Tensor<Real> plane(static_cast<std::size_t>(n_ * n_));
    Tensor<Real> right(static_cast<std::size_t>(n_));
    for (std::int64_t channel = 0; channel < c_; ++channel) {
      const std::int64_t a = mutation_.swap_a_and_b ? c_ + channel : channel;
      const std::int64_t b = mutation_.swap_a_and_b ? channel : c_ + channel;
      plane.assign(plane.size(), Real(0));
      for (std::int64_t step = 0; step < n_; ++step) {
        const std::int64_t k = points_.backward_sums ? n_ - 1 - step : step;
        for (std::int64_t j = 0; j < n_; ++j) right[static_cast<std::size_t>(j)] = outgoing ? at(j, k, b) : at(k, j, b);
        for (std::int64_t i = 0; i < n_; ++i) {
          const Real left = outgoing ? at(i, k, a) : at(k, i, a);
          Real* const sums = &plane[static_cast<std::size_t>(i * n_)];
          for (std::int64_t j = 0; j < n_; ++j) sums[j] += left * right[static_cast<std::size_t>(j)];
        }
      }
      for (std::size_t pair = 0; pair < plane.size(); ++pair)
        y[pair * static_cast<std::size_t>(c_) + static_cast<std::size_t>(channel)] = rounded(points_.y, plane[pair]);
    }
    return y;
  }

  const Case& data_;
  const RoundingPoints& points_;
  const Mutation& mutation_;
  std::int64_t n_, c_z_, c_;
  Tensor<Real> all_y_;
};

RoundingPoints everywhere(RoundingPoints::Round round, bool backward_sums) {
  return {.weight = round,
          .normalised = round,
          .linear = round,
          .product = round,
          .masked = round,
          .y = round,
          .out = round,
          .backward_sums = backward_sums};
}

}  // namespace

template <typename Real>
std::vector<double> compose(const Case& data, const RoundingPoints& points, const Mutation& mutation) {
  return Composer<Real>(data, points, mutation).run();
}
template std::vector<double> compose<float>(const Case&, const RoundingPoints&, const Mutation&);
template std::vector<double> compose<double>(const Case&, const RoundingPoints&, const Mutation&);
template std::vector<double> compose<long double>(const Case&, const RoundingPoints&, const Mutation&);

std::vector<double> compose_y(const Case& data, bool magnitudes) {
  const RoundingPoints points{.magnitudes = magnitudes};
  const Mutation mutation;
  Composer<double> composer(data, points, mutation);
  composer.run();
  return composer.all_y();
}

std::vector<double> compose_plain(const Case& data, bool backward_sums, bool tf32) {
  switch (data.out_dtype()) {
    case DType::kBf16: return compose<float>(data, everywhere(to_bf16, backward_sums));
    case DType::kF16: return compose<float>(data, everywhere(to_fp16, backward_sums));
    case DType::kF64: return compose<double>(data, everywhere(RoundingPoints::keep, backward_sums));
    default:
      return compose<float>(data,
                            {.operand = tf32 ? RoundingPoints::Round(to_tf32) : RoundingPoints::keep, .backward_sums = backward_sums});
  }
}

RoundingPoints kernel_points(const Spec& spec) {
  if (spec.precision == TRIMUL_PRECISION_IEEE) return {};
  const bool bf16 = spec.precision == TRIMUL_PRECISION_BF16 || spec.x_dtype == DType::kBf16;
  RoundingPoints::Round round = RoundingPoints::keep;
  if (bf16)
    round = to_bf16;
  else if (spec.x_dtype == DType::kF16)
    round = to_fp16;
  else if (spec.x_dtype == DType::kF32 && spec.precision == TRIMUL_PRECISION_TF32)
    round = to_tf32;
  return {.weight = round, .normalised = round, .masked = round, .y = bf16 ? round : RoundingPoints::keep};
}

}  // namespace trimul::testing
