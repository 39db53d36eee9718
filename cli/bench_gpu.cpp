// SPDX-License-Identifier: Apache-2.0
#include "bench_gpu.hpp"

#include <algorithm>

namespace trimul::cli {
namespace {

constexpr int kRounds = 21;        // windows of each kind, taking turns
constexpr double kWindowUs = 2e3;  // device time of a window
constexpr int kHostTimes = 100;
constexpr std::int64_t kMostRotatedTokens = 512;  // beyond, one set of buffers exceeds the L2 by itself
constexpr std::int64_t kLeastCoolTokens = 768;    // where the power cap shows

/// Replays that fill a window, a multiple of `multiple`.
int repeats_for(double once_us, int multiple = 1) {
  const int repeats = static_cast<int>(std::clamp(kWindowUs / std::max(once_us, 1.0), 2.0, 400.0));
  return (repeats + multiple - 1) / multiple * multiple;
}

/// Contenders on buffers of their own, together at least twice the L2 beyond the one in use, and their graphs.
class RotatedBuffers {
 public:
  RotatedBuffers(const GpuTimer& timer, const BenchRow& row, const Contender& like, const Inputs& inputs) {
    const std::size_t x_bytes = inputs.find("x")->second.bytes();
    const std::size_t set_bytes = 2 * x_bytes + trimul_plan_workspace_bytes(like.plan());
    const std::size_t sets = 2 * timer.l2_bytes() / set_bytes + 2;
    for (std::size_t k = 0; k < sets; ++k) {
      contenders_.push_back(std::make_unique<Contender>(row.line, inputs, row.implementation, std::vector{like.device()}));
      timer.wait();  // its memory is filled and its weights are packed on another stream
      graphs_.push_back(timer.capture([&] { contenders_.back()->launch(timer.stream()); }));
    }
  }
  [[nodiscard]] int sets() const { return static_cast<int>(contenders_.size()); }
  /// Replays the next set's graph.
  void replay_next() { graphs_[next_++ % graphs_.size()](); }

 private:
  std::vector<std::unique_ptr<Contender>> contenders_;
  std::vector<GpuTimer::Launches> graphs_;
  std::size_t next_ = 0;
};

/// One kind of measurement and where its windows' times go.
struct Window {
  GpuTimer::Launches launches;
  Times* times;
  int repeats;
};

std::vector<StageRow> stage_rows(const trimul_plan* plan) {
  std::vector<StageRow> rows;
  for (std::size_t k = 0; k < trimul_plan_num_stages(plan); ++k) {
    trimul_stage_info info = TRIMUL_STAGE_INFO_INIT;
    check(trimul_plan_stage(plan, k, &info));
    rows.push_back({.name = info.name,
                    .times = {},
                    .flop = info.flop,
                    .traffic_bytes = static_cast<double>(info.traffic_bytes),
                    .floor_us = info.floor_us});
  }
  return rows;
}

}  // namespace

GpuBench::GpuBench(const trimul_device& device, std::unique_ptr<GpuTimer> timer)
    : device_(device), timer_(std::move(timer)), nvml_(timer_->pci_bus_id()) {}

std::unique_ptr<GpuBench> GpuBench::make(const trimul_device& device) {
  auto timer = GpuTimer::make(device);
  return timer == nullptr ? nullptr : std::unique_ptr<GpuBench>(new GpuBench(device, std::move(timer)));
}

GpuFacts GpuBench::facts() const {
  GpuFacts facts{
      .name = "", .cuda_runtime = timer_->runtime_version(), .cuda_driver = timer_->driver_api_version(), .driver = nvml_.driver_version()};
  if (const char* name = trimul_device_description(device_)) facts.name = name;
  check(trimul_device_ceilings(device_, &facts.bytes_per_us, &facts.flop_per_us));
  return facts;
}

void GpuBench::time(BenchRow& row, const Contender& contender, const Inputs& inputs) const {
  timer_->wait();
  row.timing = kGraphTiming;
  GpuFigures& gpu = row.gpu.emplace();
  gpu.stages = stage_rows(contender.plan());
  const auto eager = [&] { contender.launch(timer_->stream()); };
  const auto graph = timer_->capture(eager);
  std::vector<Window> windows;
  const auto add = [&](const GpuTimer::Launches& launches, Times& times, int multiple = 1) {
    windows.push_back({launches, &times, repeats_for(timer_->window_us(launches, 2 * multiple), multiple)});
  };
  add(graph, row.times);
  add(eager, gpu.eager);
  for (std::size_t k = 0; k < gpu.stages.size(); ++k)
    add(timer_->capture([&] { contender.launch_stage(k, timer_->stream()); }), gpu.stages[k].times);
  std::optional<RotatedBuffers> rotated;
  if (row.line.tokens <= kMostRotatedTokens) {
    rotated.emplace(*timer_, row, contender, inputs);
    gpu.rotated_sets = rotated->sets();
    add([&] { rotated->replay_next(); }, gpu.rotated, rotated->sets());
  }
  row.launches = windows.front().repeats;
  for (int round = 0; round < kRounds; ++round)
    for (const Window& window : windows) {
      const bool reads_clock = window.times == &row.times && round == kRounds / 2;
      window.times->add(timer_->window_us(window.launches, window.repeats, [&] {
        if (reads_clock) gpu.sm_clock_mhz = nvml_.sm_clock_mhz();
      }));
    }
  for (int round = 0; round < kRounds && row.line.tokens >= kLeastCoolTokens; ++round) gpu.cool.add(timer_->rested_us(graph));
  for (int k = 0; k < kHostTimes; ++k) {
    gpu.host.add(timer_->host_us(eager));
    gpu.empty_kernels.add(timer_->host_us([&] { timer_->launch_empty_kernels(3); }));
  }
  timer_->wait();
}

}  // namespace trimul::cli
