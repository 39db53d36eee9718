// SPDX-License-Identifier: Apache-2.0
// Weights for operands that are fp32 numbers times powers of two in one or two fp16 parts (arithmetic.hpp).
//
// With n = (x - mean) / std, of which |n_c| <= |n| <= sqrt(width), every operand has a bound before anything is read but the weights:
//   normalised row   |n_c weight_c + bias_c| <= sqrt(width) |weight_c| + |bias_c|
//   value (Cauchy, Schwarz)  |sum_c W_rc (n_c weight_c + bias_c)| <= sqrt(width) |W_r weight| + |W_r bias|
// Channel c of a normalised row is multiplied by 2^e_c, in the pairs of its LayerNorm, so that its bound is below 2^14, and row r of the
// weights by 2^(s_r - e_c), so that its largest element is below 2^14; a plane by 2^t, so that its bound is below 2^14 too. What is added
// up is multiplied by 2^-s_r, 2^(t - s_r) or 2^-(t_a + t_b). fp16 has eleven bits, and two parts twice as many, down to 2^-14 and a part of
// them down to 2^-24; half of its range is left for rounding.
#include <cfloat>

#include "cuda/sm80/operand.cuh"
#include "cuda/sm80/pack_params.cuh"
#include "cuda/sm80/variants.hpp"

namespace trimul::cuda::sm80 {
namespace {

constexpr int kBoundExponent = 14;
constexpr int kNone = -1000;  // exponent of zero, and of what is not finite
constexpr int kThreads = 128;
constexpr unsigned kWarp = 0xffffffffU;

__device__ int exponent_of(float value) {
  return isfinite(value) && value != 0.0F ? ilogbf(value) : kNone;
}

/// LayerNorm of one side of the operator.
struct Norm {
  Source weight, bias;
  std::int64_t width;

  __device__ float2 pair(std::int64_t channel) const {
    return channel < width ? make_float2(load_parameter(weight, channel, 1.0F), load_parameter(bias, channel, 0.0F)) : float2{};
  }
  /// Exponent of what channel's normalised elements are multiplied by.
  __device__ int exponent(const float2& pair) const {
    const float bound = fminf(fmaf(sqrtf(static_cast<float>(width)), fabsf(pair.x), fabsf(pair.y)), FLT_MAX);
    const int exponent = exponent_of(bound);
    return exponent == kNone ? 0 : kBoundExponent - 1 - exponent;
  }
};

/// A row of a matrix and where it goes: the first slab's row of images of `image_rows` rows. No row: zeros.
struct Row {
  Source matrix;
  std::int64_t index;
  bool exists;
  bool is_gate;
  std::uint8_t* to;
  int row_in_image;
  int image_rows;
  std::int64_t slabs;
};

__device__ float weight_of(const Row& row, const Norm& norm, std::int64_t column, Arithmetic arithmetic) {
  if (!row.exists || column >= norm.width) return 0.0F;
  const float value = load_parameter(row.matrix, row.index * norm.width + column, 0.0F);
  return row.is_gate && arithmetic == Arithmetic::kPairs ? finite_weight(value) : value;
}

/// Packs a row; whole warp. Returns s_r, and in `bound` the exponent of 2^s_r times a bound of the values.
__device__ int pack_row(const Row& row, const Norm& norm, Arithmetic arithmetic, int& bound) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int largest = kNone;
  for (std::int64_t column = lane; column < norm.width; column += 32) {
    const int exponent = exponent_of(weight_of(row, norm, column, arithmetic));
    if (exponent != kNone) largest = max(largest, exponent - norm.exponent(norm.pair(column)));
  }
  largest = __reduce_max_sync(kWarp, largest);
  const int scale = largest == kNone ? 0 : kBoundExponent - 1 - largest;

