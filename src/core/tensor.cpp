// SPDX-License-Identifier: Apache-2.0
#include "core/tensor.hpp"

#include "core/checked.hpp"
#include "core/error.hpp"

namespace trimul::core {
namespace {

/// Smallest and largest element offset a strided view reaches; nothing when one of them, in bytes, does not fit.
std::optional<std::pair<std::int64_t, std::int64_t>> element_span(const TensorView& view) {
  std::int64_t low = 0;
  std::int64_t high = 0;
  for (std::size_t d = 0; d < view.sizes.size(); ++d) {
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(view.sizes[d] - 1, view.strides[d], &reach)) return std::nullopt;
    std::int64_t& bound = reach < 0 ? low : high;
    if (__builtin_add_overflow(bound, reach, &bound)) return std::nullopt;
  }
  const auto element_bytes = static_cast<std::int64_t>(dtype_bytes(view.dtype));
  std::int64_t scaled = 0;
  if (__builtin_mul_overflow(low, element_bytes, &scaled) || __builtin_mul_overflow(high, element_bytes, &scaled)) return std::nullopt;
  return std::pair{low, high};
}

void fill_contiguous_strides(TensorView& view) {
  view.strides.assign(view.sizes.size(), 1);
  for (std::size_t d = view.sizes.size(); d-- > 1;)
    // A zero size makes every stride meaningless; 1 keeps the product from vanishing.
    view.strides[d - 1] = view.strides[d] * (view.sizes[d] == 0 ? 1 : view.sizes[d]);
}

void check_element_count(const TensorView& view) {
  std::int64_t product = static_cast<std::int64_t>(dtype_bytes(view.dtype));
  bool is_empty = false;
  for (const std::int64_t size : view.sizes) is_empty = is_empty || size == 0;
  for (const std::int64_t size : view.sizes)
    if (size != 0 && __builtin_mul_overflow(product, size, &product) && !is_empty)
      fail_invalid(view.name, ": shape ", view.shape_text(), " does not fit into 64-bit byte counts");
}

}  // namespace

std::int64_t TensorView::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) {
    if (size == 0) return 0;
    product *= size;
  }
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
  const auto span = element_span(*this);
  if (!span) fail_invalid(name, ": strides reach beyond 64-bit byte offsets");
  const auto element_bytes = static_cast<std::int64_t>(dtype_bytes(dtype));
  const auto origin = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data));
  return {static_cast<std::uintptr_t>(origin + span->first * element_bytes),
          static_cast<std::uintptr_t>(origin + (span->second + 1) * element_bytes)};
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
    if (!element_span(view)) fail_invalid(name, ": strides reach beyond 64-bit byte offsets");
  }
  return view;
}

std::vector<const TensorView*> Parameters::present() const {
  std::vector<const TensorView*> list;
  for (const auto* optional :
       {&norm_in_weight, &norm_in_bias, &p_in_bias, &g_in_bias, &norm_out_weight, &norm_out_bias, &p_out_bias, &g_out_bias})
    if (optional->has_value()) list.push_back(&**optional);
  for (const auto* required : {&p_in_weight, &g_in_weight, &p_out_weight, &g_out_weight}) list.push_back(required);
  return list;
}

}  // namespace trimul::core
