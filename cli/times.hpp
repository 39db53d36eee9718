// SPDX-License-Identifier: Apache-2.0
// A sample of times and what is said of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

namespace trimul::cli {

class Times {
 public:
  void add(double us) { us_.insert(std::upper_bound(us_.begin(), us_.end(), us), us); }
  [[nodiscard]] bool empty() const { return us_.empty(); }
  [[nodiscard]] std::size_t count() const { return us_.size(); }
  /// Between the two nearest times, linearly; 0 for no times.
  [[nodiscard]] double quantile_us(double fraction) const {
    if (us_.empty()) return 0;
    const double position = fraction * static_cast<double>(us_.size() - 1);
    const auto below = static_cast<std::size_t>(std::floor(position));
    const std::size_t above = std::min(below + 1, us_.size() - 1);
    return us_[below] + (position - static_cast<double>(below)) * (us_[above] - us_[below]);
  }
  [[nodiscard]] double median_us() const { return quantile_us(0.5); }
  [[nodiscard]] double min_us() const { return quantile_us(0); }
  /// median_us, min_us, max_us, quartile_1_us, quartile_3_us, times_us.
  [[nodiscard]] nlohmann::ordered_json json() const {
    return {{"median_us", median_us()},           {"min_us", min_us()}, {"max_us", quantile_us(1)}, {"quartile_1_us", quantile_us(0.25)},
            {"quartile_3_us", quantile_us(0.75)}, {"times_us", us_}};
  }

 private:
  std::vector<double> us_;  // sorted
};

}  // namespace trimul::cli
