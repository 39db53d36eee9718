// SPDX-License-Identifier: Apache-2.0
// Memory on the device of a problem, the CPU included.
#pragma once

#include <cstddef>

#include "library.hpp"
#include "trimul/trimul.h"

namespace trimul::cli {

inline constexpr trimul_device kHost{TRIMUL_CPU, 0};

inline bool is_host(const trimul_device& device) {
  return device.type == TRIMUL_CPU;
}

/// 256-byte aligned, freed with this object. Copies wait until they and all work launched before them are done.
class DeviceMemory {
 public:
  DeviceMemory(const trimul_device& device, std::size_t bytes) : device_(device) {
    void* memory = nullptr;
    check(trimul_memory_allocate(device_, bytes, &memory));
    memory_ = static_cast<std::byte*>(memory);
  }
  ~DeviceMemory() { trimul_memory_free(device_, memory_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  [[nodiscard]] std::byte* data() const { return memory_; }
  [[nodiscard]] const trimul_device& device() const { return device_; }

  void upload(std::size_t offset, const void* from, std::size_t bytes) const {
    check(trimul_memory_copy(device_, memory_ + offset, kHost, from, bytes, nullptr));
  }
  void download(void* to, std::size_t offset, std::size_t bytes) const {
    check(trimul_memory_copy(kHost, to, device_, memory_ + offset, bytes, nullptr));
  }

 private:
  trimul_device device_;
  std::byte* memory_ = nullptr;
};

/// Returns when all work launched on the device is done; errors of kernels are found here.
inline void wait_for(const trimul_device& device) {
  check(trimul_memory_copy(device, nullptr, device, nullptr, 0, nullptr));
}

}  // namespace trimul::cli
