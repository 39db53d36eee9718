// SPDX-License-Identifier: Apache-2.0
// What heuristics and constraint sets know about a device. Plain data: hypothetical devices plan as well as real ones.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/problem.hpp"

namespace trimul::core {

struct DeviceInfo {
  Device device;
  std::string name;              // "CPU", "NVIDIA H200", or the architecture's name for a hypothetical one
  int sm = 0;                    // compute capability * 10, 0 for the CPU
  int num_sms = 0;               // multiprocessors, 0 for the CPU
  int smem_per_block_bytes = 0;  // largest opt-in shared memory of a block
  // Ceilings that were measured with a copy kernel and a large matrix product (docs/performance.md); 0 where nobody has measured.
  double bytes_per_us = 0;
  double flop_per_us = 0;
  bool is_hypothetical = false;  // plans for it explain but do not execute
};

/// GPU of an architecture by name ("sm90"), with the resources every part of that architecture has; nothing for an unknown name.
std::optional<DeviceInfo> describe_architecture(std::string_view name);
/// "sm80, sm86, ..." for error messages.
std::string architecture_names();

/// The device a problem names. UNSUPPORTED when this build or machine has no such GPU, INVALID_ARGUMENT for an index past the end.
DeviceInfo describe_device(const Device& device);

/// GPUs this build can use; 0 without CUDA support, driver or device.
int cuda_device_count();

}  // namespace trimul::core
