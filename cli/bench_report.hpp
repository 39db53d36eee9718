// SPDX-License-Identifier: Apache-2.0
// What `trimul bench` measured, as text, JSON and one self-contained HTML page.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "machine_ceiling.hpp"
#include "problem_set.hpp"
#include "times.hpp"

namespace trimul::cli {

/// One stage by itself: a graph of it alone, replayed back to back.
struct StageRow {
  std::string name;
  Times times;
  double flop = 0.0;
  double traffic_bytes = 0.0;
  double floor_us = 0.0;  // 0 where the device's ceilings are unknown
};

/// What is measured of a GPU implementation beside the replayed graph of the call.
struct GpuFigures {
  std::vector<StageRow> stages;  // none where the plan does not divide its work
  Times eager;                   // device time of executes launched back to back
  Times rotated;                 // graph replays that take buffer sets in turn, larger together than the L2; empty for N > 512
  int rotated_sets = 0;
  Times cool;                            // graph replay after 20 ms of rest; empty for N < 768
  Times host;                            // host time of an execute on an idle stream
  Times empty_kernels;                   // the same of three kernels that do nothing
  std::optional<unsigned> sm_clock_mhz;  // while graphs are replayed back to back
};

struct BenchRow {
  ProblemLine line;
  std::string implementation;
  std::string skipped;  // why it was not timed; the numbers below are then empty
  std::string device;   // "cuda:0"
  std::string timing;   // what one of the times is
  int launches = 1;     // executes behind each other whose mean is one of the times
  Times times;
  double error = 0.0;  // relative RMS to the fp64 reference, within its bound
  double flop = 0.0;
  double traffic_bytes = 0.0;
  double floor_us = 0.0;  // 0 where the device's ceilings are unknown
  std::optional<GpuFigures> gpu;

  [[nodiscard]] bool was_timed() const { return skipped.empty(); }
  [[nodiscard]] double gflop_per_s() const { return flop / times.median_us() / 1e3; }
  [[nodiscard]] double gb_per_s() const { return traffic_bytes / times.median_us() / 1e3; }
  [[nodiscard]] double fraction_of_ceiling() const { return floor_us / times.median_us(); }
  /// "27.4%", "-" where unknown.
  [[nodiscard]] std::string ceiling_percent() const;
};

/// The GPU of a report, where one was timed.
struct GpuFacts {
  std::string name;
  std::string cuda_runtime;
  std::string cuda_driver;            // newest CUDA that the driver serves
  std::optional<std::string> driver;  // its own version
  double bytes_per_us = 0.0;          // ceilings; 0 where nobody has measured
  double flop_per_us = 0.0;
};

struct BenchReport {
  std::string version;
  std::string commit;  // of the library, "unknown" outside of a checkout
  std::string device;  // a description
  std::string command;
  MachineCeiling ceiling;
  std::optional<GpuFacts> gpu;
  std::vector<BenchRow> rows;
};

/// The command line of this process.
std::string command_line();
/// The library's commit as its build says.
std::string library_commit();

std::string ceiling_text(const MachineCeiling& ceiling);
std::string bench_heading();
/// One line about the call; for a GPU a second and third about what GpuFigures hold.
std::string bench_lines(const BenchRow& row);
nlohmann::ordered_json bench_json(const BenchReport& report);
/// version, commit, device, command and the facts about the GPU: the beginning of every report.
nlohmann::ordered_json report_head_json(const BenchReport& report);
std::string bench_html(const BenchReport& report);

}  // namespace trimul::cli