  float squares = 0.0F;
  float offset = 0.0F;
  for (std::int64_t column = lane; column < norm.width; column += 32) {
    const float2 pair = norm.pair(column);
    const int exponent = norm.exponent(pair);
    const float weight = ldexpf(weight_of(row, norm, column, arithmetic), scale - exponent);
    const float spread = weight * ldexpf(pair.x, exponent);
    squares = fmaf(spread, spread, squares);
    offset = fmaf(weight, ldexpf(pair.y, exponent), offset);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    squares += __shfl_xor_sync(kWarp, squares, step);
    offset += __shfl_xor_sync(kWarp, offset, step);
  }
  const int exponent = exponent_of(sqrtf(static_cast<float>(norm.width) * squares) + fabsf(offset));
  bound = exponent == kNone ? kNone : exponent + 1;

  const int octets_per_slab = slab_elements(arithmetic) / kOctet;
  const int parts = parts_of(arithmetic);
  for (std::int64_t octet = lane; octet < row.slabs * octets_per_slab; octet += 32) {
    float values[kOctet];
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      const std::int64_t column = octet * kOctet + i;
      values[i] = ldexpf(weight_of(row, norm, column, arithmetic), scale - norm.exponent(norm.pair(column)));
    }
    const OctetParts octet_parts = split_octet(values);
    std::uint8_t* const slab = row.to + octet / octets_per_slab * row.image_rows * kSlabRowBytes;
    const int chunk = static_cast<int>(octet % octets_per_slab) * parts;
    const auto place = [&](int part) { return reinterpret_cast<uint4*>(slab) + ((chunk + part) ^ (row.row_in_image & 7)); };
    *place(0) = octet_parts.high;
    if (parts == 2) *place(1) = octet_parts.low;
  }
  return scale;
}

__device__ Norm norm_in(const PackParams& p) {
  return {p.from.norm_in_weight, p.from.norm_in_bias, p.c_z};
}
__device__ Norm norm_out(const PackParams& p) {
  return {p.from.norm_out_weight, p.from.norm_out_bias, p.c_hidden};
}

template <typename T>
__device__ T* place_of(const PackParams& p, std::int64_t offset) {
  return reinterpret_cast<T*>(p.packed + offset);
}

/// A row of the input weights, value or gate, and what its sums become.
__device__ void pack_in_row(const PackParams& p, std::int64_t index) {
  const std::int64_t channel = index / 16 * 8 + index % 8;
  const int row_in_image = static_cast<int>(index % kInChunkRows);
  const bool is_gate = index % 16 >= 8;
  const bool exists = channel < 2 * p.c_hidden;
  const Row row{
      is_gate ? p.from.g_in_weight : p.from.p_in_weight,
      channel,
      exists,
      is_gate,
      p.packed + p.layout.in_weight + (index / kInChunkRows * p.layout.x_slabs * kInChunkRows + row_in_image) * std::int64_t{kSlabRowBytes},
      row_in_image,
      kInChunkRows,
      p.layout.x_slabs};
  int bound;
  const int scale = pack_row(row, norm_in(p), p.arithmetic, bound);
  if (threadIdx.x % 32 != 0) return;
  const float bias = exists ? load_parameter(is_gate ? p.from.g_in_bias : p.from.p_in_bias, channel, 0.0F) : 0.0F;
  int exponent = 0;  // of the plane's scale
  if (!is_gate) {
    const int of_bias = exponent_of(bias) == kNone ? kNone : exponent_of(bias) + 1;
    const int of_value = max(bound == kNone ? kNone : bound - scale, of_bias) + 1;  // of their sum
    if (of_value > kNone + 1) exponent = kBoundExponent - of_value;
    if (exists) place_of<std::int32_t>(p, p.layout.exponents)[channel] = exponent;
  }
  place_of<float2>(p, p.layout.in_affine)[index] = make_float2(ldexpf(1.0F, exponent - scale), ldexpf(bias, exponent));
}

