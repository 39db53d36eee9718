// SPDX-License-Identifier: Apache-2.0
// mbarrier (PTX ISA "Parallel Synchronization and Communication Instructions: mbarrier", sm_80 and, for expect_tx and try_wait, sm_90).
// Each wrapper is run by the threads that call it, one at a time; none needs convergence. The "memory" clobbers keep the compiler from
// moving shared-memory accesses over the barrier.
#pragma once

#include <cstdint>

#include "cuda/ptx/shared_address.cuh"

namespace trimul::cuda::ptx {

/// mbarrier.init: `arrivals` per phase.
__device__ __forceinline__ void mbarrier_init(std::uint64_t* barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

/// fence.mbarrier_init: makes initialised barriers visible to the asynchronous proxy. By the initialising thread, before the block's
/// barrier.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// mbarrier.arrive.expect_tx: one arrival that also announces `bytes` of asynchronous copies.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(std::uint64_t* barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

/// mbarrier.arrive: one arrival, release semantics.
__device__ __forceinline__ void mbarrier_arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

/// No instruction: the barrier operations that follow wait for `a` and `b`, and with them for every register they were computed from.
__device__ __forceinline__ void complete_before_barrier(float a, float b) {
  asm volatile("" ::"f"(a), "f"(b) : "memory");
}

/// mbarrier.try_wait.parity: waits until the phase of `parity` has completed; acquire semantics.
__device__ __forceinline__ void mbarrier_wait(std::uint64_t* barrier, std::uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra DONE;\nbra WAIT;\nDONE:\n}" ::"r"(
          shared_address(barrier)),
      "r"(parity)
      : "memory");
}

}  // namespace trimul::cuda::ptx
