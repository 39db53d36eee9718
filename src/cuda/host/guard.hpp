// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/host/check.hpp"

namespace trimul::cuda {

/// Makes `device` current for its lifetime. The caller's current device comes back, also when an exception passes.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    TRIMUL_CUDA_CHECK(cudaGetDevice(&previous_));
    is_switched_ = previous_ != device;
    if (is_switched_) TRIMUL_CUDA_CHECK(cudaSetDevice(device));
  }
  ~DeviceGuard() {
    if (is_switched_) (void)cudaSetDevice(previous_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
  bool is_switched_ = false;
};

/// Device memory with an owner.
class DeviceBuffer {
 public:
  /// On the current device. OUT_OF_MEMORY when there is not enough.
  explicit DeviceBuffer(std::size_t bytes, int device) : bytes_(bytes), device_(device) { TRIMUL_CUDA_CHECK(cudaMalloc(&data_, bytes)); }
  ~DeviceBuffer() {
    int previous = 0;
    if (cudaGetDevice(&previous) != cudaSuccess) return;
    (void)cudaSetDevice(device_);
    (void)cudaFree(data_);
    (void)cudaSetDevice(previous);
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
  int device_;
};

}  // namespace trimul::cuda
