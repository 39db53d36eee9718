// SPDX-License-Identifier: Apache-2.0
// What `trimul bench` measured, as text, JSON and one self-contained HTML page.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "machine_ceiling.hpp"
#include "problem_set.hpp"

namespace trimul::cli {

struct BenchRow {
  ProblemLine line;
  std::string implementation;
  std::string skipped;           // why it was not timed; the numbers below are then empty
  std::string device;            // "cuda:0"
  int launches = 1;              // executes behind each other whose mean is one of the times
  std::vector<double> times_us;  // sorted
  double error = 0.0;            // relative RMS to the fp64 reference, within its bound
  double flop = 0.0;
  double traffic_bytes = 0.0;
  double floor_us = 0.0;  // 0 where the device's ceilings are unknown

  [[nodiscard]] double quantile_us(double fraction) const;  // between the two nearest times, linearly
  [[nodiscard]] double median_us() const { return quantile_us(0.5); }
  [[nodiscard]] double gflop_per_s() const { return flop / median_us() / 1e3; }
  [[nodiscard]] double gb_per_s() const { return traffic_bytes / median_us() / 1e3; }
  [[nodiscard]] double fraction_of_ceiling() const { return floor_us / median_us(); }
  /// "27.4%", "-" where unknown.
  [[nodiscard]] std::string ceiling_percent() const;
};

struct BenchReport {
  std::string version;
  std::string device;  // a description
  std::string command;
  MachineCeiling ceiling;
  std::vector<BenchRow> rows;
};

std::string ceiling_text(const MachineCeiling& ceiling);
std::string bench_heading();
std::string bench_line(const BenchRow& row);
nlohmann::ordered_json bench_json(const BenchReport& report);
std::string bench_html(const BenchReport& report);

}  // namespace trimul::cli
