// SPDX-License-Identifier: Apache-2.0
// Programmatic dependent launch in code for several architectures: on those before compute capability 9.0, which do not have it, kernels
// follow one another as ever. Plans ask for overlap only where a kernel's code waits (has_programmatic_launch).
#pragma once

#include "cuda/ptx/grid.cuh"

namespace trimul::cuda::sm80 {

/// Until the kernel before this one in its chain has finished and its writes are visible.
__device__ __forceinline__ void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
  ptx::griddepcontrol_wait();
#endif
}

/// This block no longer holds back the launch of the next kernel of the chain.
__device__ __forceinline__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  ptx::griddepcontrol_launch_dependents();
#endif
}

}  // namespace trimul::cuda::sm80
