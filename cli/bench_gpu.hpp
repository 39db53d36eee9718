// SPDX-License-Identifier: Apache-2.0
// How `trimul bench` times a GPU implementation: replayed graphs of the call, of each stage, over rotated buffers and after a rest;
// executes launched one by one; the host's share.
#pragma once

#include <memory>

#include "bench_report.hpp"
#include "contender.hpp"
#include "gpu_timer.hpp"
#include "nvml.hpp"

namespace trimul::cli {

/// What a row says its times are.
inline constexpr const char* kGraphTiming = "device time of a replayed graph of one execute, back to back, L2 warm";
inline constexpr const char* kHostTiming = "host time of executes behind each other, up to a wait for the device";

/// The machine's one GPU of a benchmark: its timer and what is known about it.
class GpuBench {
 public:
  /// Null where no graphs can be timed on `device`.
  static std::unique_ptr<GpuBench> make(const trimul_device& device);

  [[nodiscard]] const GpuTimer& timer() const { return *timer_; }
  [[nodiscard]] GpuFacts facts() const;
  /// Fills in the row's times and its GpuFigures. `contender` has been checked; `inputs` are its own.
  void time(BenchRow& row, const Contender& contender, const Inputs& inputs) const;

 private:
  GpuBench(const trimul_device& device, std::unique_ptr<GpuTimer> timer);

  trimul_device device_;
  std::unique_ptr<GpuTimer> timer_;
  Nvml nvml_;
};

}  // namespace trimul::cli
