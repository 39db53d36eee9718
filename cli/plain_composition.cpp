// SPDX-License-Identifier: Apache-2.0
#include "plain_composition.hpp"

#include <cmath>

#include "float_formats.hpp"

namespace trimul::cli {
namespace {

struct Variant {
  bool rounds = true;  // to the result's dtype
  Products products = Products::kStored;
  SumOrder order = SumOrder::kForward;
  bool magnitudes = false;  // |a|, |b| in place of a, b
};

template <typename Real>
class Composition {
 public:
  using Values = std::vector<Real>;

  Composition(const Inputs& inputs, const Settings& settings, const Variant& variant)
      : inputs_(inputs),
        settings_(settings),
        variant_(variant),
        x_(inputs.find("x")->second),
        dtype_(settings.precision == TRIMUL_PRECISION_BF16 ? TRIMUL_BF16 : x_.dtype),
        n_(x_.shape[x_.shape.size() - 2]),
        c_z_(x_.shape.back()),
        c_(inputs.find("p_in_weight")->second.shape[0] / 2) {}

  /// [B, N, N, C_z]
  std::vector<double> result() const {
    std::vector<double> all;
    for (std::int64_t sample = 0; sample < batch(); ++sample) {
      const Values x = sample_of_x(sample);
      const Values z = normalised(x);
      const Values u = layer_norm(contract(planes(z, sample)), "norm_out_weight", "norm_out_bias", c_);
      const Values gate = sigmoid(linear(z, "g_out_weight", "g_out_bias", c_z_, c_z_));
      Values out = multiply(gate, linear(u, "p_out_weight", "p_out_bias", c_, c_z_));
      if (settings_.residual)
        for (std::size_t k = 0; k < out.size(); ++k) out[k] = rounded(out[k] + x[k]);
      all.insert(all.end(), out.begin(), out.end());
    }
    return all;
  }

  /// y: [B, N, N, C]
  std::vector<double> contraction() const {
    std::vector<double> all;
    for (std::int64_t sample = 0; sample < batch(); ++sample) {
      const Values y = contract(planes(normalised(sample_of_x(sample)), sample));
      all.insert(all.end(), y.begin(), y.end());
    }
    return all;
  }

 private:
  std::int64_t batch() const {
    const std::int64_t values = n_ * n_ * c_z_;
    return values == 0 ? 0 : x_.elements() / values;
  }
  Values sample_of_x(std::int64_t sample) const {
    Values x = slice(x_, sample * n_ * n_ * c_z_, n_ * n_ * c_z_);
    for (Real& value : x) value = rounded(value);
    return x;
  }
  Values normalised(const Values& x) const { return layer_norm(x, "norm_in_weight", "norm_in_bias", c_z_); }

  /// a and b: [N, N, 2C]
  Values planes(const Values& z, std::int64_t sample) const {
    Values ab =
        masked(multiply(sigmoid(linear(z, "g_in_weight", "g_in_bias", c_z_, 2 * c_)), linear(z, "p_in_weight", "p_in_bias", c_z_, 2 * c_)),
               sample);
    if (variant_.magnitudes)
      for (Real& value : ab) value = std::abs(value);
    return ab;
  }

  Real rounded(Real value) const {
    if (variant_.rounds && dtype_ == TRIMUL_BF16) return static_cast<Real>(float_from_bf16(bf16_from_float(static_cast<float>(value))));
    if (variant_.rounds && dtype_ == TRIMUL_F16) return static_cast<Real>(float_from_fp16(fp16_from_float(static_cast<float>(value))));
    return value;
  }

  /// As a matrix product takes it.
  Values operand(Values values) const {
    if (variant_.products == Products::kTf32)
      for (Real& value : values) value = static_cast<Real>(rounded_to_tf32(static_cast<float>(value)));
    return values;
  }

  /// Step `k` of `count` in the order of the sums.
  std::size_t in_order(std::size_t k, std::size_t count) const { return variant_.order == SumOrder::kForward ? k : count - 1 - k; }

  static Values slice(const HostTensor& tensor, std::int64_t first, std::int64_t count) {
    Values values(static_cast<std::size_t>(count));
    for (std::size_t k = 0; k < values.size(); ++k)
      values[k] = static_cast<Real>(load_number(tensor.data.get(), tensor.dtype, first + static_cast<std::int64_t>(k)));
    return values;
  }
  /// `absent` where the tensor is missing. Projections are in the result's dtype, as a model's are under autocast.
  Values parameter(const char* name, std::int64_t count, Real absent) const {
    const auto found = inputs_.find(name);
    if (found == inputs_.end()) return Values(static_cast<std::size_t>(count), absent);
    Values values = slice(found->second, 0, count);
    if (found->second.shape.size() == 2)
      for (Real& value : values) value = rounded(value);
    return values;
  }

  Values layer_norm(const Values& rows, const char* weight_name, const char* bias_name, std::int64_t width) const {
    const Values weight = parameter(weight_name, width, Real(1));
    const Values bias = parameter(bias_name, width, Real(0));
    const auto w = static_cast<std::size_t>(width);
    Values out(rows.size());
    for (std::size_t first = 0; first < rows.size(); first += w) {
      Real sum = 0;
      Real squares = 0;
      for (std::size_t k = 0; k < w; ++k) sum += rows[first + k];
      const Real mean = sum / static_cast<Real>(w);
      for (std::size_t k = 0; k < w; ++k) squares += (rows[first + k] - mean) * (rows[first + k] - mean);
      const Real scale = Real(1) / std::sqrt(squares / static_cast<Real>(w) + static_cast<Real>(settings_.eps));
      for (std::size_t k = 0; k < w; ++k) out[first + k] = rounded((rows[first + k] - mean) * scale * weight[k] + bias[k]);
    }
    return out;
  }