/// The same of the output weights; `is_gate`: of g_out, else of p_out.
__device__ void pack_out_row(const PackParams& p, std::int64_t index, bool is_gate) {
  const int row_in_image = static_cast<int>(index % kOutChunkRows);
  const std::int64_t chunk = index / kOutChunkRows;
  const std::int64_t channel = chunk * kOutChunkRows + out_channel_of(row_in_image);
  const bool exists = channel < p.c_z;
  const std::int64_t first_image = chunk * (p.layout.x_slabs + p.layout.y_slabs) + (is_gate ? 0 : p.layout.x_slabs);
  const Row row{is_gate ? p.from.g_out_weight : p.from.p_out_weight,
                channel,
                exists,
                is_gate,
                p.packed + p.layout.out_weight + (first_image * kOutChunkRows + row_in_image) * std::int64_t{kSlabRowBytes},
                row_in_image,
                kOutChunkRows,
                is_gate ? p.layout.x_slabs : p.layout.y_slabs};
  int bound;
  const int scale = pack_row(row, is_gate ? norm_in(p) : norm_out(p), p.arithmetic, bound);
  if (threadIdx.x % 32 != 0) return;
  const float bias = exists ? load_parameter(is_gate ? p.from.g_out_bias : p.from.p_out_bias, channel, 0.0F) : 0.0F;
  place_of<float2>(p, is_gate ? p.layout.g_out_affine : p.layout.p_out_affine)[channel] = make_float2(ldexpf(1.0F, -scale), bias);
}

/// A channel of a LayerNorm; zero behind its width.
__device__ void pack_norm(const PackParams& p, const Norm& norm, std::int64_t begin, std::int64_t channel) {
  const float2 pair = norm.pair(channel);
  const int exponent = norm.exponent(pair);
  place_of<float2>(p, begin)[channel] = make_float2(ldexpf(pair.x, exponent), ldexpf(pair.y, exponent));
}

/// Whole warp.
__device__ void pack_is_unbiased(const PackParams& p) {
  bool has_bias = false;
  const Norm norm = norm_out(p);
  for (std::int64_t channel = threadIdx.x % 32; channel < norm.width; channel += 32) has_bias = has_bias || norm.pair(channel).y != 0.0F;
  has_bias = __any_sync(kWarp, has_bias);
  if (threadIdx.x % 32 == 0) place_of<std::int32_t>(p, p.layout.exponents)[2 * p.c_hidden] = has_bias ? 0 : 1;
}

std::int64_t norm_warps(std::int64_t width) {
  return core::round_up(width, PackedLayout::kNormPadding) / 32;
}

struct Work {
  PackParams p;
  std::int64_t in_rows, out_rows, norm_in_warps, norm_out_warps;
};

/// A warp packs a row, or 32 channels of a LayerNorm; the last one looks at all biases of one.
__global__ void __launch_bounds__(kThreads) sm80_pack_scaled_weights_kernel(const __grid_constant__ Work work) {
  const PackParams& p = work.p;
  const int lane = static_cast<int>(threadIdx.x % 32);
  std::int64_t warp = std::int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  if (warp < work.in_rows) return pack_in_row(p, warp);
  warp -= work.in_rows;
  if (warp < 2 * work.out_rows) return pack_out_row(p, warp % work.out_rows, warp < work.out_rows);
  warp -= 2 * work.out_rows;
  if (warp < work.norm_in_warps) return pack_norm(p, norm_in(p), p.layout.norm_in, warp * 32 + lane);
  warp -= work.norm_in_warps;
  if (warp < work.norm_out_warps) return pack_norm(p, norm_out(p), p.layout.norm_out, warp * 32 + lane);
  if (warp == work.norm_out_warps) pack_is_unbiased(p);
}

}  // namespace

void pack_scaled_weights(const PackParams& params, Chain& chain) {
  const Work work{params, params.layout.in_chunks * kInChunkRows, params.layout.out_chunks * kOutChunkRows, norm_warps(params.c_z),
                  norm_warps(params.c_hidden)};
  const std::int64_t warps = work.in_rows + 2 * work.out_rows + work.norm_in_warps + work.norm_out_warps + 1;
  chain.add(sm80_pack_scaled_weights_kernel,
            {.blocks = grid_blocks(core::ceil_div(warps, kThreads / 32)), .threads = kThreads, .smem_bytes = 0, .overlaps = false}, work);
}

}  // namespace trimul::cuda::sm80
