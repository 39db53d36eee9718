// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm80/mask_scale.hpp"

#include "core/checked.hpp"
#include "cuda/common/mask.cuh"
#include "cuda/sm80/variants.hpp"

namespace trimul::cuda::sm80 {
namespace {

constexpr int kMostExponent = 100;
constexpr int kRowWarps = 8;      // of a block: a token each
constexpr int kColumnWarps = 32;  // of a block: of the same 32 tokens, each every 32nd row

__device__ float magnitude(const MaskParams& mask, std::int64_t index) {
  const float value = fabsf(mask_factor(mask.dtype, load_mask_bits(mask, index)));
  return isfinite(value) ? value : 0.0F;
}

__device__ float scale_of(float largest) {
  return largest == 0.0F ? 1.0F : ldexpf(1.0F, -min(max(ilogbf(largest), -kMostExponent), kMostExponent));
}

/// The largest of what a thread takes of its line of the mask: elements first, first + step, ...
__device__ float largest_of(const MaskScaleParams& p, std::int64_t begin, std::int64_t stride, std::int64_t first, std::int64_t step) {
  float largest = 0.0F;
#pragma unroll 8
  for (std::int64_t k = first; k < p.tokens; k += step) largest = fmaxf(largest, magnitude(p.mask, begin + k * stride));
  return largest;
}

__global__ void __launch_bounds__(32 * kRowWarps) sm80_mask_row_scale_kernel(const __grid_constant__ MaskScaleParams p) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (std::int64_t line = std::int64_t{blockIdx.x} * kRowWarps + threadIdx.x / 32; line < p.batch * p.n_pad;
       line += std::int64_t{gridDim.x} * kRowWarps) {
    const std::int64_t sample = line / p.n_pad;
    const std::int64_t token = line - sample * p.n_pad;
    float largest = 0.0F;
    if (token < p.tokens) largest = largest_of(p, mask_sample_offset(p.mask, sample) + token * p.mask.stride_i, p.mask.stride_j, lane, 32);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, step));
    if (lane == 0) p.scale[line] = scale_of(largest);
  }
}

__global__ void __launch_bounds__(32 * kColumnWarps) sm80_mask_column_scale_kernel(const __grid_constant__ MaskScaleParams p) {
  __shared__ float parts[kColumnWarps][32];
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const std::int64_t groups = (p.n_pad + 31) / 32;
  for (std::int64_t group = blockIdx.x; group < p.batch * groups; group += gridDim.x) {
    const std::int64_t sample = group / groups;
    const std::int64_t token = (group - sample * groups) * 32 + lane;
    float largest = 0.0F;
    if (token < p.tokens)
      largest = largest_of(p, mask_sample_offset(p.mask, sample) + token * p.mask.stride_j, p.mask.stride_i, warp, kColumnWarps);
    parts[warp][lane] = largest;
    __syncthreads();
    if (warp == 0) {
#pragma unroll
      for (int k = 1; k < kColumnWarps; ++k) largest = fmaxf(largest, parts[k][lane]);
      if (token < p.n_pad) p.scale[sample * p.n_pad + token] = scale_of(largest);
    }
    __syncthreads();
  }
}

}  // namespace

void launch_mask_scale(const MaskScaleParams& params, bool incoming, Chain& chain) {
  if (incoming) {
    const std::int64_t groups = params.batch * core::ceil_div(params.n_pad, 32);
    chain.add(sm80_mask_column_scale_kernel,
              {.blocks = grid_blocks(groups), .threads = 32 * kColumnWarps, .smem_bytes = 0, .overlaps = false}, params);
  } else {
    const std::int64_t blocks = core::ceil_div(params.batch * params.n_pad, kRowWarps);
    chain.add(sm80_mask_row_scale_kernel, {.blocks = grid_blocks(blocks), .threads = 32 * kRowWarps, .smem_bytes = 0, .overlaps = false},
              params);
  }
}

}  // namespace trimul::cuda::sm80
