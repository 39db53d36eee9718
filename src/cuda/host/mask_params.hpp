// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/tensor.hpp"
#include "cuda/common/mask_params.hpp"

namespace trimul::cuda {

/// Merges leading dimensions that one stride serves. `is_flat`: tiles are flat runs of pairs (TileCopy::kFlat). UNSUPPORTED when more than
/// kMaxMaskDims dimensions remain.
MaskParams pack_mask(const core::MaskView& mask, const core::Problem& problem, bool is_flat);

}  // namespace trimul::cuda
