// SPDX-License-Identifier: Apache-2.0
// The output projection of 16-bit rows at widths of 64 and 128: all weights stay in shared memory, and every warp works by itself, its rows
// of x and y in registers from the load to the last product. No barrier after the weights have arrived.
#pragma once

#include "cuda/ptx/shared_address.cuh"
#include "cuda/sm80/fragment_rows.cuh"
#include "cuda/sm80/output_projection/config.hpp"
#include "cuda/sm80/weight_ring.cuh"

namespace trimul::cuda::sm80 {

/// Two neighbouring positions of y, of which a thread has the channels 16 step + 8 h + 2 t + e, as rows g and g + 8 of an A operand:
/// fragment register i of a step holds half i / 2 of position i % 2.
template <Arithmetic kArithmetic, int kHidden>
struct FragmentColumns {
  static constexpr int kChannels = kHidden / 4;  // of a thread
  static constexpr float kInverse = 1.0F / kHidden;
  using Fragments = std::uint32_t[kHidden / 4];  // [4 step + i]

  static __device__ __forceinline__ int channel_of(int k, int t) { return k / 4 * 16 + k / 2 % 2 * 8 + 2 * t + k % 2; }

  /// `y`: the first of the two positions, in channel 0.
  template <typename Word>
  static __device__ __forceinline__ void load(const std::uint8_t* y, std::int64_t pitch_bytes, bool is_valid, int t,
                                              Word (&words)[kChannels]) {
    const std::uint8_t* from = y + 2 * t * pitch_bytes;
#pragma unroll
    for (int k = 0; k < kChannels; ++k) {
      words[k] = Word{};
      if (is_valid) words[k] = *reinterpret_cast<const Word*>(from);
      from += (k % 2 == 0 ? 1 : 7) * pitch_bytes;
    }
  }

  /// The normalised positions as fragments; norm[channel] = (weight, bias), in shared memory. Whole warp.
  static __device__ __forceinline__ void take(const std::uint8_t* y, std::int64_t pitch_bytes, bool is_valid, int t, float eps,
                                              const float2* norm, Fragments& u) {
    if constexpr (kArithmetic == Arithmetic::kBf16)
      take_bf16(y, pitch_bytes, is_valid, t, eps, norm, u);
    else
      take_fp32(y, pitch_bytes, is_valid, t, eps, norm, u);
  }

 private:
  using Row = FragmentRow<Arithmetic::kBf16, kHidden>;

  /// bf16 y: the fragments themselves are normalised, as rows of x are.
  static __device__ __forceinline__ void take_bf16(const std::uint8_t* y, std::int64_t pitch_bytes, bool is_valid, int t, float eps,
                                                   const float2* norm, Fragments& u) {
    std::uint32_t words[kChannels];
    load(y, pitch_bytes, is_valid, t, words);
    typename Row::Registers rows[2];  // [position][2 step + h]
#pragma unroll
    for (int k = 0; k < kChannels; k += 2) {
      rows[0][k / 2] = __byte_perm(words[k], words[k + 1], 0x5410);
      rows[1][k / 2] = __byte_perm(words[k], words[k + 1], 0x7632);
    }
    const auto means = [&] {
      return means_as_a<Arithmetic::kBf16, kHidden>([&](int step, int i) { return rows[i % 2][2 * step + i / 2]; });
    };
    const float2 mean = means();
    const Affine affine[2] = {Row::statistics(rows[0], mean.x, eps, [&](const auto&) { return means().x; }),
                              Row::statistics(rows[1], mean.y, eps, [&](const auto&) { return means().y; })};
#pragma unroll
    for (int k = 0; k < kChannels; k += 2) {
      const float4 n = *reinterpret_cast<const float4*>(norm + channel_of(k, t));
#pragma unroll
      for (int position = 0; position < 2; ++position) {
        const std::uint32_t pair = rows[position][k / 2];
        const float low = fmaf(low_half<Arithmetic::kBf16>(pair), affine[position].scale, affine[position].shift);
        const float high = fmaf(high_half<Arithmetic::kBf16>(pair), affine[position].scale, affine[position].shift);
        u[k / 4 * 4 + k / 2 % 2 * 2 + position] = pack_bf16(fmaf(low, n.x, n.y), fmaf(high, n.z, n.w));
      }
    }
  }

  static __device__ __forceinline__ float value(const float2& word, int position) {
    return position == 0 ? word.x : word.y;
  }

