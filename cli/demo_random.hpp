// SPDX-License-Identifier: Apache-2.0
// Seeded normal values that are the same with every standard library (std::normal_distribution is not).
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>
#include <vector>

namespace trimul::cli {

class NormalGenerator {
 public:
  explicit NormalGenerator(std::uint64_t seed) : engine_(seed) {}

  /// Normal with mean 0 and standard deviation 1, by Box and Muller.
  double next() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }
  /// Uniform in [0, 1).
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1.0p-53; }

  std::vector<float> values(std::size_t count, double standard_deviation) {
    std::vector<float> result(count);
    for (float& value : result) value = static_cast<float>(standard_deviation * next());
    return result;
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace trimul::cli
