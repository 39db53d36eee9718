// SPDX-License-Identifier: Apache-2.0
// The output projection of 16-bit rows at widths of 64 and 128: all weights stay in shared memory, and every warp works by itself, its rows
// of x and y in registers from the load to the last product. No barrier after the weights have arrived.
#pragma once

#include <type_traits>

#include "cuda/ptx/grid.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/sm80/fragment_rows.cuh"
#include "cuda/sm80/kernel_order.cuh"
#include "cuda/sm80/output_projection/config.hpp"
#include "cuda/sm80/weight_ring.cuh"

namespace trimul::cuda::sm80 {

/// Two neighbouring positions of y, of which a thread has the channels 16 step + 8 h + 2 t + e, as rows g and g + 8 of an A operand:
/// fragment register i of a step holds half i / 2 of position i % 2.
template <Arithmetic kArithmetic, int kHidden>
struct FragmentColumns {
  static constexpr int kChannels = kHidden / 4;  // of a thread
  static constexpr float kInverse = 1.0F / kHidden;
  static constexpr bool kIsBf16 = y_bytes(kArithmetic) == 2;
  using Fragments = std::uint32_t[kHidden / 4];                     // [4 step + i]
  using Word = std::conditional_t<kIsBf16, std::uint32_t, float2>;  // both positions in one channel
  using Words = Word[kChannels];

  static __device__ __forceinline__ int channel_of(int k, int t) { return k / 4 * 16 + k / 2 % 2 * 8 + 2 * t + k % 2; }

  // A warp's 16 positions on their way through shared memory, 32 or 64 bytes a channel: four or two channels lie in a line of 128 bytes, in
  // an order of its eight chunks that gives the lanes which read at a time different banks.
  static constexpr int kColumnBytes = kResidentOutputPositions * y_bytes(kArithmetic);
  static constexpr int kColumnChunks = kColumnBytes / kChunkBytes;
  static constexpr int kFeedBytes = kHidden * kColumnBytes;
  static __device__ __forceinline__ unsigned place_of(int channel, int chunk) {
    constexpr int kChannelsOfLine = 8 / kColumnChunks;
    const int line = channel / kChannelsOfLine;
    const int first = channel % kChannelsOfLine * kColumnChunks;
    return static_cast<unsigned>(line * 128 + (((first + chunk) ^ 2 * (line % kColumnChunks)) << 4));
  }

  /// Starts the copies of a tile. `from`: channel lane / kColumnChunks of the lane's chunk, which is chunk lane % kColumnChunks of the
  /// tile.
  static __device__ __forceinline__ void start(std::uint32_t feed, const std::uint8_t* from, std::int64_t pitch_bytes, bool is_valid,
                                               int lane) {
    constexpr int kPassChannels = 32 / kColumnChunks;
    const std::uint32_t to = feed + place_of(lane / kColumnChunks, lane % kColumnChunks);
#pragma unroll
    for (int pass = 0; pass < kHidden / kPassChannels; ++pass, from += kPassChannels * pitch_bytes)
      ptx::cp_async_16(to + static_cast<unsigned>(pass * 32 * kChunkBytes), from, is_valid ? kChunkBytes : 0);
  }
  /// What they brought, visible to the warp.
  static __device__ __forceinline__ void take(std::uint32_t feed, int lane, Words& words) {
    const int own = lane / 4 * static_cast<int>(sizeof(Word));  // bytes of a channel in front of the thread's
    const std::uint32_t even = feed + place_of(2 * (lane % 4), own / kChunkBytes) + static_cast<unsigned>(own % kChunkBytes);
#pragma unroll
    for (int k = 0; k < kChannels; ++k) {
      const std::uint32_t from = (even ^ static_cast<unsigned>(k % 2 * kColumnBytes)) + static_cast<unsigned>(k / 2 * 8 * kColumnBytes);
      if constexpr (kIsBf16)
        words[k] = ptx::load_shared(from);
      else
        words[k] = ptx::load_shared_float2(from);
    }
  }

  /// The same from memory. `y`: the first of the two positions, in channel 0; zeros where it is not valid.
  static __device__ __forceinline__ void load(const std::uint8_t* y, std::int64_t pitch_bytes, bool is_valid, int t, Words& words) {
    const std::uint8_t* from = y + 2 * t * pitch_bytes;
#pragma unroll
    for (int k = 0; k < kChannels; ++k) {
      words[k] = Word{};
      if (is_valid) words[k] = *reinterpret_cast<const Word*>(from);
      from += (k % 2 == 0 ? 1 : 7) * pitch_bytes;
    }
  }

