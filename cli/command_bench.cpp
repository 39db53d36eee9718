// SPDX-License-Identifier: Apache-2.0
// trimul bench: times implementations that have first been checked on the very problem.
#include <algorithm>
#include <charconv>
#include <optional>
#include <random>
#include <span>
#include <thread>

#include "bench_gpu.hpp"
#include "bench_report.hpp"
#include "bench_sweep.hpp"
#include "commands.hpp"
#include "contender.hpp"
#include "failure.hpp"
#include "options.hpp"
#include "output_file.hpp"
#include "plan_choice.hpp"
#include "progress.hpp"
#include "standard_streams.hpp"

namespace trimul::cli {
namespace {

struct BenchOptions {
  std::string shapes;
  std::vector<std::string> shape;
  std::string dtype;  // empty: bf16 where a GPU is first, else fp32
  std::string direction = "outgoing";
  std::string device = "auto";
  std::string implementation = "all";
  bool sweep = false;
  std::string json;
  std::string html;
};

/// Token counts of four real proteins and round ones near them, at the trunk's width.
constexpr std::int64_t kDefaultTokens[] = {128, 214, 256, 436};
/// The sweep's: on both sides of where tiles of 64, 128 and 192 begin to overshoot.
constexpr std::int64_t kSweepTokens[] = {64,  100, 128, 160, 192, 217, 256, 300,  320,  384,
                                         436, 448, 500, 512, 640, 768, 900, 1024, 1536, 2048};

std::vector<ProblemLine> requested_problems(const BenchOptions& options, const trimul_device& first_device) {
  if (!options.shapes.empty()) return read_shapes_file(options.shapes);
  std::vector<std::string> shapes = options.shape;
  const auto tokens = options.sweep ? std::span<const std::int64_t>(kSweepTokens) : std::span<const std::int64_t>(kDefaultTokens);
  for (const std::int64_t n : options.shape.empty() ? tokens : std::span<const std::int64_t>())
    shapes.push_back(fmt::format("1,{},128,128", n));
  std::vector<ProblemLine> lines;
  for (const std::string& shape : shapes) {
    const trimul_problem problem = parse_shape(shape);
    lines.push_back({.batch = problem.batch,
                     .tokens = problem.tokens,
                     .c_z = problem.c_z,
                     .c_hidden = problem.c_hidden,
                     .dtype = parse_float_dtype(!options.dtype.empty()  ? options.dtype
                                                : is_host(first_device) ? "fp32"
                                                                        : "bf16"),
                     .direction = parse_direction(options.direction),
                     .mask = options.sweep ? MaskKind::kRandom : MaskKind::kNone});
  }
  return lines;
}

/// Threads that the CPU implementation uses for a problem large enough to want them all: its plan says.
int cpu_threads() {
  const ProblemLine line{.batch = 1, .tokens = 1024, .c_z = 128, .c_hidden = 128};
  const PlanChoice choice = choose_plan(problem_of(line), {{TRIMUL_CPU, 0}}, "");
  constexpr std::string_view kKey = "threads: ";
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  for (const std::string_view text : split(trimul_plan_explain(choice.plan.get()), '\n'))
    if (text.starts_with(kKey)) std::from_chars(text.data() + kKey.size(), text.data() + text.size(), threads);
  return threads;
}

/// A contender with the row its times go to.
struct Entry {
  std::unique_ptr<Contender> contender;
  std::size_t row;
  int launches = 1;
};

class Bench {
 public:
  Bench(const BenchOptions& options, const MachineCeiling& ceiling, const GpuBench* gpu)
      : ceiling_(ceiling),
        gpu_(gpu),
        times_reference_(options.implementation == "reference"),
        devices_(candidate_devices(parse_device(options.device))),
        implementations_(requested_implementations(options.implementation)),
        seed_(std::random_device{}()) {}

  std::vector<BenchRow> take_rows() { return std::move(rows_); }
  [[nodiscard]] int num_failed() const { return num_failed_; }

