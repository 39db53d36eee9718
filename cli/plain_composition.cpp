// SPDX-License-Identifier: Apache-2.0
#include "plain_composition.hpp"

#include <cmath>

#include "float_formats.hpp"

namespace trimul::cli {
namespace {

using Floats = std::vector<float>;

class Composition {
 public:
  Composition(const Inputs& inputs, const Settings& settings)
      : inputs_(inputs),
        settings_(settings),
        x_(inputs.find("x")->second),
        n_(x_.shape[x_.shape.size() - 2]),
        c_z_(x_.shape.back()),
        c_(inputs.find("p_in_weight")->second.shape[0] / 2) {}

  std::vector<double> result() const {
    const std::int64_t pairs = n_ * n_;
    const std::int64_t batch = pairs * c_z_ == 0 ? 0 : x_.elements() / (pairs * c_z_);
    std::vector<double> all;
    for (std::int64_t sample = 0; sample < batch; ++sample) {
      const Floats x = slice(x_, sample * pairs * c_z_, pairs * c_z_);
      const Floats z = layer_norm(x, "norm_in_weight", "norm_in_bias", c_z_);
      const Floats ab = masked(
          multiply(sigmoid(linear(z, "g_in_weight", "g_in_bias", c_z_, 2 * c_)), linear(z, "p_in_weight", "p_in_bias", c_z_, 2 * c_)),
          sample);
      const Floats u = layer_norm(contract(ab), "norm_out_weight", "norm_out_bias", c_);
      const Floats gate = sigmoid(linear(z, "g_out_weight", "g_out_bias", c_z_, c_z_));
      Floats out = multiply(gate, linear(u, "p_out_weight", "p_out_bias", c_, c_z_));
      if (settings_.residual)
        for (std::size_t k = 0; k < out.size(); ++k) out[k] = rounded(out[k] + x[k]);
      all.insert(all.end(), out.begin(), out.end());
    }
    return all;
  }

 private:
  float rounded(float value) const {
    if (x_.dtype == TRIMUL_BF16) return float_from_bf16(bf16_from_float(value));
    if (x_.dtype == TRIMUL_F16) return float_from_fp16(fp16_from_float(value));
    return value;
  }

  static Floats slice(const HostTensor& tensor, std::int64_t first, std::int64_t count) {
    Floats values(static_cast<std::size_t>(count));
    for (std::size_t k = 0; k < values.size(); ++k)
      values[k] = static_cast<float>(load_number(tensor.data.get(), tensor.dtype, first + static_cast<std::int64_t>(k)));
    return values;
  }
  /// In x's dtype, as a model's weights are under autocast; `absent` where the tensor is missing.
  Floats parameter(const char* name, std::int64_t count, float absent) const {
    const auto found = inputs_.find(name);
    if (found == inputs_.end()) return Floats(static_cast<std::size_t>(count), absent);
    Floats values = slice(found->second, 0, count);
    for (float& value : values) value = rounded(value);
    return values;
  }

  Floats layer_norm(const Floats& rows, const char* weight_name, const char* bias_name, std::int64_t width) const {
    const Floats weight = parameter(weight_name, width, 1.0F);
    const Floats bias = parameter(bias_name, width, 0.0F);
    const auto w = static_cast<std::size_t>(width);
    Floats out(rows.size());
    for (std::size_t first = 0; first < rows.size(); first += w) {
      float mean = 0.0F;
      float variance = 0.0F;
      for (std::size_t k = 0; k < w; ++k) mean += rows[first + k] / static_cast<float>(w);
      for (std::size_t k = 0; k < w; ++k) variance += (rows[first + k] - mean) * (rows[first + k] - mean) / static_cast<float>(w);
      const float scale = 1.0F / std::sqrt(variance + settings_.eps);
      for (std::size_t k = 0; k < w; ++k) out[first + k] = rounded((rows[first + k] - mean) * scale * weight[k] + bias[k]);
    }
    return out;
  }

  Floats linear(const Floats& rows, const char* weight_name, const char* bias_name, std::int64_t width_in, std::int64_t width_out) const {
    const Floats weight = parameter(weight_name, width_in * width_out, 0.0F);
    const Floats bias = parameter(bias_name, width_out, 0.0F);
    const auto w_in = static_cast<std::size_t>(width_in);
    const auto w_out = static_cast<std::size_t>(width_out);
    Floats out(rows.size() / w_in * w_out);
    for (std::size_t row = 0; row < rows.size() / w_in; ++row)
      for (std::size_t column = 0; column < w_out; ++column) {
        float sum = 0.0F;
        for (std::size_t k = 0; k < w_in; ++k) sum += rows[row * w_in + k] * weight[column * w_in + k];
        out[row * w_out + column] = rounded(sum + bias[column]);
      }
    return out;
  }

  Floats sigmoid(Floats values) const {
    for (float& value : values) value = rounded(1.0F / (1.0F + std::exp(-value)));
    return values;
  }

  Floats multiply(Floats left, const Floats& right) const {
    for (std::size_t k = 0; k < left.size(); ++k) left[k] = rounded(left[k] * right[k]);
    return left;
  }

  /// The mask has this sample's N x N values or, with fewer dimensions, those of every sample.
  Floats masked(Floats ab, std::int64_t sample) const {
    const auto found = inputs_.find("mask");
    if (found == inputs_.end()) return ab;
    const HostTensor& mask = found->second;
    const std::int64_t pairs = n_ * n_;
    const std::int64_t first = mask.elements() > pairs ? sample * pairs : 0;
    const auto row = static_cast<std::size_t>(2 * c_);
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      const float factor = rounded(static_cast<float>(load_number(mask.data.get(), mask.dtype, first + pair)));
      for (std::size_t k = 0; k < row; ++k) {
        float& value = ab[static_cast<std::size_t>(pair) * row + k];
        value = factor == 0.0F ? 0.0F : rounded(value * factor);
      }
    }
    return ab;
  }

  Floats contract(const Floats& ab) const {
    const auto n = static_cast<std::size_t>(n_);
    const auto c = static_cast<std::size_t>(c_);
    const bool outgoing = settings_.direction == TRIMUL_OUTGOING;
    Floats y(n * n * c);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        float* sums = &y[(i * n + j) * c];
        for (std::size_t k = 0; k < n; ++k) {
          const float* a = &ab[(outgoing ? i * n + k : k * n + i) * 2 * c];
          const float* b = &ab[(outgoing ? j * n + k : k * n + j) * 2 * c + c];
          for (std::size_t channel = 0; channel < c; ++channel) sums[channel] += a[channel] * b[channel];
        }
        for (std::size_t channel = 0; channel < c; ++channel) sums[channel] = rounded(sums[channel]);
      }
    return y;
  }

  const Inputs& inputs_;
  const Settings& settings_;
  const HostTensor& x_;
  std::int64_t n_;
  std::int64_t c_z_;
  std::int64_t c_;
};

}  // namespace

std::vector<double> plain_composition(const Inputs& inputs, const Settings& settings) {
  return Composition(inputs, settings).result();
}

}  // namespace trimul::cli
