// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace trimul::cuda::ptx {

/// Shared-window address of a shared-memory object, as the instructions take it.
__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

}  // namespace trimul::cuda::ptx
