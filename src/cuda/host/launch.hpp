// SPDX-License-Identifier: Apache-2.0
// Kernel launches of the three-stage chain.
#pragma once

#include <cuda_runtime.h>

#include "cuda/host/check.hpp"

namespace trimul::cuda {

/// Lets `kernel` use `bytes` of dynamic shared memory on the current device.
template <typename Kernel>
void allow_shared_memory(Kernel* kernel, std::size_t bytes) {
  TRIMUL_CUDA_CHECK(
      cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
}

/// Launches a kernel of the chain. `overlaps`: with programmatic stream serialization, so that it may start before the one before it in the
/// stream has finished; it waits for that by griddepcontrol.wait before its first access of memory that others write. Graph capture keeps
/// the edge.
template <typename Params>
void launch_chain_kernel(void (*kernel)(Params), int blocks, int threads, std::size_t smem_bytes, bool overlaps, void* stream,
                         const Params& params) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = smem_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = overlaps ? 1 : 0;
  TRIMUL_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, params));
  TRIMUL_CUDA_CHECK(cudaGetLastError());
}

}  // namespace trimul::cuda
