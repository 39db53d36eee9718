// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace trimul::cuda {

inline constexpr int kMaxMaskDims = 6;

/// core::MaskView with its leading dimensions merged where one stride serves them: element (b, i, j) lies at
/// offset(b) + i * stride_i + j * stride_j elements from data. data null: the call has no mask.
struct MaskParams {
  const void* data = nullptr;
  core::DType dtype = core::DType::kF32;
  std::int32_t element_bytes = 4;
  bool is_linear = false;  // element (b, i, j) is element (b N + i) N + j, and so are the positions of a tile (TileCopy::kFlat)
  std::int32_t num_leading = 1;
  std::int64_t stride_i = 0;
  std::int64_t stride_j = 0;
  std::uint32_t leading_sizes[kMaxMaskDims] = {};
  std::int64_t leading_strides[kMaxMaskDims] = {};
};

}  // namespace trimul::cuda
