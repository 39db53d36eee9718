// SPDX-License-Identifier: Apache-2.0
#include "cuda/host/mask_params.hpp"

#include <utility>
#include <vector>

#include "core/error.hpp"

namespace trimul::cuda {

MaskParams pack_mask(const core::MaskView& mask, const core::Problem& problem, bool is_flat) {
  MaskParams packed;
  packed.data = mask.data;
  packed.dtype = mask.dtype;
  packed.element_bytes = static_cast<std::int32_t>(core::dtype_bytes(mask.dtype));
  packed.stride_i = mask.stride_i;
  packed.stride_j = mask.stride_j;
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // size, stride; outermost first
  for (int d = 0; d < mask.num_leading; ++d) {
    const std::int64_t size = mask.leading_sizes[static_cast<std::size_t>(d)];
    const std::int64_t stride = mask.leading_strides[static_cast<std::size_t>(d)];
    if (size == 1) continue;
    if (!dims.empty() && dims.back().second == stride * size)
      dims.back() = {dims.back().first * size, stride};
    else
      dims.emplace_back(size, stride);
  }
  if (dims.empty()) dims.emplace_back(1, 0);
  if (dims.size() > kMaxMaskDims)
    throw core::Error(
        core::StatusCode::kUnsupported,
        core::text("mask: its ", dims.size(), " leading dimensions have independent strides, at most ", kMaxMaskDims, " are served"));
  packed.num_leading = static_cast<std::int32_t>(dims.size());
  for (std::size_t d = 0; d < dims.size(); ++d) {
    packed.leading_sizes[d] = static_cast<std::uint32_t>(dims[d].first);
    packed.leading_strides[d] = dims[d].second;
  }
  const bool samples_follow = packed.num_leading == 1 && (dims[0].first == 1 || dims[0].second == problem.pairs());
  packed.is_linear = is_flat && samples_follow && mask.stride_j == 1 && mask.stride_i == problem.tokens;
  return packed;
}

}  // namespace trimul::cuda
