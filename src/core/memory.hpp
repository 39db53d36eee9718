// SPDX-License-Identifier: Apache-2.0
// Plain memory on a device, behind trimul_memory_*.
#pragma once

#include <cstddef>

#include "core/problem.hpp"

namespace trimul::core {

/// 256-byte aligned; null for no bytes. OUT_OF_MEMORY, UNSUPPORTED or INVALID_ARGUMENT (no such device).
void* allocate_memory(const Device& device, std::size_t bytes);
void free_memory(const Device& device, void* memory);

/// Host to device, device to host or within either; done, with everything before it on `stream`, when it returns.
void copy_memory(const Device& to_device, void* to, const Device& from_device, const void* from, std::size_t bytes, void* stream);

/// Memory of a device with an owner.
class OwnedMemory {
 public:
  OwnedMemory(const Device& device, std::size_t bytes);
  ~OwnedMemory();
  OwnedMemory(const OwnedMemory&) = delete;
  OwnedMemory& operator=(const OwnedMemory&) = delete;
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  Device device_;
  std::size_t bytes_;
  void* data_;
};

}  // namespace trimul::core
