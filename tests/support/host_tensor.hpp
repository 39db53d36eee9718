// SPDX-License-Identifier: Apache-2.0
// A tensor that owns guarded memory, of any dtype and any strides.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/dtype.hpp"
#include "support/guarded_buffer.hpp"
#include "trimul/trimul.h"

namespace trimul::testing {

using core::DType;
using Sizes = std::vector<std::int64_t>;

std::int64_t product(std::span<const std::int64_t> sizes);
Sizes contiguous_strides(const Sizes& sizes);

class HostTensor {
 public:
  HostTensor() = default;
  /// Contiguous, `offset` elements behind a 256-byte boundary.
  HostTensor(DType dtype, Sizes sizes, std::int64_t offset = 0);
  /// Any strides in elements; memory covers exactly what they reach.
  HostTensor(DType dtype, Sizes sizes, Sizes strides, std::int64_t offset);

  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] const Sizes& sizes() const { return sizes_; }
  [[nodiscard]] std::int64_t elements() const { return product(sizes_); }
  [[nodiscard]] const GuardedBuffer& buffer() const { return buffer_; }
  /// Element [0, ..., 0].
  [[nodiscard]] void* data() const { return buffer_.data() + origin_ * static_cast<std::int64_t>(core::dtype_bytes(dtype_)); }

  [[nodiscard]] double at(const Sizes& index) const;
  void set(const Sizes& index, double value);  // integers are truncated, floats rounded once
  /// Elements in row-major order of the indices, whatever the strides.
  void fill(const std::function<double()>& next);
  [[nodiscard]] std::vector<double> values() const;

  /// The C view; valid while this tensor lives and does not move.
  [[nodiscard]] trimul_tensor view() const;

 private:
  [[nodiscard]] std::int64_t offset_of(const Sizes& index) const;

  DType dtype_ = DType::kF32;
  Sizes sizes_;
  Sizes strides_;
  std::int64_t origin_ = 0;  // elements from the start of the buffer, > 0 where strides are negative
  GuardedBuffer buffer_;
};

/// Calls `body(index)` for every index of `sizes`, the last dimension fastest.
void for_each_index(const Sizes& sizes, const std::function<void(const Sizes& index)>& body);

/// Stores into any dtype.
void store_value(void* data, DType dtype, std::int64_t index, double value);
/// `value` as the dtype holds it.
double rounded_to(DType dtype, double value);

}  // namespace trimul::testing
