// SPDX-License-Identifier: Apache-2.0
// Memory of a test case on the device of an implementation: the guarded buffers themselves on the CPU, copies with their guard bands on a
// GPU. Through trimul_memory_* alone, so that the tests build without CUDA.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "support/case.hpp"
#include "support/guarded_buffer.hpp"
#include "trimul/trimul.h"

namespace trimul::testing {

inline constexpr trimul_device kCpuDevice{TRIMUL_CPU, 0};

/// Plain device memory; null for no bytes. The test fails when there is none.
class DeviceMemory {
 public:
  DeviceMemory(trimul_device device, std::size_t bytes);
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { trimul_memory_free(device_, data_); }

  [[nodiscard]] std::byte* data() const { return data_; }
  void upload(std::size_t offset, const void* from, std::size_t bytes) const;
  void download(void* to, std::size_t offset, std::size_t bytes) const;

 private:
  trimul_device device_;
  std::byte* data_ = nullptr;
};

/// A guarded buffer on a device: the same bytes, bands and alignment.
class DeviceMirror {
 public:
  DeviceMirror(const GuardedBuffer& buffer, trimul_device device);

  [[nodiscard]] std::byte* data() const;
  /// The device's bytes, bands included, equal the host's: nothing was written.
  [[nodiscard]] bool is_unchanged() const;
  /// Overwrites the host's bytes, bands included, with the device's.
  void download() const;
  /// The other way.
  void upload() const;

 private:
  const GuardedBuffer& buffer_;
  std::size_t skew_ = 0;  // bytes from the copy's begin to that of the buffer's storage, which has another alignment
  std::unique_ptr<DeviceMemory> memory_;
};

/// The C structs of a case on a device.
class DeviceBound {
 public:
  DeviceBound(const Case& data, trimul_device device);

  Bound bound;
  /// Tests the inputs on a GPU; the CPU's are the case's own, which the runner compares.
  [[nodiscard]] bool inputs_are_unchanged(bool except_x) const;
  void download_x() const;
  /// Lets a GPU's copies follow changes of the case.
  void upload() const;
  [[nodiscard]] trimul_device device() const { return device_; }

 private:
  trimul_device device_;
  std::vector<std::unique_ptr<DeviceMirror>> mirrors_;  // x first; empty on the CPU
};

/// `tensor`, which lives in `buffer`, as it lies in its mirror.
trimul_tensor view_in(const DeviceMirror& mirror, const GuardedBuffer& buffer, trimul_tensor tensor, trimul_device device);

}  // namespace trimul::testing