  Values linear(const Values& in, const char* weight_name, const char* bias_name, std::int64_t width_in, std::int64_t width_out) const {
    const Values rows = operand(in);
    const Values weight = operand(parameter(weight_name, width_in * width_out, Real(0)));
    const Values bias = parameter(bias_name, width_out, Real(0));
    const auto w_in = static_cast<std::size_t>(width_in);
    const auto w_out = static_cast<std::size_t>(width_out);
    Values out(rows.size() / w_in * w_out);
    for (std::size_t row = 0; row < rows.size() / w_in; ++row)
      for (std::size_t column = 0; column < w_out; ++column) {
        Real sum = 0;
        for (std::size_t step = 0; step < w_in; ++step) {
          const std::size_t k = in_order(step, w_in);
          sum += rows[row * w_in + k] * weight[column * w_in + k];
        }
        out[row * w_out + column] = rounded(sum + bias[column]);
      }
    return out;
  }

  Values sigmoid(Values values) const {
    for (Real& value : values) value = rounded(Real(1) / (Real(1) + std::exp(-value)));
    return values;
  }

  Values multiply(Values left, const Values& right) const {
    for (std::size_t k = 0; k < left.size(); ++k) left[k] = rounded(left[k] * right[k]);
    return left;
  }

  /// The mask has this sample's N x N values or, with fewer dimensions, those of every sample.
  Values masked(Values ab, std::int64_t sample) const {
    const auto found = inputs_.find("mask");
    if (found == inputs_.end()) return ab;
    const HostTensor& mask = found->second;
    const std::int64_t pairs = n_ * n_;
    const std::int64_t first = mask.elements() > pairs ? sample * pairs : 0;
    const auto row = static_cast<std::size_t>(2 * c_);
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      const auto factor = static_cast<Real>(load_number(mask.data.get(), mask.dtype, first + pair));
      for (std::size_t k = 0; k < row; ++k) {
        Real& value = ab[static_cast<std::size_t>(pair) * row + k];
        value = factor == Real(0) ? Real(0) : rounded(value * factor);
      }
    }
    return ab;
  }

  Values contract(const Values& planes) const {
    const Values ab = operand(planes);
    const auto n = static_cast<std::size_t>(n_);
    const auto c = static_cast<std::size_t>(c_);
    const bool outgoing = settings_.direction == TRIMUL_OUTGOING;
    Values y(n * n * c);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        Real* sums = &y[(i * n + j) * c];
        for (std::size_t step = 0; step < n; ++step) {
          const std::size_t k = in_order(step, n);
          const Real* a = &ab[(outgoing ? i * n + k : k * n + i) * 2 * c];
          const Real* b = &ab[(outgoing ? j * n + k : k * n + j) * 2 * c + c];
          for (std::size_t channel = 0; channel < c; ++channel) sums[channel] += a[channel] * b[channel];
        }
        for (std::size_t channel = 0; channel < c; ++channel) sums[channel] = rounded(sums[channel]);
      }
    return y;
  }

  const Inputs& inputs_;
  const Settings& settings_;
  Variant variant_;
  const HostTensor& x_;
  trimul_dtype dtype_;  // of the result
  std::int64_t n_;
  std::int64_t c_z_;
  std::int64_t c_;
};

std::vector<double> numbers_of(const HostTensor& tensor) {
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  for (std::size_t k = 0; k < values.size(); ++k) values[k] = load_number(tensor.data.get(), tensor.dtype, static_cast<std::int64_t>(k));
  return values;
}

}  // namespace

std::vector<double> plain_composition(const Inputs& inputs, const Settings& settings, Products products, SumOrder order) {
  return Composition<float>(inputs, settings, {.products = products, .order = order}).result();
}

std::vector<double> slope_errors(const Inputs& inputs, const Settings& settings, Products products) {
  const auto c = static_cast<std::size_t>(inputs.find("p_in_weight")->second.shape[0] / 2);
  double largest_weight = 1.0;
  if (const auto weight = inputs.find("norm_out_weight"); weight != inputs.end()) {
    largest_weight = 0.0;
    for (const double value : numbers_of(weight->second)) largest_weight = std::max(largest_weight, std::abs(value));
  }
  const double largest_row_sum = largest_absolute_row_sum(numbers_of(inputs.find("p_out_weight")->second), c);
  const std::vector<double> y = Composition<double>(inputs, settings, {.rounds = false}).contraction();
  const std::vector<double> magnitude = Composition<double>(inputs, settings, {.rounds = false, .magnitudes = true}).contraction();
  std::vector<double> errors(y.size() / c);
  for (std::size_t pair = 0; pair < errors.size(); ++pair)
    errors[pair] = slope_error({&y[pair * c], c}, {&magnitude[pair * c], c}, term_error(products), static_cast<double>(settings.eps),
                               largest_weight, largest_row_sum);
  return errors;
}

}  // namespace trimul::cli