  /// The normalised positions as fragments; norm[channel] = (weight, bias), in shared memory. Whole warp.
  static __device__ __forceinline__ void normalise(const Words& words, int t, float eps, const float2* norm, Fragments& u) {
    if constexpr (kIsBf16)
      normalise_bf16(words, t, eps, norm, u);
    else
      normalise_fp32(words, t, eps, norm, u);
  }

 private:
  using Row = FragmentRow<Arithmetic::kBf16, kHidden>;

  /// bf16 y: the fragments themselves are normalised, as rows of x are.
  static __device__ __forceinline__ void normalise_bf16(const Words& words, int t, float eps, const float2* norm, Fragments& u) {
    typename Row::Registers rows[2];  // [position][2 step + h]
#pragma unroll
    for (int k = 0; k < kChannels; k += 2) {
      rows[0][k / 2] = __byte_perm(words[k], words[k + 1], 0x5410);
      rows[1][k / 2] = __byte_perm(words[k], words[k + 1], 0x7632);
    }
    Affine affine[2];
    Row::template statistics<2>(
        rows, eps, [&](float(&means)[2]) { means_as_a<Arithmetic::kBf16, kHidden>(rows, means); }, affine);
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
  static __device__ __forceinline__ void normalise_fp32(const float2 (&words)[kChannels], int t, float eps, const float2* norm,
                                                        Fragments& u) {
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

/// kIsFed: a warp's next tile is on its way through shared memory while it computes one; rows of x and out lie on 16 bytes.
template <Arithmetic kArithmetic, int kWidth, int kHidden, bool kHasBias, bool kIsFed>
struct ResidentOutputProjection {
  static constexpr int kTile = kResidentOutputPositions;  // rows g and g + 8 of its fragments are positions 2 g and 2 g + 1
  static constexpr int kWarps = kResidentThreads / 32;
  static constexpr int kXSlabs = kWidth / 64;
  static constexpr int kYSlabs = kHidden / 64;
  static constexpr int kImageBytes = kOutChunkRows * kSlabRowBytes;
  static constexpr int kNt = 4;  // n-tiles at a time: 32 channels
  using Row = FragmentRow<kArithmetic, kWidth>;
  using Rows = std::uint32_t[2][Row::kRegisters];
  using Columns = FragmentColumns<kArithmetic, kHidden>;
  using B = BOperand<kArithmetic, Storage::kRows>;
  using Sums = float[kNt][4];

  struct SharedStorage {
    float2 norm_in[kWidth];
    float2 norm_out[kHidden];
    alignas(kResidentAlignmentBytes) std::uint8_t weights[kWidth / kOutChunkRows * (kXSlabs + kYSlabs) * kImageBytes];
  };
  /// Of a warp, behind it: its next tile.
  static constexpr int kXFeedBytes = 2 * Row::kFeedBytes;
  static constexpr int kFeedBytes = kXFeedBytes + Columns::kFeedBytes;
  static_assert(sizeof(SharedStorage) % 128 == 0 && kXFeedBytes % 128 == 0 && kFeedBytes % 128 == 0, "Columns' lines lie on 128 bytes");

  /// acc += the product of a step of the fragments with 32 rows of weights.
  static __device__ __forceinline__ void multiply(const B& b, std::uint32_t images, int step, const std::uint32_t (&a)[4], Sums& acc) {
#pragma unroll
    for (int ni = 0; ni < kNt; ni += 2) {
      std::uint32_t w[4];
      b.load(w, images + static_cast<unsigned>(step / kStepsPerSlab<kArithmetic> * kImageBytes), ni, step % kStepsPerSlab<kArithmetic>);
      mma_16bit<kArithmetic>(acc[ni], a, w[0], w[1]);
      mma_16bit<kArithmetic>(acc[ni + 1], a, w[2], w[3]);
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

  /// Eight channels of a row; x and out have the elements of the products.
  static __device__ __forceinline__ void store_row(const OutputProjectionParams& p, std::int64_t index, int channel, int half,
                                                   const float (&value)[kNt][4], const float (&gate)[kNt][4]) {
    const std::int64_t offset = index * kWidth + channel;
    float results[kOctet];
#pragma unroll
    for (int i = 0; i < kOctet; ++i)
      results[i] = gated_packed<kArithmetic>(value[i / 2][2 * half + i % 2], gate_factor<kArithmetic>(gate[i / 2][2 * half + i % 2]));
    if (p.has_residual) {
      std::uint32_t x[4];
      load_words(static_cast<const std::uint16_t*>(p.x.data) + offset, kIsFed || p.x.is_vectorised, x);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        results[2 * i] += low_half<kArithmetic>(x[i]);
        results[2 * i + 1] += high_half<kArithmetic>(x[i]);
      }
    }
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = pack_pair<kArithmetic>(results[2 * i], results[2 * i + 1]);
    auto* const to = static_cast<std::uint16_t*>(p.out.data) + offset;
    if (kIsFed || p.out.is_vectorised) {
      *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
    } else {
#pragma unroll
      for (int i = 0; i < kOctet; ++i) to[i] = static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16));
    }
  }

  /// A thread's two positions of a tile, which lie in one row of the planes, as that has a multiple of eight.
  struct Place {
    std::int64_t index;      // of the first among the pairs of x
    std::int32_t num_valid;  // of them that are pairs: the first ones; 0 or less for none
  };
  static __device__ __forceinline__ Place locate(const OutputProjectionParams& p, std::uint32_t tile, int g) {
    const Positions::Pair first = p.positions.pair(p.positions.start(std::int64_t{tile} * kTile), 2 * g);
    return {first.index(p.positions.tokens),
            first.row < p.positions.rows ? static_cast<std::int32_t>(p.positions.tokens - first.column) : 0};
  }
  /// Below 2^31 (is_output_resident).
  static __device__ __forceinline__ std::uint32_t num_tiles_of(const OutputProjectionParams& p) {
    return static_cast<std::uint32_t>(p.num_tiles);
  }

  static __device__ __forceinline__ std::uint32_t feed_of(const SharedStorage& smem, int thread) {
    return ptx::shared_address(&smem) + static_cast<unsigned>(sizeof(smem) + thread / 32 * kFeedBytes);
  }

  static __device__ __forceinline__ void start_rows(const OutputProjectionParams& p, std::uint32_t feed, std::uint32_t tile, int lane) {
    const Place place = locate(p, tile, lane / 4);
    const std::uint8_t* const x = static_cast<const std::uint8_t*>(p.x.data) + place.index * (kWidth * 2) + lane % 4 * kChunkBytes;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      Row::start(feed + static_cast<unsigned>(i * Row::kFeedBytes + lane * kChunkBytes), x + i * (kWidth * 2), i < place.num_valid);
    // A chunk's positions lie in one row of the planes: where the first is a pair, the others are at least padding.
    const std::int64_t begin = std::int64_t{tile} * kTile;
    const int first = lane % Columns::kColumnChunks * (kChunkBytes / y_bytes(kArithmetic));
    const std::int64_t pitch_bytes = p.positions.pitch * y_bytes(kArithmetic);
    const std::uint8_t* const y = p.y + (begin + first) * y_bytes(kArithmetic) + lane / Columns::kColumnChunks * pitch_bytes;
    Columns::start(feed + kXFeedBytes, y, pitch_bytes, p.positions.pair(p.positions.start(begin), first).is_valid, lane);
    ptx::cp_async_commit_group();
  }

  /// The tiles of a warp: `tile`, whose copies have been started, and every (gridDim.x kWarps)-th behind it.
  static __device__ __forceinline__ void project(const OutputProjectionParams& p, const SharedStorage& smem, std::uint32_t tile) {
    while (tile < num_tiles_of(p)) {
      const int thread = ptx::thread_again();
      const int lane = thread % 32;
      const std::uint32_t feed = feed_of(smem, thread);
      const Place place = locate(p, tile, lane / 4);
      if constexpr (kIsFed) {
        ptx::cp_async_wait_group<0>();
        __syncwarp();
      }
      typename Columns::Fragments u;
      {
        typename Columns::Words words;
        if constexpr (kIsFed)
          Columns::take(feed + kXFeedBytes, lane, words);
        else
          Columns::load(p.y + (std::int64_t{tile} * kTile + 2 * (lane / 4)) * y_bytes(kArithmetic),
                        p.positions.pitch * y_bytes(kArithmetic), place.num_valid > 0, lane % 4, words);
        Columns::normalise(words, lane % 4, p.eps, smem.norm_out, u);
      }
      Rows z;
      take_x(p, feed, place, lane, z);
      Affine affine[2];
      Row::template statistics<2>(
          z, p.eps, [&](float(&means)[2]) { means_as_a<kArithmetic, kWidth>(z, means); }, affine);
      Row::template normalise<2>(z, affine, smem.norm_in, lane % 4);
      tile += gridDim.x * kWarps;
      if constexpr (kIsFed) {
        __syncwarp();  // every lane has taken what it reads
        if (tile < num_tiles_of(p)) start_rows(p, feed, tile, lane);
      }
      multiply_tile(p, smem, place, ptx::thread_again() % 32, z, u);
    }
  }

  static __device__ __forceinline__ void take_x(const OutputProjectionParams& p, std::uint32_t feed, const Place& place, int lane,
                                                Rows& z) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if constexpr (kIsFed) {
        Row::take(feed + static_cast<unsigned>(i * Row::kFeedBytes + lane * kChunkBytes), z[i]);
      } else if (i < place.num_valid) {
        Row::load(row_address(p.x, place.index + i), p.x.is_vectorised, lane % 4, z[i]);
      } else {
#pragma unroll
        for (std::uint32_t& value : z[i]) value = 0;
      }
    }
  }

