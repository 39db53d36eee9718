// SPDX-License-Identifier: Apache-2.0
// Programmatic dependent launch, register reallocation, named barriers, the thread's number.
#pragma once

#include <cstdint>

namespace trimul::cuda::ptx {

/// griddepcontrol.wait (sm_90): until every kernel this one was programmatically launched after has finished and its writes are visible.
/// Returns at once in an ordinary launch.
__device__ __forceinline__ void griddepcontrol_wait() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

/// griddepcontrol.launch_dependents (sm_90): this block no longer holds back the launch of the next kernel.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/// %tid.x, read anew every time: the compiler keeps neither it nor what follows from it in registers in between.
__device__ __forceinline__ int thread_again() {
  int thread = 0;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

/// setmaxnreg.dec (sm_90a). All threads of the warpgroup, converged. Ignored by ptxas unless the kernel has a launch bound.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  static_assert(kRegisters % 8 == 0 && 24 <= kRegisters && kRegisters <= 256);
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// setmaxnreg.inc (sm_90a). All threads of the warpgroup, converged; waits until the registers are free.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  static_assert(kRegisters % 8 == 0 && 24 <= kRegisters && kRegisters <= 256);
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// bar.sync on a named barrier (1 to 15; 0 is __syncthreads) for `threads` threads, a multiple of 32. Whole warps.
__device__ __forceinline__ void named_barrier_sync(std::uint32_t barrier, std::uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/// bar.arrive on a named barrier: counts as the calling warp's arrival, ordering its memory accesses before, and does not wait.
__device__ __forceinline__ void named_barrier_arrive(std::uint32_t barrier, std::uint32_t threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

}  // namespace trimul::cuda::ptx