  /// Sum over the channels of f(value).
  template <typename F>
  static __device__ __forceinline__ float sum(const float2 (&words)[kChannels], int position, const F& f) {
    float parts[2] = {0.0F, 0.0F};
#pragma unroll
    for (int k = 0; k < kChannels; ++k) parts[k % 2] += f(value(words[k], position));
    return quad_sum(parts[0] + parts[1]);
  }

  /// fp32 y: as row_statistics.
  static __device__ __forceinline__ void take_fp32(const std::uint8_t* y, std::int64_t pitch_bytes, bool is_valid, int t, float eps,
                                                   const float2* norm, Fragments& u) {
    float2 words[kChannels];
    load(y, pitch_bytes, is_valid, t, words);
    RowStatistics s[2];
#pragma unroll
    for (int position = 0; position < 2; ++position) {
      const float mean = sum(words, position, [](float v) { return v * kInverse; });
      const float rest = kInverse * sum(words, position, [mean](float v) { return v - mean; });
      const float squares = sum(words, position, [mean, rest](float v) { return (v - mean - rest) * (v - mean - rest); });
      s[position] = {mean, rest, rsqrtf(fmaf(squares, kInverse, eps)), 1.0F};
    }
#pragma unroll
    for (int k = 0; k < kChannels; k += 2) {
      const float4 n = *reinterpret_cast<const float4*>(norm + channel_of(k, t));
#pragma unroll
      for (int position = 0; position < 2; ++position) {
        const float low = (value(words[k], position) - s[position].mean - s[position].rest) * s[position].scale;
        const float high = (value(words[k + 1], position) - s[position].mean - s[position].rest) * s[position].scale;
        u[k / 4 * 4 + k / 2 % 2 * 2 + position] = pack_pair<kArithmetic>(fmaf(low, n.x, n.y), fmaf(high, n.z, n.w));
      }
    }
  }
};

template <Arithmetic kArithmetic, int kWidth, int kHidden, bool kHasBias>
struct ResidentOutputProjection {
  static constexpr int kTile = kResidentOutputPositions;  // rows g and g + 8 of its fragments are positions 2 g and 2 g + 1
  static constexpr int kWarps = kResidentThreads / 32;
  static constexpr int kXSlabs = kWidth / 64;
  static constexpr int kYSlabs = kHidden / 64;
  static constexpr int kImageBytes = kOutChunkRows * kSlabRowBytes;
  static constexpr int kNt = 4;  // n-tiles at a time: 32 channels
  using Row = FragmentRow<kArithmetic, kWidth>;
  using Columns = FragmentColumns<kArithmetic, kHidden>;
  using B = BOperand<kArithmetic, Storage::kRows>;

  struct SharedStorage {
    float2 norm_in[kWidth];
    float2 norm_out[kHidden];
    alignas(kResidentAlignmentBytes) std::uint8_t weights[kWidth / kOutChunkRows * (kXSlabs + kYSlabs) * kImageBytes];
  };

