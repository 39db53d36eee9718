// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/packed_weights.hpp"

#include "cuda/common/parameter_source.cuh"
#include "cuda/ptx/grid.cuh"

namespace trimul::cuda::sm90 {
namespace {

struct PackParams {
  ParameterSources from;
  std::byte* packed;
};

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

// Every thread has one unit, so that a call waits for memory once: eight elements of a row of a matrix, or one of a vector.
constexpr int kUnitElements = 8;
constexpr int kUnitsPerRow = kPairWidth / kUnitElements;
constexpr int kInRows = 4 * kHiddenWidth;
constexpr int kMatrixUnits = (kInRows + 2 * kPairWidth) * kUnitsPerRow;
constexpr int kVectorUnits = kInRows + 2 * kPairWidth + kPairWidth + kHiddenWidth;
constexpr int kPackThreads = 128;
constexpr int kPackBlocks = (kMatrixUnits + kVectorUnits + kPackThreads - 1) / kPackThreads;
static_assert(kPairWidth == kHiddenWidth);  // rows of p_out_weight are as long as those of the others

/// The rows of the input weights, of p_out_weight and of g_out_weight follow one another in the packed buffer.
__device__ void pack_matrix_unit(const PackParams& p, int unit) {
  const int row = unit / kUnitsPerRow;
  const int column = unit % kUnitsPerRow * kUnitElements;
  const Source* source = &p.from.p_out_weight;
  int from_row = row - kInRows;
  if (row < kInRows) {
    source = is_gate_row(row) ? &p.from.g_in_weight : &p.from.p_in_weight;
    from_row = source_row(row);
  } else if (from_row >= kPairWidth) {
    source = &p.from.g_out_weight;
    from_row -= kPairWidth;
  }
  const Run<kUnitElements> run = load<kUnitElements>(*source, from_row * kPairWidth + column, 0.0F);
  alignas(16) __nv_bfloat16 packed[kUnitElements];
#pragma unroll
  for (int i = 0; i < kUnitElements; ++i) packed[i] = halved(run.values[i]);
  reinterpret_cast<uint4*>(p.packed + PackedLayout::kInWeight)[unit] = *reinterpret_cast<const uint4*>(packed);
}
static_assert(PackedLayout::kPOutWeight == PackedLayout::kInWeight + std::size_t{kInRows} * kPairWidth * 2 &&
              PackedLayout::kGOutWeight == PackedLayout::kPOutWeight + std::size_t{kPairWidth} * kPairWidth * 2);

/// The biases of the input projection, both of the output projection, then the pairs of the two norms.
__device__ void pack_vector_unit(const PackParams& p, int unit) {
  const auto load_one = [](const Source& source, int index, float absent) { return load<1>(source, index, absent).values[0]; };
  if (unit < kInRows) {
    const float bias = load_one(is_gate_row(unit) ? p.from.g_in_bias : p.from.p_in_bias, source_row(unit), 0.0F);
    reinterpret_cast<float*>(p.packed + PackedLayout::kInBias)[unit] = 0.5F * bias;
    return;
  }
  unit -= kInRows;
  if (unit < 2 * kPairWidth) {
    const float bias = load_one(unit < kPairWidth ? p.from.p_out_bias : p.from.g_out_bias, unit % kPairWidth, 0.0F);
    reinterpret_cast<float*>(p.packed + PackedLayout::kOutBias)[unit] = 0.5F * bias;
    return;
  }
  unit -= 2 * kPairWidth;
  const bool is_in = unit < kPairWidth;
  const int k = is_in ? unit : unit - kPairWidth;
  reinterpret_cast<float2*>(p.packed + (is_in ? PackedLayout::kNormIn : PackedLayout::kNormOut))[k] =
      make_float2(load_one(is_in ? p.from.norm_in_weight : p.from.norm_out_weight, k, 1.0F),
                  load_one(is_in ? p.from.norm_in_bias : p.from.norm_out_bias, k, 0.0F));
}

__global__ void __launch_bounds__(kPackThreads) pack_weights_kernel(const __grid_constant__ PackParams p) {
  // Only the input projection's set-up may run beside this kernel: its griddepcontrol.wait, before its first read, is for this kernel's
  // end, and it lets its own successor start only behind that wait, as the contraction does. The output projection, which reads weights
  // before it waits, therefore starts when this kernel has long ended. Kernels that are launched ordinarily wait for it in any case.
  ptx::griddepcontrol_launch_dependents();
  const int unit = static_cast<int>(blockIdx.x * kPackThreads + threadIdx.x);
  if (unit < kMatrixUnits)
    pack_matrix_unit(p, unit);
  else if (unit - kMatrixUnits < kVectorUnits)
    pack_vector_unit(p, unit - kMatrixUnits);
}

}  // namespace

Sm90PackedWeights::Sm90PackedWeights(const core::Parameters& parameters, const core::Device& device, void* memory, Chain& chain) {
  if (memory == nullptr) memory = own_.emplace(device, PackedLayout::kBytes).data();
  data_ = static_cast<std::byte*>(memory);
  const PackParams params{.from = sources_of(parameters), .packed = data_};
  // Without overlap: kernels before it on the stream may still be reading what this memory holds.
  chain.add(pack_weights_kernel, {.blocks = kPackBlocks, .threads = kPackThreads, .smem_bytes = 0, .overlaps = false}, params);
}

}  // namespace trimul::cuda::sm90
