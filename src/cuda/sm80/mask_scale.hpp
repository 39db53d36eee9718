// SPDX-License-Identifier: Apache-2.0
// Powers of two that keep masked operands inside of fp16's range (arithmetic.hpp, is_scaled).
#pragma once

#include "cuda/common/mask_params.hpp"
#include "cuda/host/chain.hpp"

namespace trimul::cuda::sm80 {

struct MaskScaleParams {
  MaskParams mask;
  float* scale;  // [B][n_pad]
  std::int64_t batch;
  std::int64_t tokens;
  std::int64_t n_pad;
};

/// Adds to `chain` the kernel that finds, for every token of every sample, the 2^-k that brings the largest finite element of its row of
/// the mask (outgoing) or column (incoming) to [1, 2); 1 where all are zero, and behind the tokens. k is within 100. Those are the
/// elements that an operand's row has in a contraction, so that what one token's mask is does not cost another one's any bits. Throws
/// DEVICE_ERROR.
void launch_mask_scale(const MaskScaleParams& params, bool incoming, Chain& chain);

}  // namespace trimul::cuda::sm80
