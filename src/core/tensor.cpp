// SPDX-License-Identifier: Apache-2.0
#include "core/tensor.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace trimul::core {
namespace {

bool has_zero_size(const Dims& sizes) {
  return std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
}

/// The bytes that a strided view with elements reaches; nothing when they do not lie in the address space.
std::optional<ByteRange> reached_bytes(const TensorView& view) {
  const auto element_bytes = static_cast<std::int64_t>(dtype_bytes(view.dtype));
  auto begin = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(view.data));
  std::int64_t end = 0;
  if (begin < 0 || __builtin_add_overflow(begin, element_bytes, &end)) return std::nullopt;
  for (std::size_t d = 0; d < view.sizes.size(); ++d) {
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(view.sizes[d] - 1, view.strides[d], &reach)) return std::nullopt;
    if (__builtin_mul_overflow(reach, element_bytes, &reach)) return std::nullopt;
    std::int64_t& bound = reach < 0 ? begin : end;
    if (__builtin_add_overflow(bound, reach, &bound) || bound < 0) return std::nullopt;
  }
  return ByteRange{static_cast<std::uintptr_t>(begin), static_cast<std::uintptr_t>(end)};
}

void fill_contiguous_strides(TensorView& view) {
  view.strides.assign(view.sizes.size(), 1);
  if (has_zero_size(view.sizes)) return;  // nothing to stride over, and the other sizes may be anything
  for (std::size_t d = view.sizes.size(); d-- > 1;) view.strides[d - 1] = view.strides[d] * view.sizes[d];
}

void check_element_count(const TensorView& view) {
  if (has_zero_size(view.sizes)) return;
  auto product = static_cast<std::int64_t>(dtype_bytes(view.dtype));
  for (const std::int64_t size : view.sizes)
    if (__builtin_mul_overflow(product, size, &product))
      fail_invalid(view.name, ": shape ", view.shape_text(), " does not fit into 64-bit byte counts");
}

}  // namespace

std::int64_t TensorView::elements() const {
  if (has_zero_size(sizes)) return 0;
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) product *= size;
  return product;
}

bool TensorView::is_contiguous() const {
  if (elements() == 0) return true;
  std::int64_t expected = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] != 1 && strides[d] != expected) return false;
    expected *= sizes[d];
  }
  return true;
}

ByteRange TensorView::bytes() const {
  if (elements() == 0) return {};
  const auto reached = reached_bytes(*this);
  if (!reached) fail_invalid(name, ": strides reach beyond the address space");
  return *reached;
}

std::string TensorView::shape_text() const {
  std::string line = "[";
  for (std::size_t d = 0; d < sizes.size(); ++d) line += (d == 0 ? "" : ", ") + std::to_string(sizes[d]);
  return line + "]";
}

TensorView view_tensor(const char* name, const trimul_tensor* tensor) {
  if (tensor == nullptr) fail_invalid(name, ": is missing, expected a tensor");
  TensorView view;
  view.name = name;
  view.data = tensor->data;
  view.dtype = static_cast<DType>(tensor->dtype);
  const std::size_t element_bytes = dtype_bytes(view.dtype);
  if (element_bytes == 0) fail_invalid(name, ": dtype is ", tensor->dtype, ", expected a trimul_dtype (1 to 10)");
  if (tensor->device.type != TRIMUL_CPU && tensor->device.type != TRIMUL_CUDA)
    fail_invalid(name, ": device type is ", tensor->device.type, ", expected 1 (CPU) or 2 (CUDA)");
  view.device = {static_cast<DeviceType>(tensor->device.type), tensor->device.index};
  if (tensor->ndim < 0 || tensor->ndim > TRIMUL_MAX_NDIM)
    fail_invalid(name, ": number of dimensions is ", tensor->ndim, ", expected 0 to ", static_cast<int>(TRIMUL_MAX_NDIM));
  if (tensor->ndim > 0 && tensor->sizes == nullptr) fail_invalid(name, ": sizes is NULL, expected ", tensor->ndim, " numbers");
  for (std::int32_t d = 0; d < tensor->ndim; ++d) view.sizes.push_back(tensor->sizes[d]);
  for (std::size_t d = 0; d < view.sizes.size(); ++d)
    if (view.sizes[d] < 0) fail_invalid(name, ": dimension ", d, " is ", view.sizes[d], ", expected at least 0");
  check_element_count(view);
  if (tensor->strides != nullptr)
    for (std::int32_t d = 0; d < tensor->ndim; ++d) view.strides.push_back(tensor->strides[d]);
  else
    fill_contiguous_strides(view);
  if (view.elements() > 0) {
    if (view.data == nullptr) fail_invalid(name, ": data is NULL, expected ", view.elements(), " elements");
    if (reinterpret_cast<std::uintptr_t>(view.data) % element_bytes != 0)
      fail_invalid(name, ": data is not aligned to its element size, expected a multiple of ", element_bytes, " bytes");
    if (!reached_bytes(view)) fail_invalid(name, ": strides reach beyond the address space");
  }
  return view;
}

InlineVector<const TensorView*, 12> Parameters::present() const {
  InlineVector<const TensorView*, 12> list;
  for (const auto* optional :
       {&norm_in_weight, &norm_in_bias, &p_in_bias, &g_in_bias, &norm_out_weight, &norm_out_bias, &p_out_bias, &g_out_bias})
    if (optional->has_value()) list.push_back(&**optional);
  for (const auto* required : {&p_in_weight, &g_in_weight, &p_out_weight, &g_out_weight}) list.push_back(required);
  return list;
}

}  // namespace trimul::core
