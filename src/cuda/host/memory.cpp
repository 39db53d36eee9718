// SPDX-License-Identifier: Apache-2.0
#include "cuda/host/memory.hpp"

#include "cuda/host/guard.hpp"

namespace trimul::cuda {

void* allocate_memory(int device, std::size_t bytes) {
  const DeviceGuard guard(device);
  void* memory = nullptr;
  TRIMUL_CUDA_CHECK(cudaMalloc(&memory, bytes));
  return memory;
}

void free_memory(int device, void* memory) {
  const DeviceGuard guard(device);
  TRIMUL_CUDA_CHECK(cudaFree(memory));
}

void copy_memory(int device, void* to, const void* from, std::size_t bytes, void* stream) {
  const DeviceGuard guard(device);
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  if (bytes > 0) TRIMUL_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda_stream));
  TRIMUL_CUDA_CHECK(cudaStreamSynchronize(cuda_stream));
}

}  // namespace trimul::cuda