  static __device__ __forceinline__ void multiply_tile(const OutputProjectionParams& p, const SharedStorage& smem, const Place& place,
                                                       int lane, const Rows& z, const typename Columns::Fragments& u) {
    const int t = lane % 4;
#pragma unroll 1
    for (int first = 0; first < kWidth; first += 8 * kNt) {
      const B b(lane, first % kOutChunkRows);
      const std::uint32_t images =
          ptx::shared_address(smem.weights) + static_cast<unsigned>(first / kOutChunkRows * (kXSlabs + kYSlabs) * kImageBytes);
      Sums gate = {};
      Sums value = {};
      if constexpr (kHasBias) {
        set_bias(p.g_bias + first + t * kOctet, gate);
        set_bias(p.p_bias + first + t * kOctet, value);
      }
      // Gates and values in turn: as many sums as hide the latency of one product.
#pragma unroll
      for (int step = 0; step < max(kXSlabs, kYSlabs) * kStepsPerSlab<kArithmetic>; ++step) {
        if (step < kXSlabs * kStepsPerSlab<kArithmetic>)
          multiply(b, images, step, {z[0][2 * step], z[1][2 * step], z[0][2 * step + 1], z[1][2 * step + 1]}, gate);
        if (step < kYSlabs * kStepsPerSlab<kArithmetic>)
          multiply(b, images + kXSlabs * kImageBytes, step, {u[4 * step], u[4 * step + 1], u[4 * step + 2], u[4 * step + 3]}, value);
      }
#pragma unroll
      for (int k = 0; k < 2; ++k)
        if (k < place.num_valid) store_row(p, place.index + k, first + t * kOctet, k, value, gate);
    }
  }
};

template <Arithmetic kArithmetic, int kWidth, int kHidden, bool kHasBias, bool kIsFed>
__global__ void __launch_bounds__(kResidentThreads, 1)
    sm80_resident_output_projection_kernel(const __grid_constant__ OutputProjectionParams p) {
  using Kernel = ResidentOutputProjection<kArithmetic, kWidth, kHidden, kHasBias, kIsFed>;
  extern __shared__ __align__(1024) std::uint8_t raw[];
  auto& smem = *reinterpret_cast<typename Kernel::SharedStorage*>(raw);
  copy_to_shared(ptx::shared_address(smem.weights), p.weights, sizeof(smem.weights));
  Kernel::Row::copy_norm(ptx::shared_address(smem.norm_in), p.norm_in);
  copy_to_shared(ptx::shared_address(smem.norm_out), reinterpret_cast<const std::uint8_t*>(p.norm_out), sizeof(smem.norm_out));
  ptx::cp_async_commit_group();
  wait_for_kernel_before();
  const int thread = static_cast<int>(threadIdx.x);
  const std::uint32_t tile = static_cast<unsigned>(thread / 32) * gridDim.x + blockIdx.x;
  if constexpr (kIsFed) {
    if (tile < Kernel::num_tiles_of(p))
      Kernel::start_rows(p, Kernel::feed_of(smem, thread), tile, thread % 32);
    else
      ptx::cp_async_commit_group();
    ptx::cp_async_wait_group<1>();
  } else {
    ptx::cp_async_wait_group<0>();
  }
  __syncthreads();
  Kernel::project(p, smem, tile);
}

}  // namespace trimul::cuda::sm80
