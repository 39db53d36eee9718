// SPDX-License-Identifier: Apache-2.0
// Device memory and waiting copies. No CUDA header, so that the core may call.
#pragma once

#include <cstddef>

namespace trimul::cuda {

void* allocate_memory(int device, std::size_t bytes);
void free_memory(int device, void* memory);
/// Either end may be the host's. Waits for `stream`.
void copy_memory(int device, void* to, const void* from, std::size_t bytes, void* stream);

}  // namespace trimul::cuda
