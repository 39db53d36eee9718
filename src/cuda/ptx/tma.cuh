// SPDX-License-Identifier: Apache-2.0
// Bulk tensor copies (PTX ISA "cp.async.bulk.tensor", sm_90). Issued by one thread. Coordinates count elements, innermost first; parts of
// a box outside the tensor read as zero and are not written.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/common/l2_policy.hpp"
#include "cuda/ptx/mbarrier.cuh"

namespace trimul::cuda::ptx {

/// cp.async.bulk.tensor.2d with an L2 policy, global to shared.
__device__ __forceinline__ void tma_load_2d(void* destination, const CUtensorMap* map, std::uint64_t* barrier, std::int32_t c0,
                                            std::int32_t c1, L2Policy policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(
          shared_address(destination)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "l"(static_cast<std::uint64_t>(policy))
      : "memory");
}

/// cp.async.bulk.tensor.4d with an L2 policy, global to shared.
__device__ __forceinline__ void tma_load_4d(void* destination, const CUtensorMap* map, std::uint64_t* barrier, std::int32_t c0,
                                            std::int32_t c1, std::int32_t c2, std::int32_t c3, L2Policy policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], "
      "%7;" ::"r"(shared_address(destination)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "l"(static_cast<std::uint64_t>(policy))
      : "memory");
}

/// cp.async.bulk.tensor.2d, global to shared; completes `box` bytes on `barrier`.
__device__ __forceinline__ void tma_load_2d(void* destination, const CUtensorMap* map, std::uint64_t* barrier, std::int32_t c0,
                                            std::int32_t c1) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
                   shared_address(destination)),
               "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1)
               : "memory");
}

/// cp.async.bulk.tensor.4d, global to shared.
__device__ __forceinline__ void tma_load_4d(void* destination, const CUtensorMap* map, std::uint64_t* barrier, std::int32_t c0,
                                            std::int32_t c1, std::int32_t c2, std::int32_t c3) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(
                   shared_address(destination)),
               "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}

/// cp.async.bulk, global to shared: `bytes` contiguous bytes, a multiple of 16, both ends 16-byte aligned; completes them on `barrier`.
__device__ __forceinline__ void bulk_load(void* destination, const void* source, std::uint32_t bytes, std::uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(destination)),
               "l"(source), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}

/// cp.async.bulk.tensor.2d, shared to global, in the calling thread's current bulk group.
__device__ __forceinline__ void tma_store_2d(const CUtensorMap* map, const void* source, std::int32_t c0, std::int32_t c1) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map), "r"(shared_address(source)),
               "r"(c0), "r"(c1)
               : "memory");
}

/// cp.async.bulk.tensor.4d, shared to global, in the calling thread's current bulk group.
__device__ __forceinline__ void tma_store_4d(const CUtensorMap* map, const void* source, std::int32_t c0, std::int32_t c1, std::int32_t c2,
                                             std::int32_t c3) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
               "r"(shared_address(source)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}

/// cp.async.bulk.commit_group: closes the calling thread's bulk group (an empty one counts too).
__device__ __forceinline__ void bulk_commit_group() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// cp.async.bulk.wait_group.read: until at most kPending of this thread's groups still read their shared memory.
template <int kPending>
__device__ __forceinline__ void bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

/// cp.async.bulk.wait_group: until at most kPending of this thread's groups have not finished writing.
template <int kPending>
__device__ __forceinline__ void bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

/// fence.proxy.async (shared): this thread's ordinary shared-memory writes become visible to bulk copies and wgmma that are issued after
/// a later barrier. Every writing thread runs it, before that barrier.
__device__ __forceinline__ void fence_proxy_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// prefetch.tensormap: brings the descriptor into its cache.
__device__ __forceinline__ void prefetch_tensormap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

}  // namespace trimul::cuda::ptx
