// SPDX-License-Identifier: Apache-2.0
#include "bench_sweep.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <tuple>

#include "contender.hpp"
#include "failure.hpp"
#include "options.hpp"
#include "progress.hpp"
#include "sweep_table.hpp"

namespace trimul::cli {
namespace {

constexpr int kScreeningRounds = 5;  // of every combination
constexpr int kFinalRounds = 15;     // of the best of them and the table's
constexpr std::size_t kFinalists = 8;
constexpr double kHopeless = 1.3;  // times the best of the first round: not timed again
constexpr double kSweepWindowUs = 1.5e3;

std::vector<trimul_knob_range> knob_ranges(const std::string& implementation) {
  std::vector<trimul_knob_range> ranges;
  for (std::size_t k = 0; k < trimul_implementation_num_knobs(implementation.c_str()); ++k) {
    ranges.push_back(TRIMUL_KNOB_RANGE_INIT);
    check(trimul_implementation_knob(implementation.c_str(), k, &ranges.back()));
  }
  return ranges;
}

/// The cartesian product of the ranges.
std::vector<KnobValues> all_combinations(const std::vector<trimul_knob_range>& ranges) {
  std::vector<KnobValues> combinations{{}};
  for (const trimul_knob_range& range : ranges) {
    std::vector<KnobValues> longer;
    for (const KnobValues& values : combinations)
      for (std::int64_t value = range.least; value <= range.most; ++value) {
        longer.push_back(values);
        longer.back().push_back(value);
      }
    combinations = std::move(longer);
  }
  return combinations;
}

/// x and mask of a problem, random and as large as it asks, but repeating one block of values: normal numbers for all of N = 2048 would
/// take the host longer than the sweep takes the GPU.
class SweepInputs {
 public:
  SweepInputs(const ProblemLine& line, const trimul_device& device)
      : small_(random_inputs(small_line(line), std::random_device{}())),
        views_(small_, device),
        shape_{line.batch, line.tokens, line.tokens, line.c_z},
        block_(random_inputs(small_line(line, 97), std::random_device{}())),
        x_(device, count(4) * trimul_dtype_bytes(line.dtype)),
        mask_(device, count(3) * trimul_dtype_bytes(block_.find("mask")->second.dtype)),
        x_view_{x_.data(), device, 4, line.dtype, shape_.data(), nullptr},
        mask_view_{mask_.data(), device, 3, block_.find("mask")->second.dtype, shape_.data(), nullptr} {
    fill(x_, x_bytes(), block_.find("x")->second);
    fill(mask_, count(3) * trimul_dtype_bytes(static_cast<trimul_dtype>(mask_view_.dtype)), block_.find("mask")->second);
  }
  [[nodiscard]] const trimul_tensor& x() const { return x_view_; }
  [[nodiscard]] const trimul_tensor& mask() const { return mask_view_; }
  [[nodiscard]] const trimul_parameters& parameters() const { return views_.parameters(); }
  [[nodiscard]] std::size_t x_bytes() const { return count(4) * trimul_dtype_bytes(static_cast<trimul_dtype>(x_view_.dtype)); }

 private:
  static ProblemLine small_line(const ProblemLine& line, std::int64_t tokens = 1) {
    ProblemLine small = line;
    small.batch = 1;
    small.tokens = tokens;
    small.mask = MaskKind::kRandom;
    return small;
  }
  [[nodiscard]] std::size_t count(std::size_t dimensions) const {
    return static_cast<std::size_t>(
        std::accumulate(shape_.begin(), shape_.begin() + static_cast<std::ptrdiff_t>(dimensions), std::int64_t{1}, std::multiplies<>()));
  }
  static void fill(const DeviceMemory& memory, std::size_t bytes, const HostTensor& block) {
    for (std::size_t at = 0; at < bytes; at += block.bytes()) memory.upload(at, block.data.get(), std::min(block.bytes(), bytes - at));
  }

