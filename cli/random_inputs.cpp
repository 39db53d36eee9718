// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numbers>

#include "failure.hpp"
#include "float_formats.hpp"
#include "problem_set.hpp"

namespace trimul::cli {
namespace {

/// splitmix64: a counter, well mixed. Four table lookups a step make it fast enough for tensors of a gigabyte.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() {
    std::uint64_t mixed = state_ += 0x9e3779b97f4a7c15U;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebU;
    return mixed ^ mixed >> 31;
  }
  /// In [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  /// Standard normal, from 2^16 equally likely quantiles (the largest is 4.2); never 0.
  double normal() {
    if (num_left_ == 0) {
      pool_ = bits();
      num_left_ = 4;
    }
    --num_left_;
    const std::size_t index = pool_ & 0xffffU;
    pool_ >>= 16;
    return static_cast<double>(index < kHalf ? -quantiles()[kHalf - 1 - index] : quantiles()[index - kHalf]);
  }

 private:
  static constexpr std::size_t kHalf = 1 << 15;

  /// Upper half of the quantiles: entry k is where the normal distribution reaches 1/2 + (k + 1/2) / 2^16. Newton's method from
  /// the entry before; written out because the standard library's normal_distribution differs between implementations.
  static const std::vector<float>& quantiles() {
    static const std::vector<float> table = [] {
      std::vector<float> values(kHalf);
      double x = 0.0;
      for (std::size_t k = 0; k < kHalf; ++k) {
        const double upper_tail = 0.5 - (static_cast<double>(k) + 0.5) * 0x1p-16;
        for (int step = 0; step < 6; ++step) {
          const double tail = 0.5 * std::erfc(x / std::numbers::sqrt2);
          const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
          x += (tail - upper_tail) / density;
        }
        values[k] = static_cast<float>(x);
      }
      return values;
    }();
    return table;
  }

  std::uint64_t state_;
  std::uint64_t pool_ = 0;
  int num_left_ = 0;
};

HostTensor normal_tensor(trimul_dtype dtype, std::vector<std::int64_t> shape, double scale, double offset, Random& random) {
  HostTensor tensor = allocate_tensor(dtype, std::move(shape));
  const std::int64_t count = tensor.elements();
  for (std::int64_t k = 0; k < count; ++k) store_number(tensor.data.get(), dtype, k, scale * random.normal() + offset);
  return tensor;
}

/// Masks differ in dtype and rank as well, so that a sweep meets those too. Those that can be are asymmetric in i and j.
HostTensor mask_tensor(const ProblemLine& line, Random& random) {
  const std::int64_t n = line.tokens;
  const bool per_sample = line.mask == MaskKind::kRandom || line.mask == MaskKind::kPadded || line.mask == MaskKind::kFractional;
  const trimul_dtype dtype = line.mask == MaskKind::kRandom   ? TRIMUL_BOOL
                             : line.mask == MaskKind::kZero   ? TRIMUL_I64
                             : line.mask == MaskKind::kOneOff ? TRIMUL_U8
                                                              : TRIMUL_F32;
  HostTensor mask = allocate_tensor(dtype, per_sample ? std::vector<std::int64_t>{line.batch, n, n} : std::vector<std::int64_t>{n, n});
  const std::int64_t token_off = n / 3;
  for (std::int64_t k = 0; k < mask.elements(); ++k) {
    const std::int64_t sample = n == 0 ? 0 : k / (n * n);
    const std::int64_t i = k / n % n;
    const std::int64_t j = k % n;
    // Rows and columns are padded by different amounts, which real padding does not do but which shows a transposed mask.
    const bool inside = i < n - n / 4 - sample % 2 && j < n - n / 8;
    double value = 0.0;
    switch (line.mask) {
      case MaskKind::kRandom: value = random.uniform() < 0.7 ? 1.0 : 0.0; break;
      case MaskKind::kPadded: value = inside ? 1.0 : 0.0; break;
      case MaskKind::kFractional: value = random.uniform() < 0.1 ? 0.0 : 2.0 * random.uniform() - 0.5; break;  // negative and > 1 too
      case MaskKind::kOneOff: value = i == token_off || j == token_off ? 0.0 : 1.0; break;
      case MaskKind::kNone:
      case MaskKind::kZero: break;
    }
    store_number(mask.data.get(), dtype, k, value);
  }
  return mask;
}

bool has_bias(BiasKind bias, std::string_view name) {
  switch (bias) {
    case BiasKind::kNoBias: return false;
    case BiasKind::kAll: return true;
    case BiasKind::kPIn: return name == "p_in_bias";
    case BiasKind::kGIn: return name == "g_in_bias";
    case BiasKind::kPOut: return name == "p_out_bias";
    case BiasKind::kGOut: return name == "g_out_bias";
  }
  return false;
}

}  // namespace

Inputs random_inputs(const ProblemLine& line, std::uint64_t seed) {
  Random random(seed);
  const trimul_dtype vector_dtype = line.dtype == TRIMUL_F64 ? TRIMUL_F64 : TRIMUL_F32;  // as models keep them beside 16-bit x
  const std::int64_t c_z = line.c_z;
  const std::int64_t c = line.c_hidden;
  Inputs inputs;
  const auto add_matrix = [&](const char* name, std::int64_t rows, std::int64_t columns) {
    inputs.emplace(name, normal_tensor(line.dtype, {rows, columns}, 1.0 / std::sqrt(static_cast<double>(columns)), 0.0, random));
  };
  const auto add_vector = [&](const char* name, std::int64_t count, double scale, double offset) {
    inputs.emplace(name, normal_tensor(vector_dtype, {count}, scale, offset, random));
  };
  inputs.emplace("x", normal_tensor(line.dtype, {line.batch, line.tokens, line.tokens, c_z}, 1.3, 0.2, random));
  if (line.mask != MaskKind::kNone) inputs.emplace("mask", mask_tensor(line, random));
  add_matrix("p_in_weight", 2 * c, c_z);
  add_matrix("g_in_weight", 2 * c, c_z);
  add_matrix("p_out_weight", c_z, c);
  add_matrix("g_out_weight", c_z, c_z);
  add_vector("norm_in_weight", c_z, 0.2, 1.0);
  add_vector("norm_out_weight", c, 0.2, 1.0);
  // "nobias" is without any, so that a zero mask gives a result of zeros; otherwise both LayerNorms have theirs.
  if (line.bias != BiasKind::kNoBias) {
    add_vector("norm_in_bias", c_z, 0.3, 0.0);
    add_vector("norm_out_bias", c, 0.3, 0.0);
  }
  for (const char* name : {"p_in_bias", "g_in_bias"})
    if (has_bias(line.bias, name)) add_vector(name, 2 * c, 0.3, 0.0);
  for (const char* name : {"p_out_bias", "g_out_bias"})
    if (has_bias(line.bias, name)) add_vector(name, c_z, 0.3, 0.0);
  return inputs;
}

}  // namespace trimul::cli
