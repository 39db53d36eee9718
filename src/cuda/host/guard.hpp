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

}  // namespace trimul::cuda
