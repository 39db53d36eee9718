// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/packed_weights.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/ptx/grid.cuh"

namespace trimul::cuda::sm90 {
namespace {

/// A contiguous parameter of any float dtype; data null: absent.
struct Source {
  const void* data = nullptr;
  core::DType dtype = core::DType::kF32;
};

struct PackParams {
  Source norm_in_weight, norm_in_bias, p_in_weight, p_in_bias, g_in_weight, g_in_bias;
  Source norm_out_weight, norm_out_bias, p_out_weight, p_out_bias, g_out_weight, g_out_bias;
  std::byte* packed;
};

__device__ float load(const Source& source, int index, float absent) {
  if (source.data == nullptr) return absent;
  switch (source.dtype) {
    case core::DType::kF64: return static_cast<float>(static_cast<const double*>(source.data)[index]);
    case core::DType::kF16: return __half2float(static_cast<const __half*>(source.data)[index]);
    case core::DType::kBf16: return __bfloat162float(static_cast<const __nv_bfloat16*>(source.data)[index]);
    default: return static_cast<const float*>(source.data)[index];
  }
}

/// Rounded to bf16 first, so that halving changes no bit of the mantissa.
__device__ __nv_bfloat16 halved(float value) {
  return __float2bfloat16_rn(0.5F * __bfloat162float(__float2bfloat16_rn(value)));
}

/// Row of the interleaved weights -> row of p_in or g_in.
__device__ int source_row(int row) {
  return row / 16 * 8 + row % 8;
}
__device__ bool is_gate_row(int row) {
  return row % 16 >= 8;
}

__global__ void pack_weights_kernel(const __grid_constant__ PackParams p) {
  // Only the input projection's set-up may run beside this kernel: its griddepcontrol.wait, before its first read, is for this kernel's
  // end, and it lets its own successor start only behind that wait, as the contraction does. The output projection, which reads weights
  // before it waits, therefore starts when this kernel has long ended. Kernels that are launched ordinarily wait for it in any case.
  ptx::griddepcontrol_launch_dependents();
  const int first = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int step = static_cast<int>(gridDim.x * blockDim.x);
  auto* in_weight = reinterpret_cast<__nv_bfloat16*>(p.packed + PackedLayout::kInWeight);
  for (int k = first; k < 4 * kHiddenWidth * kPairWidth; k += step) {
    const int row = k / kPairWidth;
    in_weight[k] = halved(load(is_gate_row(row) ? p.g_in_weight : p.p_in_weight, source_row(row) * kPairWidth + k % kPairWidth, 0.0F));
  }
  auto* p_out_weight = reinterpret_cast<__nv_bfloat16*>(p.packed + PackedLayout::kPOutWeight);
  for (int k = first; k < kPairWidth * kHiddenWidth; k += step) p_out_weight[k] = halved(load(p.p_out_weight, k, 0.0F));
  auto* g_out_weight = reinterpret_cast<__nv_bfloat16*>(p.packed + PackedLayout::kGOutWeight);
  for (int k = first; k < kPairWidth * kPairWidth; k += step) g_out_weight[k] = halved(load(p.g_out_weight, k, 0.0F));
  auto* in_bias = reinterpret_cast<float*>(p.packed + PackedLayout::kInBias);
  for (int row = first; row < 4 * kHiddenWidth; row += step)
    in_bias[row] = 0.5F * load(is_gate_row(row) ? p.g_in_bias : p.p_in_bias, source_row(row), 0.0F);
  auto* norm_in = reinterpret_cast<float2*>(p.packed + PackedLayout::kNormIn);
  auto* out_bias = reinterpret_cast<float*>(p.packed + PackedLayout::kOutBias);
  for (int k = first; k < kPairWidth; k += step) {
    norm_in[k] = make_float2(load(p.norm_in_weight, k, 1.0F), load(p.norm_in_bias, k, 0.0F));
    out_bias[k] = 0.5F * load(p.p_out_bias, k, 0.0F);
    out_bias[kPairWidth + k] = 0.5F * load(p.g_out_bias, k, 0.0F);
  }
  auto* norm_out = reinterpret_cast<float2*>(p.packed + PackedLayout::kNormOut);
  for (int k = first; k < kHiddenWidth; k += step)
    norm_out[k] = make_float2(load(p.norm_out_weight, k, 1.0F), load(p.norm_out_bias, k, 0.0F));
}

Source source_of(const core::TensorView& view) {
  return {view.data, view.dtype};
}
Source source_of(const std::optional<core::TensorView>& view) {
  return view ? source_of(*view) : Source{};
}

}  // namespace

Sm90PackedWeights::Sm90PackedWeights(const core::Parameters& parameters, const core::Device& device, void* memory, Chain& chain) {
  if (memory == nullptr) memory = own_.emplace(device, PackedLayout::kBytes).data();
  data_ = static_cast<std::byte*>(memory);
  const PackParams params{
      .norm_in_weight = source_of(parameters.norm_in_weight),
      .norm_in_bias = source_of(parameters.norm_in_bias),
      .p_in_weight = source_of(parameters.p_in_weight),
      .p_in_bias = source_of(parameters.p_in_bias),
      .g_in_weight = source_of(parameters.g_in_weight),
      .g_in_bias = source_of(parameters.g_in_bias),
      .norm_out_weight = source_of(parameters.norm_out_weight),
      .norm_out_bias = source_of(parameters.norm_out_bias),
      .p_out_weight = source_of(parameters.p_out_weight),
      .p_out_bias = source_of(parameters.p_out_bias),
      .g_out_weight = source_of(parameters.g_out_weight),
      .g_out_bias = source_of(parameters.g_out_bias),
      .packed = data_,
  };
  // Without overlap: kernels before it on the stream may still be reading what this memory holds.
  chain.add(pack_weights_kernel, {.blocks = 128, .threads = 256, .smem_bytes = 0, .overlaps = false}, params);
}

}  // namespace trimul::cuda::sm90
