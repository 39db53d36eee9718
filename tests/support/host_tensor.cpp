// SPDX-License-Identifier: Apache-2.0
#include "support/host_tensor.hpp"

#include <cstring>
#include <utility>

namespace trimul::testing {
namespace {

std::int64_t lowest_offset(const Sizes& sizes, const Sizes& strides) {
  std::int64_t low = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d)
    if (strides[d] < 0) low += (sizes[d] - 1) * strides[d];
  return low;
}

std::int64_t reached_elements(const Sizes& sizes, const Sizes& strides) {
  if (product(sizes) == 0) return 0;
  std::int64_t high = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d)
    if (strides[d] > 0) high += (sizes[d] - 1) * strides[d];
  return high - lowest_offset(sizes, strides) + 1;
}

}  // namespace

std::int64_t product(std::span<const std::int64_t> sizes) {
  std::int64_t total = 1;
  for (const std::int64_t size : sizes) total *= size;
  return total;
}

Sizes contiguous_strides(const Sizes& sizes) {
  Sizes strides(sizes.size(), 1);
  for (std::size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
  return strides;
}

HostTensor::HostTensor(DType dtype, Sizes sizes, std::int64_t offset) : HostTensor(dtype, sizes, contiguous_strides(sizes), offset) {}

HostTensor::HostTensor(DType dtype, Sizes sizes, Sizes strides, std::int64_t offset)
    : dtype_(dtype), sizes_(std::move(sizes)), strides_(std::move(strides)) {
  const std::size_t element_bytes = core::dtype_bytes(dtype);
  origin_ = product(sizes_) == 0 ? 0 : -lowest_offset(sizes_, strides_);
  buffer_ = GuardedBuffer(static_cast<std::size_t>(reached_elements(sizes_, strides_)) * element_bytes,
                          static_cast<std::size_t>(offset) * element_bytes);
}

std::int64_t HostTensor::offset_of(const Sizes& index) const {
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < index.size(); ++d) offset += index[d] * strides_[d];
  return offset;
}

double HostTensor::at(const Sizes& index) const {
  return core::load_as_double(data(), dtype_, offset_of(index));
}

void HostTensor::set(const Sizes& index, double value) {
  store_value(data(), dtype_, offset_of(index), value);
}

void HostTensor::fill(const std::function<double()>& next) {
  for_each_index(sizes_, [&](const Sizes& index) { set(index, next()); });
}

std::vector<double> HostTensor::values() const {
  std::vector<double> list;
  list.reserve(static_cast<std::size_t>(elements()));
  for_each_index(sizes_, [&](const Sizes& index) { list.push_back(at(index)); });
  return list;
}

trimul_tensor HostTensor::view() const {
  trimul_tensor tensor{};
  tensor.data = data();
  tensor.device = {TRIMUL_CPU, 0};
  tensor.ndim = static_cast<std::int32_t>(sizes_.size());
  tensor.dtype = static_cast<std::int32_t>(dtype_);
  tensor.sizes = sizes_.data();
  tensor.strides = strides_.data();
  return tensor;
}

void for_each_index(const Sizes& sizes, const std::function<void(const Sizes&)>& body) {
  if (product(sizes) == 0) return;
  Sizes index(sizes.size(), 0);
  for (;;) {
    body(index);
    std::size_t d = sizes.size();
    while (d > 0 && ++index[d - 1] == sizes[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

void store_value(void* data, DType dtype, std::int64_t index, double value) {
  if (core::is_floating(dtype)) return core::store_from_double(data, dtype, index, value);
  auto* bytes = static_cast<std::byte*>(data) + index * static_cast<std::int64_t>(core::dtype_bytes(dtype));
  const auto write = [bytes](auto stored) { std::memcpy(bytes, &stored, sizeof(stored)); };
  switch (dtype) {
    case DType::kBool: write(static_cast<std::uint8_t>(value != 0.0 ? 1 : 0)); break;
    case DType::kU8: write(static_cast<std::uint8_t>(value)); break;
    case DType::kI8: write(static_cast<std::int8_t>(value)); break;
    case DType::kI16: write(static_cast<std::int16_t>(value)); break;
    case DType::kI32: write(static_cast<std::int32_t>(value)); break;
    default: write(static_cast<std::int64_t>(value)); break;
  }
}

double rounded_to(DType dtype, double value) {
  double stored[1] = {0.0};
  core::store_from_double(stored, dtype, 0, value);
  return core::load_as_double(stored, dtype, 0);
}

}  // namespace trimul::testing
