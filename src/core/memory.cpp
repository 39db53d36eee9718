// SPDX-License-Identifier: Apache-2.0
#include "core/memory.hpp"

#include <cstdlib>
#include <cstring>

#include "core/checked.hpp"
#include "core/device.hpp"
#include "core/error.hpp"
#if defined(TRIMUL_HAVE_CUDA)
#include "cuda/host/memory.hpp"
#endif

namespace trimul::core {

void* allocate_memory(const Device& device, std::size_t bytes) {
  (void)describe_device(device);  // throws for one that does not exist
  if (bytes == 0) return nullptr;
#if defined(TRIMUL_HAVE_CUDA)
  if (device.type == DeviceType::kCuda) return cuda::allocate_memory(device.index, bytes);
#endif
  const std::size_t most = static_cast<std::size_t>(-1) - kWorkspaceAlignmentBytes;
  void* memory = bytes > most ? nullptr
                              : std::aligned_alloc(kWorkspaceAlignmentBytes, (bytes + kWorkspaceAlignmentBytes - 1) /
                                                                                 kWorkspaceAlignmentBytes * kWorkspaceAlignmentBytes);
  if (memory == nullptr) throw Error(StatusCode::kOutOfMemory, text("allocating ", bytes, " bytes of host memory failed"));
  return memory;
}

void free_memory(const Device& device, void* memory) {
#if defined(TRIMUL_HAVE_CUDA)
  if (device.type == DeviceType::kCuda) return cuda::free_memory(device.index, memory);
#endif
  if (device.type == DeviceType::kCpu) std::free(memory);
}

void copy_memory(const Device& to_device, void* to, const Device& from_device, const void* from, std::size_t bytes, void* stream) {
  (void)describe_device(to_device);
  (void)describe_device(from_device);
#if defined(TRIMUL_HAVE_CUDA)
  if (to_device.type == DeviceType::kCuda) return cuda::copy_memory(to_device.index, to, from, bytes, stream);
  if (from_device.type == DeviceType::kCuda) return cuda::copy_memory(from_device.index, to, from, bytes, stream);
#endif
  (void)stream;
  if (bytes > 0) std::memcpy(to, from, bytes);
}

OwnedMemory::OwnedMemory(const Device& device, std::size_t bytes) : device_(device), bytes_(bytes), data_(allocate_memory(device, bytes)) {}

OwnedMemory::~OwnedMemory() {
  try {
    free_memory(device_, data_);
  } catch (const Error&) {
    // A device that can no longer free has failed before, and that call has said so.
  }
}

}  // namespace trimul::core
