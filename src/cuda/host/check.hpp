// SPDX-License-Identifier: Apache-2.0
// Every CUDA call goes through one of these: a failure becomes DEVICE_ERROR (OUT_OF_MEMORY for allocations) with call text and location.
#pragma once

#include <cuda_runtime_api.h>

#include "core/error.hpp"

namespace trimul::cuda {

/// Throws for anything but cudaSuccess.
inline void check_cuda(cudaError_t error, const char* call, const char* file, int line) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();  // an error that is not sticky must not surface again in the next, innocent call
  const auto code = error == cudaErrorMemoryAllocation ? core::StatusCode::kOutOfMemory : core::StatusCode::kDeviceError;
  throw core::Error(code,
                    core::text(call, " failed: ", cudaGetErrorName(error), ", ", cudaGetErrorString(error), " (", file, ":", line, ")"));
}

}  // namespace trimul::cuda

#define TRIMUL_CUDA_CHECK(call) ::trimul::cuda::check_cuda((call), #call, __FILE__, __LINE__)
