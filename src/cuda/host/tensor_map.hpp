// SPDX-License-Identifier: Apache-2.0
// Tensor maps for bulk copies, encoded through the driver's entry point, which is looked up at run time: the library loads where no driver
// is.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <initializer_list>

namespace trimul::cuda {

struct TensorMapDim {
  std::uint64_t size;          // elements
  std::uint64_t stride_bytes;  // to the next element of this dimension; ignored for the innermost, which is contiguous
  std::uint32_t box;           // elements of a copy
};

/// bf16 tensor, dimensions innermost first, 128-byte swizzle, zero fill outside. `base` must be 16-byte aligned, strides multiples of 16.
/// DEVICE_ERROR when the driver refuses.
CUtensorMap encode_tensor_map(const void* base, std::initializer_list<TensorMapDim> dims);

}  // namespace trimul::cuda
