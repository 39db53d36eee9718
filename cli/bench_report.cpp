// SPDX-License-Identifier: Apache-2.0
#include "bench_report.hpp"

#include <cmath>

#include "failure.hpp"
#include "options.hpp"

namespace trimul::cli {

double BenchRow::quantile_us(double fraction) const {
  const double position = fraction * static_cast<double>(times_us.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(position));
  const std::size_t above = std::min(below + 1, times_us.size() - 1);
  return times_us[below] + (position - static_cast<double>(below)) * (times_us[above] - times_us[below]);
}

std::string BenchRow::ceiling_percent() const {
  return floor_us > 0 ? fmt::format("{:.1f}%", 100 * fraction_of_ceiling()) : "-";
}

std::string ceiling_text(const MachineCeiling& ceiling) {
  return fmt::format("{:.1f} GB/s copying memory, {:.0f} GFLOP/s of fp32 multiply-adds, {} threads", ceiling.bytes_per_us / 1e3,
                     ceiling.flop_per_us / 1e3, ceiling.num_threads);
}

std::string bench_heading() {
  return fmt::format("{:<44} {:<10} {:>10} {:>10} {:>10} {:>10} {:>9} {:>8} {:>8}", "problem (B N C_z C dtype direction ...)", "impl",
                     "median ms", "min", "quartile 1", "quartile 3", "GFLOP/s", "GB/s", "ceiling");
}

std::string bench_line(const BenchRow& row) {
  const std::string start = fmt::format("{:<44} {:<10}", format_problem_line(row.line), row.implementation);
  if (!row.skipped.empty()) return fmt::format("{} {}", start, one_line(row.skipped));
  return fmt::format("{} {:>10.4f} {:>10.4f} {:>10.4f} {:>10.4f} {:>9.1f} {:>8.2f} {:>8}", start, row.median_us() / 1e3,
                     row.times_us.front() / 1e3, row.quantile_us(0.25) / 1e3, row.quantile_us(0.75) / 1e3, row.gflop_per_s(),
                     row.gb_per_s(), row.ceiling_percent());
}

nlohmann::ordered_json bench_json(const BenchReport& report) {
  nlohmann::ordered_json json{{"version", report.version},
                              {"device", report.device},
                              {"command", report.command},
                              {"ceiling",
                               {{"gb_per_s", report.ceiling.bytes_per_us / 1e3},
                                {"gflop_per_s", report.ceiling.flop_per_us / 1e3},
                                {"threads", report.ceiling.num_threads}}},
                              {"results", nlohmann::ordered_json::array()}};
  for (const BenchRow& row : report.rows) {
    nlohmann::ordered_json entry{{"problem", format_problem_line(row.line)},
                                 {"B", row.line.batch},
                                 {"N", row.line.tokens},
                                 {"C_z", row.line.c_z},
                                 {"C", row.line.c_hidden},
                                 {"dtype", trimul_dtype_name(row.line.dtype)},
                                 {"direction", direction_name(row.line.direction)},
                                 {"implementation", row.implementation}};
    if (!row.skipped.empty()) {
      entry["skipped"] = one_line(row.skipped);
    } else {
      entry["device"] = row.device;
      entry["launches_per_time"] = row.launches;
      entry["median_us"] = row.median_us();
      entry["min_us"] = row.times_us.front();
      entry["max_us"] = row.times_us.back();
      entry["quartile_1_us"] = row.quantile_us(0.25);
      entry["quartile_3_us"] = row.quantile_us(0.75);
      entry["times_us"] = row.times_us;
      entry["gflop_per_s"] = row.gflop_per_s();
      entry["gb_per_s"] = row.gb_per_s();
      entry["floor_us"] = entry["fraction_of_ceiling"] = nullptr;
      if (row.floor_us > 0) entry["floor_us"] = row.floor_us;
      if (row.floor_us > 0) entry["fraction_of_ceiling"] = row.fraction_of_ceiling();
      entry["error"] = row.error;
    }
    json["results"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace trimul::cli