  void problem(const ProblemLine& line) {
    const std::size_t first_row = rows_.size();
    const Inputs inputs = random_inputs(line, ++seed_);
    std::optional<Oracle> oracle;
    std::vector<Entry> entries;
    for (const std::string& name : implementations_) {
      BenchRow row;
      row.line = line;
      row.implementation = name;
      row.skipped = skip_reason(name, line);
      if (row.skipped.empty()) {
        auto contender = std::make_unique<Contender>(line, inputs, name, devices_);
        if (!oracle) oracle.emplace(line, inputs, seed_);
        verify_first(*contender, *oracle, row);
        if (row.skipped.empty() && gpu_ != nullptr && !is_host(contender->device()))
          gpu_->time(row, *contender, inputs);
        else if (row.skipped.empty())
          entries.push_back({std::move(contender), rows_.size()});
      }
      rows_.push_back(std::move(row));
    }
    time_interleaved(entries);
    for (std::size_t k = first_row; k < rows_.size(); ++k) fmt::print("{}\n", bench_lines(rows_[k]));
    flush_output();
  }

 private:
  std::string skip_reason(const std::string& name, const ProblemLine& line) const {
    if (line.batch * line.tokens == 0) return "the problem is empty";
    if (name == "reference" && !times_reference_) return "the oracle, not a contender; --impl reference times it";
    return reason_to_decline(name, line, devices_).value_or("");
  }

  void verify_first(const Contender& contender, Oracle& oracle, BenchRow& row) {
    const CheckResult check = check_contender(contender, row.line, oracle);
    row.error = check.error;
    row.device = device_name(contender.device());
    row.flop = trimul_plan_flop(contender.plan());
    row.traffic_bytes = static_cast<double>(trimul_plan_traffic_bytes(contender.plan()));
    // GPUs come with their own ceilings, or with none that anybody has measured.
    row.floor_us = is_host(contender.device()) ? floor_us(ceiling_, row.traffic_bytes, row.flop) : trimul_plan_floor_us(contender.plan());
    if (check.status == CheckResult::Status::kPassed) return;
    row.skipped = "failed its check: " + check.reason;
    ++num_failed_;
  }

  /// Launches behind each other until the time is long enough to be measured through a wait for the device; 1 on the CPU.
  static int launches_per_time(const Contender& contender) {
    constexpr double kLeastUs = 5e3;
    const double once_us = contender.execute();  // warms up once more, after the check
    return is_host(contender.device()) ? 1 : static_cast<int>(std::clamp(kLeastUs / once_us, 1.0, 1000.0));
  }

  /// Rounds in which each contender is timed once, so that what else the machine does meets all of them alike.
  void time_interleaved(std::vector<Entry>& entries) {
    constexpr int kLeastRounds = 7;
    constexpr int kMostRounds = 200;
    constexpr double kEnoughUs = 2e6;  // for each contender
    for (Entry& entry : entries) {
      rows_[entry.row].launches = entry.launches = launches_per_time(*entry.contender);
      rows_[entry.row].timing = kHostTiming;
    }
    double slowest_total_us = 0.0;
    std::vector<double> totals(rows_.size());
    for (int round = 0; round < kMostRounds && !entries.empty() && (round < kLeastRounds || slowest_total_us < kEnoughUs); ++round)
      for (const Entry& entry : entries) {
        // A GPU that has waited for the CPU's turn has lowered its clocks.
        if (entries.size() > 1 && !is_host(entry.contender->device())) entry.contender->execute(entry.launches);
        const double us = entry.contender->execute(entry.launches);
        rows_[entry.row].times.add(us);
        totals[entry.row] += us * entry.launches;
        slowest_total_us = std::max(slowest_total_us, totals[entry.row]);
      }
  }

