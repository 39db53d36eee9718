// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies from global to shared memory by the threads themselves (PTX ISA "cp.async", sm_80), and loads of shared memory by
// address.
#pragma once

#include <cstdint>

namespace trimul::cuda::ptx {

/// cp.async.cg: 16 bytes past the L1, of which the first `bytes` (0 to 16) are read and the others become zero. Both ends 16-byte aligned;
/// with 0 bytes `from` is not read.
__device__ __forceinline__ void cp_async_16(std::uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void cp_async_16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

/// cp.async.commit_group: closes the thread's current group, which may be empty.
__device__ __forceinline__ void cp_async_commit_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// cp.async.wait_group: at most kPending of the thread's groups are still on their way. Other threads' copies need a barrier behind it.
template <int kPending>
__device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// ld.shared.b32.
__device__ __forceinline__ std::uint32_t load_shared(std::uint32_t address) {
  std::uint32_t value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

/// ld.shared.v2.f32, 8-byte aligned.
__device__ __forceinline__ float2 load_shared_float2(std::uint32_t address) {
  float2 value;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(value.x), "=f"(value.y) : "r"(address) : "memory");
  return value;
}

/// ld.shared.v4.b32, 16-byte aligned.
__device__ __forceinline__ uint4 load_shared_uint4(std::uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address)
               : "memory");
  return value;
}

/// The same as four numbers.
__device__ __forceinline__ float4 load_shared_float4(std::uint32_t address) {
  const uint4 bits = load_shared_uint4(address);
  return make_float4(__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z), __uint_as_float(bits.w));
}

/// st.shared.v4.b32, 16-byte aligned.
__device__ __forceinline__ void store_shared(std::uint32_t address, uint4 value) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}

}  // namespace trimul::cuda::ptx
