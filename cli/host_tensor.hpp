// SPDX-License-Identifier: Apache-2.0
// A tensor in host memory that the command owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "trimul/trimul.h"

namespace trimul::cli {

/// Workspaces must be aligned so; tensors take the same, which lets every load path be the fast one.
inline constexpr std::size_t kAlignmentBytes = 256;

struct FreeDeleter {
  void operator()(void* memory) const { std::free(memory); }
};
using HostMemory = std::unique_ptr<std::byte, FreeDeleter>;

/// Throws std::bad_alloc. Zero bytes give a valid, empty allocation.
inline HostMemory allocate_host(std::size_t bytes) {
  if (bytes > SIZE_MAX - kAlignmentBytes) throw std::bad_alloc();
  const std::size_t rounded = (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  void* memory = std::aligned_alloc(kAlignmentBytes, rounded == 0 ? kAlignmentBytes : rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return HostMemory(static_cast<std::byte*>(memory));
}

struct HostTensor {
  trimul_dtype dtype = TRIMUL_F32;
  std::vector<std::int64_t> shape;
  HostMemory data;

  [[nodiscard]] std::int64_t elements() const {
    std::int64_t product = 1;
    for (const std::int64_t size : shape) product *= size;
    return product;
  }
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(elements()) * trimul_dtype_bytes(dtype); }
  /// Borrows this tensor's shape and memory.
  [[nodiscard]] trimul_tensor view() const {
    return {data.get(), {TRIMUL_CPU, 0}, static_cast<std::int32_t>(shape.size()), dtype, shape.data(), nullptr};
  }
};

inline HostTensor allocate_tensor(trimul_dtype dtype, std::vector<std::int64_t> shape) {
  HostTensor tensor{dtype, std::move(shape), nullptr};
  tensor.data = allocate_host(tensor.bytes());
  return tensor;
}

/// "[2, 5, 5, 8]"
inline std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) text += (text.size() == 1 ? "" : ", ") + std::to_string(size);
  return text + "]";
}

}  // namespace trimul::cli
