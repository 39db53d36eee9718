// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm80/packed_weights.hpp"

#include <algorithm>

#include "cuda/sm80/pack_params.cuh"
#include "cuda/sm80/variants.hpp"

namespace trimul::cuda::sm80 {
namespace {

/// A matrix of [rows, width] and a row of it; no row: zeros.
struct MatrixRow {
  const Source* source;
  std::int64_t row;
  std::int64_t width;
  bool exists;
  bool is_gate;
  bool is_quad_ordered;
  bool is_halved;
};

/// Channel at place k of an operand in the order of fragment_rows.cuh: of 32 channels, chunk q and pair t of it hold chunk t's pair q.
__device__ std::int64_t quad_ordered(std::int64_t k) {
  return k / 32 * 32 + k / 2 % 4 * 8 + k / 8 % 4 * 2 + k % 2;
}

/// One 16-byte chunk: k from `first` on.
__device__ uint4 pack_chunk(Arithmetic arithmetic, const MatrixRow& from, std::int64_t first) {
  const int elements = kChunkBytes / operand_bytes(arithmetic);
  std::uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const std::int64_t column = from.is_quad_ordered ? quad_ordered(first + i) : first + i;
    if (i >= elements || !from.exists || column >= from.width) continue;
    const float value = load_parameter(*from.source, from.row * from.width + column, 0.0F);
    switch (arithmetic) {
      case Arithmetic::kBf16: {
        // Rounded first, so that halving changes no bit of the mantissa.
        const __nv_bfloat16 rounded = __float2bfloat16_rn(value);
        const __nv_bfloat16 stored = from.is_halved ? __float2bfloat16_rn(0.5F * __bfloat162float(rounded)) : rounded;
        words[i / 2] |= std::uint32_t{__bfloat16_as_ushort(stored)} << (i % 2 * 16);
        break;
      }
      case Arithmetic::kFp16: words[i / 2] |= std::uint32_t{__half_as_ushort(__float2half_rn(value))} << (i % 2 * 16); break;
      default: words[i % 4] = __float_as_uint(from.is_gate ? finite_weight(value) : value);
    }
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

/// Value or gate row of the input weights.
__device__ MatrixRow in_row(const PackParams& p, std::int64_t row) {
  const std::int64_t channel = row / 16 * 8 + row % 8;
  const bool is_gate = row % 16 >= 8;
  return {is_gate ? &p.from.g_in_weight : &p.from.p_in_weight,
          channel,
          p.c_z,
          channel < 2 * p.c_hidden,
          is_gate,
          p.layout.in_is_resident,
          p.layout.in_is_resident};
}

/// Chunks of the input weights, then of the output weights, in the order in which they lie.
__device__ void pack_matrix_chunk(const PackParams& p, std::int64_t chunk, std::int64_t in_images) {
  constexpr std::int64_t kInImageChunks = std::int64_t{kInChunkRows} * kChunksPerSlabRow;
  constexpr std::int64_t kOutImageChunks = std::int64_t{kOutChunkRows} * kChunksPerSlabRow;
  const bool is_in = chunk < in_images * kInImageChunks;
  const std::int64_t local = is_in ? chunk : chunk - in_images * kInImageChunks;
  const std::int64_t image_chunks = is_in ? kInImageChunks : kOutImageChunks;
  const std::int64_t image = local / image_chunks;
  const int row = static_cast<int>(local % image_chunks) / kChunksPerSlabRow;
  const int place = static_cast<int>(local % kChunksPerSlabRow);
  const std::int64_t slabs = is_in ? p.layout.x_slabs : p.layout.x_slabs + p.layout.y_slabs;
  std::int64_t slab = image % slabs;
  MatrixRow from;
  if (is_in) {
    from = in_row(p, image / slabs * kInChunkRows + row);
  } else {
    const std::int64_t channel = image / slabs * kOutChunkRows + out_channel_of(row);
    const bool is_gate = slab < p.layout.x_slabs;
    if (!is_gate) slab -= p.layout.x_slabs;
    from = {is_gate ? &p.from.g_out_weight : &p.from.p_out_weight,
            channel,
            is_gate ? p.c_z : p.c_hidden,
            channel < p.c_z,
            is_gate,
            is_gate && p.layout.out_is_resident,
            p.layout.out_is_resident};
  }
  const int k_chunk = place ^ (row & 7);
  const std::int64_t first = slab * slab_elements(p.arithmetic) + k_chunk * (kChunkBytes / operand_bytes(p.arithmetic));
  const std::int64_t begin = is_in ? p.layout.in_weight : p.layout.out_weight;
  reinterpret_cast<uint4*>(p.packed + begin)[local] = pack_chunk(p.arithmetic, from, first);
}

__device__ float bias_factor(const PackParams& p, bool is_resident) {
  return is_resident && p.arithmetic == Arithmetic::kBf16 ? 0.5F : 1.0F;
}

/// Element `index` of a vector of fp32 pairs or numbers behind the matrices.
__device__ void pack_vectors(const PackParams& p, std::int64_t index) {
  const auto pack_norm = [&](std::int64_t begin, std::int64_t width, const Source& weight, const Source& bias) {
    const bool exists = index < width;
    reinterpret_cast<float2*>(p.packed + begin)[index] =
        make_float2(exists ? load_parameter(weight, index, 1.0F) : 0.0F, exists ? load_parameter(bias, index, 0.0F) : 0.0F);
  };
  if (index < core::round_up(p.c_z, PackedLayout::kNormPadding))
    pack_norm(p.layout.norm_in, p.c_z, p.from.norm_in_weight, p.from.norm_in_bias);
  if (index < core::round_up(p.c_hidden, PackedLayout::kNormPadding))
    pack_norm(p.layout.norm_out, p.c_hidden, p.from.norm_out_weight, p.from.norm_out_bias);
  if (index < p.layout.in_chunks * kInChunkRows) {
    const std::int64_t channel = index / 16 * 8 + index % 8;
    const Source& source = index % 16 < 8 ? p.from.p_in_bias : p.from.g_in_bias;
    reinterpret_cast<float*>(p.packed + p.layout.in_bias)[index] =
        channel < 2 * p.c_hidden ? bias_factor(p, p.layout.in_is_resident) * load_parameter(source, channel, 0.0F) : 0.0F;
  }
  if (index < p.layout.out_chunks * kOutChunkRows) {
    const bool exists = index < p.c_z;
    const float factor = bias_factor(p, p.layout.out_is_resident);
    reinterpret_cast<float*>(p.packed + p.layout.p_out_bias)[index] =
        exists ? factor * load_parameter(p.from.p_out_bias, index, 0.0F) : 0.0F;
    reinterpret_cast<float*>(p.packed + p.layout.g_out_bias)[index] =
        exists ? factor * load_parameter(p.from.g_out_bias, index, 0.0F) : 0.0F;
  }
}

constexpr int kPackThreads = 128;

__global__ void __launch_bounds__(kPackThreads) sm80_pack_weights_kernel(const __grid_constant__ PackParams p) {
  const std::int64_t in_images = p.layout.in_chunks * p.layout.x_slabs;
  const std::int64_t matrix_chunks =
      (in_images * kInChunkRows + p.layout.out_chunks * (p.layout.x_slabs + p.layout.y_slabs) * kOutChunkRows) * kChunksPerSlabRow;
  // The vectors are shorter than the matrices have chunks.
  const std::int64_t thread = std::int64_t{blockIdx.x} * kPackThreads + threadIdx.x;
  if (thread < matrix_chunks) pack_matrix_chunk(p, thread, in_images);
  pack_vectors(p, thread);
}

}  // namespace

Sm80PackedWeights::Sm80PackedWeights(const core::Parameters& parameters, Arithmetic arithmetic, std::int64_t c_z, std::int64_t c_hidden,
                                     const PackedLayout& layout, const core::Device& device, void* memory, Chain& chain)
    : layout_(layout) {
  if (memory == nullptr) memory = own_.emplace(device, bytes()).data();
  data_ = static_cast<std::uint8_t*>(memory);
  const PackParams params{sources_of(parameters), data_, arithmetic, c_z, c_hidden, layout_};
  if (is_scaled(arithmetic)) {
    pack_scaled_weights(params, chain);
    return;
  }
  const std::int64_t chunks =
      (layout_.in_chunks * layout_.x_slabs * kInChunkRows + layout_.out_chunks * (layout_.x_slabs + layout_.y_slabs) * kOutChunkRows) *
      kChunksPerSlabRow;
  chain.add(sm80_pack_weights_kernel,
            {.blocks = grid_blocks(core::ceil_div(chunks, kPackThreads)), .threads = kPackThreads, .smem_bytes = 0, .overlaps = false},
            params);
}

}  // namespace trimul::cuda::sm80
