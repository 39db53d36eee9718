// SPDX-License-Identifier: Apache-2.0
// A tensor in host memory that the command owns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "failure.hpp"
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

/// "[2, 5, 5, 8]"
inline std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) text += (text.size() == 1 ? "" : ", ") + std::to_string(size);
  return text + "]";
}

/// Bytes of a contiguous tensor. kInvalid when they do not fit into 63 bits.
inline std::size_t checked_bytes(trimul_dtype dtype, const std::vector<std::int64_t>& shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  auto bytes = static_cast<std::int64_t>(trimul_dtype_bytes(dtype));
  for (const std::int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes))
      fail_invalid("a tensor of shape {} does not fit into 64-bit byte counts", shape_text(shape));
  return static_cast<std::size_t>(bytes);
}

/// Made by allocate_tensor, which has made sure that its products fit.
struct HostTensor {
  trimul_dtype dtype = TRIMUL_F32;
  std::vector<std::int64_t> shape;
  HostMemory data;

  [[nodiscard]] std::int64_t elements() const {
    if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
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
  const std::size_t bytes = checked_bytes(dtype, shape);
  return {dtype, std::move(shape), allocate_host(bytes)};
}

}  // namespace trimul::cli
