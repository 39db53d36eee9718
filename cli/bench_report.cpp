// SPDX-License-Identifier: Apache-2.0
#include "bench_report.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "failure.hpp"
#include "options.hpp"

namespace trimul::cli {
namespace {

std::string percent(double fraction) {
  return fmt::format("{:.0f}%", 100 * fraction);
}

std::string stages_line(const GpuFigures& gpu) {
  std::string line;
  for (const StageRow& stage : gpu.stages) {
    line += fmt::format("{}{} {:.1f} us", line.empty() ? "    stages alone: " : ", ", stage.name, stage.times.median_us());
    if (stage.floor_us > 0) line += fmt::format(" ({} of ceiling)", percent(stage.floor_us / stage.times.median_us()));
  }
  return line.empty() ? line : "\n" + line;
}

std::string gpu_lines(const GpuFigures& gpu) {
  std::string line = fmt::format("\n    eager {:.1f} us, host {:.1f} us (three empty kernels {:.1f})", gpu.eager.median_us(),
                                 gpu.host.median_us(), gpu.empty_kernels.median_us());
  if (!gpu.rotated.empty()) line += fmt::format(", {} rotated buffer sets {:.1f} us", gpu.rotated_sets, gpu.rotated.median_us());
  if (!gpu.cool.empty()) line += fmt::format(", rested {:.1f} us", gpu.cool.median_us());
  if (gpu.sm_clock_mhz) line += fmt::format(", {} MHz", *gpu.sm_clock_mhz);
  return line + stages_line(gpu);
}

nlohmann::ordered_json times_or_null(const Times& times) {
  return times.empty() ? nlohmann::ordered_json() : times.json();
}

nlohmann::ordered_json stage_json(const StageRow& stage) {
  nlohmann::ordered_json json{{"name", stage.name}};
  json.update(stage.times.json());
  const double us = stage.times.median_us();
  json["gflop_per_s"] = stage.flop / us / 1e3;
  json["gb_per_s"] = stage.traffic_bytes / us / 1e3;
  json["floor_us"] = json["fraction_of_ceiling"] = nullptr;
  if (stage.floor_us > 0) json["floor_us"] = stage.floor_us;
  if (stage.floor_us > 0) json["fraction_of_ceiling"] = stage.floor_us / us;
  return json;
}

void add_gpu_json(nlohmann::ordered_json& entry, const GpuFigures& gpu) {
  entry["stages"] = nlohmann::ordered_json::array();
  for (const StageRow& stage : gpu.stages) entry["stages"].push_back(stage_json(stage));
  entry["eager"] = gpu.eager.json();
  entry["rotated"] = times_or_null(gpu.rotated);
  if (!gpu.rotated.empty()) entry["rotated"]["buffer_sets"] = gpu.rotated_sets;
  entry["cool"] = times_or_null(gpu.cool);
  entry["host"] = gpu.host.json();
  entry["three_empty_kernels_host"] = gpu.empty_kernels.json();
  entry["sm_clock_mhz"] = nullptr;
  if (gpu.sm_clock_mhz) entry["sm_clock_mhz"] = *gpu.sm_clock_mhz;
}

nlohmann::ordered_json row_json(const BenchRow& row) {
  nlohmann::ordered_json entry{{"problem", format_problem_line(row.line)},
                               {"B", row.line.batch},
                               {"N", row.line.tokens},
                               {"C_z", row.line.c_z},
                               {"C", row.line.c_hidden},
                               {"dtype", trimul_dtype_name(row.line.dtype)},
                               {"direction", direction_name(row.line.direction)},
                               {"implementation", row.implementation}};
  if (!row.was_timed()) {
    entry["skipped"] = one_line(row.skipped);
    return entry;
  }
  entry["device"] = row.device;
  entry["timing"] = row.timing;
  entry["launches_per_time"] = row.launches;
  entry.update(row.times.json());
  entry["gflop_per_s"] = row.gflop_per_s();
  entry["gb_per_s"] = row.gb_per_s();
  entry["floor_us"] = entry["fraction_of_ceiling"] = nullptr;
  if (row.floor_us > 0) entry["floor_us"] = row.floor_us;
  if (row.floor_us > 0) entry["fraction_of_ceiling"] = row.fraction_of_ceiling();
  entry["error"] = row.error;
  if (row.gpu) add_gpu_json(entry, *row.gpu);
  return entry;
}

}  // namespace

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  while (text.ends_with('\0')) text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

std::string library_commit() {
  constexpr std::string_view kKey = "commit: ";
  for (const std::string_view line : split(trimul_build_info(), '\n'))
    if (line.starts_with(kKey)) return std::string(line.substr(kKey.size()));
  return "unknown";
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

std::string bench_lines(const BenchRow& row) {
  const std::string start = fmt::format("{:<44} {:<10}", format_problem_line(row.line), row.implementation);
  if (!row.was_timed()) return fmt::format("{} {}", start, one_line(row.skipped));
  return fmt::format("{} {:>10.4f} {:>10.4f} {:>10.4f} {:>10.4f} {:>9.1f} {:>8.2f} {:>8}", start, row.times.median_us() / 1e3,
                     row.times.min_us() / 1e3, row.times.quantile_us(0.25) / 1e3, row.times.quantile_us(0.75) / 1e3, row.gflop_per_s(),
                     row.gb_per_s(), row.ceiling_percent()) +
         (row.gpu ? gpu_lines(*row.gpu) : "");
}

nlohmann::ordered_json report_head_json(const BenchReport& report) {
  nlohmann::ordered_json json{{"version", report.version}, {"commit", report.commit}, {"device", report.device}, {"gpu", nullptr}};
  if (report.gpu) {
    json["gpu"] = {{"name", report.gpu->name},
                   {"driver", nullptr},
                   {"cuda_driver", report.gpu->cuda_driver},
                   {"cuda_runtime", report.gpu->cuda_runtime},
                   {"ceiling_gb_per_s", nullptr},
                   {"ceiling_gflop_per_s", nullptr}};
    if (report.gpu->driver) json["gpu"]["driver"] = *report.gpu->driver;
    if (report.gpu->bytes_per_us > 0) json["gpu"]["ceiling_gb_per_s"] = report.gpu->bytes_per_us / 1e3;
    if (report.gpu->flop_per_us > 0) json["gpu"]["ceiling_gflop_per_s"] = report.gpu->flop_per_us / 1e3;
  }
  json["command"] = report.command;
  return json;
}

nlohmann::ordered_json bench_json(const BenchReport& report) {
  nlohmann::ordered_json json = report_head_json(report);
  json["ceiling"] = {{"gb_per_s", report.ceiling.bytes_per_us / 1e3},
                     {"gflop_per_s", report.ceiling.flop_per_us / 1e3},
                     {"threads", report.ceiling.num_threads}};
  json["results"] = nlohmann::ordered_json::array();
  for (const BenchRow& row : report.rows) json["results"].push_back(row_json(row));
  return json;
}

}  // namespace trimul::cli
