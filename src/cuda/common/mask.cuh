// SPDX-License-Identifier: Apache-2.0
// The mask of a call on the device: any dtype, any strides, read once, an fp32 factor; zero is a selection.
#pragma once

#include <cuda_fp16.h>

#include "core/dtype.hpp"
#include "cuda/common/mask_params.hpp"
#include "cuda/common/pair_tiling.hpp"

namespace trimul::cuda {

/// Bits of a mask element, zero-extended; 8-byte dtypes as the bits of their fp32 value. Kept apart from the conversion of the others, so
/// that the load can be in flight for a whole tile.
__device__ __forceinline__ std::uint32_t load_mask_bits(const MaskParams& mask, std::int64_t index) {
  switch (mask.element_bytes) {
    case 1: return static_cast<const std::uint8_t*>(mask.data)[index];
    case 2: return static_cast<const std::uint16_t*>(mask.data)[index];
    case 4: return static_cast<const std::uint32_t*>(mask.data)[index];
    default:
      return __float_as_uint(mask.dtype == core::DType::kF64 ? static_cast<float>(static_cast<const double*>(mask.data)[index])
                                                             : static_cast<float>(static_cast<const std::int64_t*>(mask.data)[index]));
  }
}

/// The fp32 factor that load_mask_bits fetched.
__device__ __forceinline__ float mask_factor(core::DType dtype, std::uint32_t bits) {
  using core::DType;
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
    case DType::kF32: return __uint_as_float(bits);
    case DType::kF16: return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
    case DType::kBf16: return __uint_as_float(bits << 16);
    case DType::kBool: return bits != 0 ? 1.0F : 0.0F;
    case DType::kU8: return static_cast<float>(static_cast<std::uint8_t>(bits));
    case DType::kI8: return static_cast<float>(static_cast<std::int8_t>(bits));
    case DType::kI16: return static_cast<float>(static_cast<std::int16_t>(bits));
    case DType::kI32: return static_cast<float>(static_cast<std::int32_t>(bits));
  }
  return 0.0F;
}

/// Offset of sample `sample` in elements.
__device__ __forceinline__ std::int64_t mask_sample_offset(const MaskParams& mask, std::int64_t sample) {
  std::int64_t offset = 0;
  for (int d = mask.num_leading - 1; d > 0; --d) {
    const std::int64_t outer = sample / mask.leading_sizes[d];
    offset += (sample - outer * mask.leading_sizes[d]) * mask.leading_strides[d];
    sample = outer;
  }
  return offset + sample * mask.leading_strides[0];
}

/// Mask bits of position `offset` (0..63) of a tile. Zero bits, which are zero in every dtype, in the padding; without a mask the bits of
/// 1.0F (pack_mask sets the dtype to fp32 then).
__device__ __forceinline__ std::uint32_t load_tile_mask(const MaskParams& mask, const PairTiling& tiling, std::uint32_t tile,
                                                        std::uint32_t offset) {
  if (mask.is_linear) {
    const std::uint32_t position = tile * kTilePositions + offset;
    return position < tiling.rows * tiling.tokens ? load_mask_bits(mask, position) : 0;
  }
  const PairTiling::Unit unit = tiling.unit(tile, offset / kUnitPositions);
  const std::uint32_t column = unit.column + offset % kUnitPositions;
  if (column >= tiling.tokens || unit.row >= tiling.rows) return 0;
  if (mask.data == nullptr) return __float_as_uint(1.0F);
  auto [sample, token] = tiling.tokens_per_sample.divide(unit.row);
  std::int64_t index = token * mask.stride_i + column * mask.stride_j;
  for (int d = mask.num_leading - 1; d > 0; --d) {
    const std::uint32_t outer = sample / mask.leading_sizes[d];
    index += (sample - outer * mask.leading_sizes[d]) * mask.leading_strides[d];
    sample = outer;
  }
  return load_mask_bits(mask, index + sample * mask.leading_strides[0]);
}

}  // namespace trimul::cuda
