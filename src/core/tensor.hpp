// SPDX-License-Identifier: Apache-2.0
// Validated views of the caller's tensors.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "core/dtype.hpp"
#include "core/inline_vector.hpp"
#include "core/problem.hpp"
#include "trimul/trimul.h"

namespace trimul::core {

/// Memory that a tensor or buffer touches, for the aliasing rules: [begin, end), empty when begin == end.
struct ByteRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  [[nodiscard]] bool intersects(const ByteRange& other) const {
    return begin < other.end && other.begin < end && begin != end && other.begin != other.end;
  }
};

/// One number a dimension.
using Dims = InlineVector<std::int64_t, TRIMUL_MAX_NDIM>;

/// A caller's tensor whose fields are well formed: known dtype, device, non-negative sizes, element-aligned pointer, every
/// byte offset in 64 bits. Strides are always filled in.
struct TensorView {
  const char* name = "";  // as the contract calls it: "x", "mask", "p_in_weight"; lives as long as the view
  void* data = nullptr;
  Device device;
  DType dtype = DType::kF32;
  Dims sizes;    // elements
  Dims strides;  // elements

  [[nodiscard]] std::int64_t ndim() const { return static_cast<std::int64_t>(sizes.size()); }
  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] bool is_contiguous() const;
  [[nodiscard]] ByteRange bytes() const;
  [[nodiscard]] std::string shape_text() const;  // "[2, 256, 256, 128]"
};

/// Throws INVALID_ARGUMENT naming the tensor for NULL, unknown dtype or device, bad rank, negative or overflowing sizes, NULL data
/// with elements, misaligned data.
TensorView view_tensor(const char* name, const trimul_tensor* tensor);

/// The mask of a call: element (b, i, j) is data[batch_offset(b) + i * stride_i + j * stride_j].
struct MaskView {
  const void* data = nullptr;
  DType dtype = DType::kBool;
  std::int64_t stride_i = 0;  // elements
  std::int64_t stride_j = 0;  // elements
  int num_leading = 0;
  std::array<std::int64_t, TRIMUL_MAX_NDIM> leading_sizes{};    // x's leading dimensions, outermost first
  std::array<std::int64_t, TRIMUL_MAX_NDIM> leading_strides{};  // elements, 0 where the mask is broadcast

  [[nodiscard]] std::int64_t batch_offset(std::int64_t sample) const {
    std::int64_t offset = 0;
    for (int d = num_leading - 1; d >= 0; --d) {
      offset += sample % leading_sizes[static_cast<std::size_t>(d)] * leading_strides[static_cast<std::size_t>(d)];
      sample /= leading_sizes[static_cast<std::size_t>(d)];
    }
    return offset;
  }
};

/// The twelve parameters after validation; absent ones are empty.
struct Parameters {
  std::optional<TensorView> norm_in_weight, norm_in_bias;
  TensorView p_in_weight;
  std::optional<TensorView> p_in_bias;
  TensorView g_in_weight;
  std::optional<TensorView> g_in_bias;
  std::optional<TensorView> norm_out_weight, norm_out_bias;
  TensorView p_out_weight;
  std::optional<TensorView> p_out_bias;
  TensorView g_out_weight;
  std::optional<TensorView> g_out_bias;

  [[nodiscard]] bool has_in_bias() const { return p_in_bias.has_value() || g_in_bias.has_value(); }
  [[nodiscard]] bool has_out_bias() const { return p_out_bias.has_value() || g_out_bias.has_value(); }
  [[nodiscard]] InlineVector<const TensorView*, 12> present() const;
};

}  // namespace trimul::core
