// SPDX-License-Identifier: Apache-2.0
// Random numbers from one seed. TRIMUL_TEST_SEED replaces the default; every failure prints the seed of its case.
#pragma once

#include <cstdint>
#include <random>

namespace trimul::testing {

/// TRIMUL_TEST_SEED, or a fixed number so that a run can be repeated.
std::uint64_t base_seed();

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  double normal() { return normal_(engine_); }
  double uniform(double low, double high) { return std::uniform_real_distribution<double>(low, high)(engine_); }
  std::int64_t integer(std::int64_t low, std::int64_t high) { return std::uniform_int_distribution<std::int64_t>(low, high)(engine_); }
  bool coin(double probability = 0.5) { return uniform(0.0, 1.0) < probability; }

 private:
  std::mt19937_64 engine_;
  std::normal_distribution<double> normal_;
};

}  // namespace trimul::testing