  Inputs small_;
  InputViews views_;
  std::vector<std::int64_t> shape_;
  Inputs block_;
  DeviceMemory x_;
  DeviceMemory mask_;
  trimul_tensor x_view_;
  trimul_tensor mask_view_;
};

/// A plan with given knobs and its graph, over buffers that all combinations share.
class Combination {
 public:
  Combination(KnobValues values, const trimul_problem& problem, const std::string& implementation,
              const std::vector<trimul_knob_range>& ranges)
      : values_(std::move(values)) {
    std::vector<trimul_knob> knobs;
    for (std::size_t k = 0; k < ranges.size(); ++k) knobs.push_back({ranges[k].name, values_[k]});
    trimul_plan_options options = TRIMUL_PLAN_OPTIONS_INIT;
    options.implementation = implementation.c_str();
    options.knobs = knobs.data();
    options.num_knobs = knobs.size();
    plan_ = create_plan(problem, options);
  }
  void capture(const GpuTimer& timer, trimul_execute_args args) {
    args.stream = timer.stream();
    graph_ = timer.capture([&] { check(trimul_execute(plan_.get(), &args)); });
  }
  void add_window(const GpuTimer& timer) {
    if (repeats_ == 0) repeats_ = static_cast<int>(std::clamp(kSweepWindowUs / std::max(timer.window_us(graph_, 1), 1.0), 2.0, 200.0));
    times_.add(timer.window_us(graph_, repeats_));
  }
  void forget_times() { times_ = {}; }
  [[nodiscard]] const KnobValues& values() const { return values_; }
  [[nodiscard]] const trimul_plan* plan() const { return plan_.get(); }
  [[nodiscard]] const Times& times() const { return times_; }

