// SPDX-License-Identifier: Apache-2.0
// Times of work on a GPU: by its own clock, between events on a stream of the timer's, and by the host's. The CUDA runtime stays behind
// this header; it finds the driver at run time, so that the command starts where there is none.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "trimul/trimul.h"

namespace trimul::cli {

class GpuTimer {
 public:
  /// Puts work on stream().
  using Launches = std::function<void()>;

  /// Null where this build has no CUDA or its runtime does not reach the device.
  static std::unique_ptr<GpuTimer> make(const trimul_device& device);
  virtual ~GpuTimer() = default;

  /// A stream that waits for no other.
  [[nodiscard]] virtual void* stream() const = 0;
  /// What `launches` would do, as one graph; calling the result replays it on stream().
  [[nodiscard]] virtual Launches capture(const Launches& launches) const = 0;
  /// Microseconds of device time per call of `launches`, `repeats` of them back to back behind one that is not counted. `meanwhile` is
  /// called while they run.
  [[nodiscard]] virtual double window_us(const Launches& launches, int repeats, const std::function<void()>& meanwhile = {}) const = 0;
  /// Device time of one call on a GPU that has rested for 20 ms. The stream is held until all is queued: its start is not timed.
  [[nodiscard]] virtual double rested_us(const Launches& launches) const = 0;
  /// Host time of one call, the stream idle before it.
  [[nodiscard]] virtual double host_us(const Launches& launches) const = 0;
  /// Puts `count` kernels that do nothing on stream(), each a block for every multiprocessor, launched programmatically dependent on the
  /// one before it and with the operator's size of parameters: the least that as many launches cost.
  virtual void launch_empty_kernels(int count) const = 0;
  /// Waits for everything on the GPU.
  virtual void wait() const = 0;

  [[nodiscard]] virtual std::size_t l2_bytes() const = 0;
  /// "13.0"; the driver's is the newest that it serves.
  [[nodiscard]] virtual std::string runtime_version() const = 0;
  [[nodiscard]] virtual std::string driver_api_version() const = 0;
  /// "0000:1b:00.0", by which NVML knows the GPU.
  [[nodiscard]] virtual std::string pci_bus_id() const = 0;
};

}  // namespace trimul::cli