  /// acc += the product of the fragments with 32 rows of weights.
  template <int kSlabs, typename Fragment>
  static __device__ __forceinline__ void multiply(const B& b, std::uint32_t images, const Fragment& fragment, float (&acc)[kNt][4]) {
#pragma unroll
    for (int step = 0; step < kSlabs * kStepsPerSlab; ++step) {
      std::uint32_t a[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = fragment(step, i);
#pragma unroll
      for (int ni = 0; ni < kNt; ni += 2) {
        std::uint32_t w[4];
        b.load(w, images + static_cast<unsigned>(step / kStepsPerSlab * kImageBytes), ni, step % kStepsPerSlab);
        mma_16bit<kArithmetic>(acc[ni], a, w[0], w[1]);
        mma_16bit<kArithmetic>(acc[ni + 1], a, w[2], w[3]);
      }
    }
  }

  /// Starts the sums of a thread's eight channels, of both rows.
  static __device__ __forceinline__ void set_bias(const float* bias, float (&acc)[kNt][4]) {
#pragma unroll
    for (int ni = 0; ni < kNt; ++ni) {
      const float2 pair = __ldg(reinterpret_cast<const float2*>(bias) + ni);
      acc[ni][0] = pair.x, acc[ni][1] = pair.y, acc[ni][2] = pair.x, acc[ni][3] = pair.y;
    }
  }

  static __device__ __forceinline__ void store_row(const OutputProjectionParams& p, const Positions::Pair& pair, int channel, int half,
                                                   const float (&value)[kNt][4], const float (&gate)[kNt][4]) {
    if (!pair.is_valid) return;
    float results[kOctet];
#pragma unroll
    for (int i = 0; i < kOctet; ++i) results[i] = gated_packed<kArithmetic>(value[i / 2][2 * half + i % 2], gate[i / 2][2 * half + i % 2]);
    const std::int64_t index = pair.index(p.positions.tokens);
    if (p.has_residual) {
      float x[kOctet];
      load_octet(p.x, row_address(p.x, index), channel, x);
#pragma unroll
      for (int i = 0; i < kOctet; ++i) results[i] += x[i];
    }
    store_octet(p.out, row_address(p.out, index), channel, results);
  }

  static __device__ __forceinline__ void project_tile(const OutputProjectionParams& p, SharedStorage& smem, std::int64_t tile) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int g = lane / 4;
    const int t = lane % 4;
    const Positions::Start begin = p.positions.start(tile * kTile);
    const Positions::Pair pairs[2] = {p.positions.pair(begin, 2 * g), p.positions.pair(begin, 2 * g + 1)};
    std::uint32_t z[2][Row::kRegisters];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      if (pairs[k].is_valid) {
        Row::load(row_address(p.x, pairs[k].index(p.positions.tokens)), p.x.is_vectorised, t, z[k]);
      } else {
#pragma unroll
        for (std::uint32_t& value : z[k]) value = 0;
      }
    }
    typename Columns::Fragments u;
    // Rows of planes have an even number of positions: where the first of the two is a pair, the second is at least padding.
    Columns::take(p.y + (tile * kTile + 2 * g) * y_bytes(kArithmetic), p.positions.pitch * y_bytes(kArithmetic), pairs[0].is_valid, t,
                  p.eps, smem.norm_out, u);
    {
      const auto means = [&] { return means_as_a<kArithmetic, kWidth>([&](int step, int i) { return z[i % 2][2 * step + i / 2]; }); };
      const float2 mean = means();
      const Affine affine[2] = {Row::statistics(z[0], mean.x, p.eps, [&](const auto&) { return means().x; }),
                                Row::statistics(z[1], mean.y, p.eps, [&](const auto&) { return means().y; })};
      Row::template normalise<2>(z, affine, smem.norm_in, t);
    }
#pragma unroll 1
    for (int first = 0; first < kWidth; first += 8 * kNt) {
      const B b(lane, first % kOutChunkRows);
      const std::uint32_t images =
          ptx::shared_address(smem.weights) + static_cast<unsigned>(first / kOutChunkRows * (kXSlabs + kYSlabs) * kImageBytes);
      float gate[kNt][4] = {};
      float value[kNt][4] = {};
      if constexpr (kHasBias) {
        set_bias(p.g_bias + first + t * kOctet, gate);
        set_bias(p.p_bias + first + t * kOctet, value);
      }
      multiply<kXSlabs>(
          b, images, [&](int step, int i) { return z[i % 2][2 * step + i / 2]; }, gate);
      multiply<kYSlabs>(
          b, images + kXSlabs * kImageBytes, [&](int step, int i) { return u[4 * step + i]; }, value);
#pragma unroll
      for (int k = 0; k < 2; ++k) store_row(p, pairs[k], first + t * kOctet, k, value, gate);
    }
  }
};

template <Arithmetic kArithmetic, int kWidth, int kHidden, bool kHasBias>
__global__ void __launch_bounds__(kResidentThreads, 1)
    sm80_resident_output_projection_kernel(const __grid_constant__ OutputProjectionParams p) {
  using Kernel = ResidentOutputProjection<kArithmetic, kWidth, kHidden, kHasBias>;
  extern __shared__ __align__(1024) std::uint8_t raw[];
  auto& smem = *reinterpret_cast<typename Kernel::SharedStorage*>(raw);
  copy_to_shared(ptx::shared_address(smem.weights), p.weights, sizeof(smem.weights));
  copy_to_shared(ptx::shared_address(smem.norm_in), reinterpret_cast<const std::uint8_t*>(p.norm_in), sizeof(smem.norm_in));
  copy_to_shared(ptx::shared_address(smem.norm_out), reinterpret_cast<const std::uint8_t*>(p.norm_out), sizeof(smem.norm_out));
  ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<0>();
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x / 32);
  for (std::int64_t tile = std::int64_t{warp} * gridDim.x + blockIdx.x; tile < p.num_tiles;
       tile += std::int64_t{gridDim.x} * Kernel::kWarps)
    Kernel::project_tile(p, smem, tile);
}

}  // namespace trimul::cuda::sm80
