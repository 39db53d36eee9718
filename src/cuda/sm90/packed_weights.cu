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

constexpr int kPackThreads = 128;

/// Every thread has one unit, so that a call waits for memory once: eight elements of a row of a matrix, or one of a vector.
template <int kWidth>
struct Packing {
  static constexpr PackedLayout kLayout{kWidth};
  static constexpr int kUnitElements = 8;
  static constexpr int kUnitsPerRow = kWidth / kUnitElements;
  static constexpr int kInRows = 4 * kWidth;
  static constexpr int kMatrixUnits = (kInRows + 2 * kWidth) * kUnitsPerRow;
  static constexpr int kVectorUnits = kInRows + 4 * kWidth;
  static constexpr int kBlocks = (kMatrixUnits + kVectorUnits + kPackThreads - 1) / kPackThreads;

  /// The rows of the input weights, of p_out_weight and of g_out_weight follow one another in the packed buffer.
  static __device__ void pack_matrix_unit(const PackParams& p, int unit) {
    const int row = unit / kUnitsPerRow;
    const int column = unit % kUnitsPerRow * kUnitElements;
    const Source* source = &p.from.p_out_weight;
    int from_row = row - kInRows;
    if (row < kInRows) {
      source = is_gate_row(row) ? &p.from.g_in_weight : &p.from.p_in_weight;
      from_row = source_row(row);
    } else if (from_row >= kWidth) {
      source = &p.from.g_out_weight;
      from_row -= kWidth;
    }
    const Run<kUnitElements> run = load<kUnitElements>(*source, from_row * kWidth + column, 0.0F);
    alignas(16) __nv_bfloat16 packed[kUnitElements];
#pragma unroll
    for (int i = 0; i < kUnitElements; ++i) packed[i] = halved(run.values[i]);
    reinterpret_cast<uint4*>(p.packed + kLayout.in_weight)[unit] = *reinterpret_cast<const uint4*>(packed);
  }
  static_assert(kLayout.p_out_weight == kLayout.in_weight + std::size_t{kInRows} * kWidth * 2 &&
                kLayout.g_out_weight == kLayout.p_out_weight + std::size_t{kWidth} * kWidth * 2);

  /// The biases of the input projection, both of the output projection, then the pairs of the two norms.
  static __device__ void pack_vector_unit(const PackParams& p, int unit) {
    const auto load_one = [](const Source& source, int index, float absent) { return load<1>(source, index, absent).values[0]; };
    if (unit < kInRows) {
      const float bias = load_one(is_gate_row(unit) ? p.from.g_in_bias : p.from.p_in_bias, source_row(unit), 0.0F);
      reinterpret_cast<float*>(p.packed + kLayout.in_bias)[unit] = 0.5F * bias;
      return;
    }
    unit -= kInRows;
    if (unit < 2 * kWidth) {
      const float bias = load_one(unit < kWidth ? p.from.p_out_bias : p.from.g_out_bias, unit % kWidth, 0.0F);
      reinterpret_cast<float*>(p.packed + kLayout.out_bias)[unit] = 0.5F * bias;
      return;
    }
    unit -= 2 * kWidth;
    const bool is_in = unit < kWidth;
    const int k = is_in ? unit : unit - kWidth;
    reinterpret_cast<float2*>(p.packed + (is_in ? kLayout.norm_in : kLayout.norm_out))[k] =
        make_float2(load_one(is_in ? p.from.norm_in_weight : p.from.norm_out_weight, k, 1.0F),
                    load_one(is_in ? p.from.norm_in_bias : p.from.norm_out_bias, k, 0.0F));
  }
};

template <int kWidth>
__global__ void __launch_bounds__(kPackThreads) pack_weights_kernel(const __grid_constant__ PackParams p) {
  // Only the input projection's set-up may run beside this kernel: its griddepcontrol.wait, before its first read, is for this kernel's
  // end, and it lets its own successor start only behind that wait, as the contraction does. The output projection, which reads weights
  // before it waits, therefore starts when this kernel has long ended. Kernels that are launched ordinarily wait for it in any case.
  ptx::griddepcontrol_launch_dependents();
  using Packing = Packing<kWidth>;
  const int unit = static_cast<int>(blockIdx.x * kPackThreads + threadIdx.x);
  if (unit < Packing::kMatrixUnits)
    Packing::pack_matrix_unit(p, unit);
  else if (unit - Packing::kMatrixUnits < Packing::kVectorUnits)
    Packing::pack_vector_unit(p, unit - Packing::kMatrixUnits);
}

template <int kWidth>
void add_packing(const PackParams& params, Chain& chain) {
  // Without overlap: kernels before it on the stream may still be reading what this memory holds.
  chain.add(pack_weights_kernel<kWidth>, {.blocks = Packing<kWidth>::kBlocks, .threads = kPackThreads, .smem_bytes = 0, .overlaps = false},
            params);
}

}  // namespace

Sm90PackedWeights::Sm90PackedWeights(const core::Parameters& parameters, int width, const core::Device& device, void* memory, Chain& chain)
    : layout_(static_cast<std::size_t>(width)) {
  if (memory == nullptr) memory = own_.emplace(device, layout_.bytes).data();
  data_ = static_cast<std::byte*>(memory);
  const PackParams params{.from = sources_of(parameters), .packed = data_};
  (width == kWideWidth ? add_packing<kWideWidth> : add_packing<kPairWidth>)(params, chain);
}

}  // namespace trimul::cuda::sm90