  MachineCeiling ceiling_;
  const GpuBench* gpu_;  // null where graphs cannot be timed
  bool times_reference_;
  std::vector<trimul_device> devices_;
  std::vector<std::string> implementations_;
  std::uint64_t seed_;
  std::vector<BenchRow> rows_;
  int num_failed_ = 0;
};

void write_text(const OutputFile& file, const std::string& text) {
  file.write({std::as_bytes(std::span(text))});
}

void bench(const BenchOptions& options) {
  const trimul_device device = candidate_devices(parse_device(options.device)).front();
  const std::vector<ProblemLine> lines = requested_problems(options, device);
  std::optional<OutputFile> json_file;
  std::optional<OutputFile> html_file;
  if (!options.json.empty()) json_file.emplace(options.json);
  if (!options.html.empty()) html_file.emplace(options.html);
  if ((json_file && json_file->is_standard_output()) || (html_file && html_file->is_standard_output())) send_output_to_stderr();

  const std::unique_ptr<GpuBench> gpu = GpuBench::make(device);
  BenchReport report;
  report.version = trimul_version();
  report.commit = library_commit();
  report.command = command_line();
  if (const char* description = trimul_device_description(device)) report.device = description;
  if (gpu != nullptr) report.gpu = gpu->facts();
  if (options.sweep) {
    if (gpu == nullptr) fail(kUnsupported, "--sweep: replays graphs, expected a build with CUDA and a GPU, got {}", device_name(device));
    nlohmann::ordered_json json = report_head_json(report);
    json.update(sweep_knobs(*gpu, device, options.implementation, lines));
    if (json_file) write_text(*json_file, json.dump(1) + "\n");
    return;
  }
  report.ceiling = measure_ceiling(cpu_threads());
  fmt::print("trimul {}, commit {}, on {}\nceiling: {}\n\n{}\n", report.version, report.commit, report.device, ceiling_text(report.ceiling),
             bench_heading());
  flush_output();

  Bench session(options, report.ceiling, gpu.get());
  Progress progress("timing");
  for (const ProblemLine& line : lines) {
    progress.set_label("timing " + format_problem_line(line));
    session.problem(line);
  }
  report.rows = session.take_rows();
  if (json_file) write_text(*json_file, bench_json(report).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  if (html_file) write_text(*html_file, bench_html(report));
  if (session.num_failed() > 0) fail(kOther, "{} contenders failed their check and were not timed", session.num_failed());
  if (std::none_of(report.rows.begin(), report.rows.end(), [](const BenchRow& row) { return row.was_timed(); }))
    fail(kUnsupported, "nothing was timed; {}: {}", report.rows.front().implementation, report.rows.front().skipped);
}

}  // namespace

void add_bench_command(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand("bench", "Times implementations, each checked first, against this machine's ceilings");
  CLI::Option* shapes = command->add_option("--shapes", options->shapes, "problems from a file (shapes/README.md)")->type_name("FILE");
  command->add_option("--shape", options->shape, "a problem; may be given several times")
      ->allow_extra_args(false)
      ->excludes(shapes)
      ->type_name("B,N,C_z,C");
  command->add_option("--dtype", options->dtype, "dtype of x for --shape [bf16 on a GPU, else fp32]")->excludes(shapes)->type_name("T");
  command->add_option("--direction", options->direction, "direction for --shape")->capture_default_str()->excludes(shapes)->type_name("D");
  command->add_option("--device", options->device, "auto, cpu, cuda or cuda:INDEX")->capture_default_str()->type_name("DEV");
  command->add_option("--impl", options->implementation, "one implementation, or all")->capture_default_str()->type_name("NAME");
  command->add_option("--json", options->json, "write the numbers to a file")->type_name("FILE");
  CLI::Option* html = command->add_option("--html", options->html, "write a page with table and plots to a file")->type_name("FILE");
  command->add_flag("--sweep", options->sweep, "time every combination of a GPU implementation's knobs; print its table of choices")
      ->excludes(html);
  command->footer(
      "On a GPU a time is that of a replayed CUDA graph of one execute, by the device's clock, replays back to back (the L2 is warm). "
      "Beside\n"
      "it: executes one by one, each stage alone, buffer sets in turn that exceed the L2 (up to N = 512), one replay after 20 ms of rest\n"
      "(from N = 768), and the host's time for an execute.");
  command->callback([options] { bench(*options); });
}

}  // namespace trimul::cli