 private:
  KnobValues values_;
  PlanHandle plan_;
  GpuTimer::Launches graph_;
  Times times_;
  int repeats_ = 0;
};

KnobValues recommended_values(const trimul_problem& problem, const std::string& implementation, std::size_t num_knobs) {
  std::vector<trimul_knob> knobs(num_knobs);
  check(trimul_recommend_knobs(&problem, implementation.c_str(), nullptr, knobs.data(), knobs.size(), &num_knobs));
  KnobValues values;
  for (const trimul_knob& knob : knobs) values.push_back(knob.value);
  return values;
}

/// Times the combinations of one problem: all of them a few times, the best of them and the table's again.
SweptProblem sweep_problem(const GpuBench& gpu, const trimul_device& device, const std::string& implementation, const ProblemLine& line,
                           const std::vector<trimul_knob_range>& ranges) {
  const GpuTimer& timer = gpu.timer();
  trimul_problem problem = problem_of(line);
  problem.device = device;
  problem.has_mask = 1;
  std::vector<Combination> combinations;
  for (KnobValues& values : all_combinations(ranges)) {
    try {
      combinations.emplace_back(std::move(values), problem, implementation, ranges);
    } catch (const Failure& failure) {
      if (failure.exit_code() != kUnsupported) throw;  // else a tile that does not fit these widths
    }
  }
  const SweepInputs inputs(line, device);
  const WeightsHandle weights = create_weights(*combinations.front().plan(), inputs.parameters());
  std::size_t workspace_bytes = 0;
  for (const Combination& combination : combinations)
    workspace_bytes = std::max(workspace_bytes, trimul_plan_workspace_bytes(combination.plan()));
  const DeviceMemory out(device, inputs.x_bytes());
  const DeviceMemory workspace(device, workspace_bytes);
  trimul_tensor out_view = inputs.x();
  out_view.data = out.data();
  out_view.dtype = out_dtype_of(line);
  trimul_execute_args args = TRIMUL_EXECUTE_ARGS_INIT;
  args.x = &inputs.x();
  args.mask = &inputs.mask();
  args.weights = weights.get();
  args.out = &out_view;
  args.workspace = workspace.data();
  args.workspace_bytes = workspace_bytes;
  timer.wait();
  for (Combination& combination : combinations) combination.capture(timer, args);

  const auto median_order = [](const Combination* left, const Combination* right) {
    return left->times().median_us() < right->times().median_us();
  };
  std::vector<Combination*> running;
  for (Combination& combination : combinations) running.push_back(&combination);
  const KnobValues present = recommended_values(problem, implementation, ranges.size());
  const auto is_present = [&](const Combination* combination) { return combination->values() == present; };
  for (int round = 0; round < kScreeningRounds; ++round) {
    for (Combination* combination : running) combination->add_window(timer);
    const double best_us = (*std::min_element(running.begin(), running.end(), median_order))->times().median_us();
    std::erase_if(running, [&](const Combination* combination) {
      return combination->times().median_us() > kHopeless * best_us && !is_present(combination);
    });
  }
  SweptProblem swept;
  swept.line = line;
  swept.floor_us = trimul_plan_floor_us(combinations.front().plan());
  swept.present = present;
  for (const Combination& combination : combinations) swept.screening[combination.values()] = combination.times().median_us();
  std::sort(running.begin(), running.end(), median_order);
  const auto last = running.begin() + static_cast<std::ptrdiff_t>(std::min(kFinalists, running.size()));
  std::vector<Combination*> finalists(running.begin(), last);
  if (const auto it = std::find_if(last, running.end(), is_present); it != running.end()) finalists.push_back(*it);
  // Compared are times of the same rounds alone: the GPU grows slower as it grows warm.
  for (Combination* combination : finalists) combination->forget_times();
  for (int round = 0; round < kFinalRounds; ++round)
    for (Combination* combination : finalists) combination->add_window(timer);
  for (const Combination& combination : combinations) swept.times[combination.values()] = combination.times();
  for (const Combination* finalist : finalists) swept.finalists.push_back(finalist->values());
  // Names of values, where the plan's explanation gives one in brackets.
  for (const Combination& combination : combinations)
    swept.add_names(combination.values(), ranges, trimul_plan_explain(combination.plan()));
  return swept;
}

/// The implementation to sweep, found to serve every problem and, on the smallest, to compute what the oracle does.
std::string checked_implementation(const trimul_device& device, const std::string& requested, const std::vector<ProblemLine>& lines) {
  check_implementation_name(requested == "all" ? "" : requested);
  const auto smallest = std::min_element(lines.begin(), lines.end(), [](const ProblemLine& left, const ProblemLine& right) {
    return multiply_adds(left) < multiply_adds(right);
  });
  const PlanChoice choice = choose_plan(problem_of(*smallest), {device}, requested == "all" ? "" : requested);
  std::string name = trimul_plan_implementation(choice.plan.get());
  if (!is_for_gpus(name) || trimul_implementation_num_knobs(name.c_str()) == 0)
    fail(kUnsupported, "--sweep: {} has no knobs of a GPU", name);
  for (const ProblemLine& line : lines)
    if (const auto reason = reason_to_decline(name, line, {device}))
      fail(kUnsupported, "--sweep: {}: {}", format_problem_line(line), *reason);
  if (smallest->batch * smallest->tokens == 0) fail_invalid("--sweep: {} is an empty problem", format_problem_line(*smallest));
  const std::uint64_t seed = std::random_device{}();
  const Inputs inputs = random_inputs(*smallest, seed);
  Oracle oracle(*smallest, inputs, seed);
  const CheckResult result = check_contender(Contender(*smallest, inputs, name, {device}), *smallest, oracle);
  if (result.status != CheckResult::Status::kPassed)
    fail(kOther, "{} failed its check and was not timed: {}", format_problem_line(*smallest), result.reason);
  return name;
}

}  // namespace

nlohmann::ordered_json sweep_knobs(const GpuBench& gpu, const trimul_device& device, const std::string& implementation,
                                   const std::vector<ProblemLine>& lines) {
  const std::string name = checked_implementation(device, implementation, lines);
  const std::vector<trimul_knob_range> ranges = knob_ranges(name);
  Progress progress("sweeping");
  std::vector<SweptProblem> swept;
  for (const ProblemLine& line : lines) {
    progress.set_label("sweeping " + format_problem_line(line));
    swept.push_back(sweep_problem(gpu, device, name, line, ranges));
  }
  // A table for each batch and direction.
  std::map<std::tuple<std::int64_t, std::int32_t, std::int64_t, std::int64_t>, std::vector<SweptProblem>> groups;
  for (SweptProblem& problem : swept) {
    const ProblemLine& line = problem.line;
    groups[{line.batch, line.direction, line.c_z, line.c_hidden}].push_back(std::move(problem));
  }
  nlohmann::ordered_json json{{"implementation", name}, {"knobs", nlohmann::ordered_json::array()}};
  for (const trimul_knob_range& range : ranges)
    json["knobs"].push_back({{"name", range.name}, {"least", range.least}, {"most", range.most}});
  json["tables"] = nlohmann::ordered_json::array();
  for (auto& [key, problems] : groups) {
    const SweepTable table(std::move(problems), ranges);
    fmt::print("{}\n", table.text());
    json["tables"].push_back(table.json());
  }
  return json;
}

}  // namespace trimul::cli
