// SPDX-License-Identifier: Apache-2.0
// The input projection of 16-bit rows of 64 or 128 channels: all weights of a block stay in shared memory, and every warp works by itself,
// its rows in registers from the load to the last product. No barrier after the weights have arrived.
#pragma once

#include "cuda/ptx/grid.cuh"
#include "cuda/sm80/fragment_rows.cuh"
#include "cuda/sm80/input_projection/kernel.cuh"

namespace trimul::cuda::sm80 {

template <Arithmetic kArithmetic, int kWidth, bool kHasBias>
struct ResidentInputProjection {
  static constexpr int kTile = kResidentInputPositions;  // four n-tiles
  static constexpr int kNt = kTile / 8;
  static constexpr int kSlabs = kWidth / 64;
  static constexpr int kChunkBlocks = kInChunkRows / 16;
  static constexpr int kImageBytes = kInChunkRows * kSlabRowBytes;
  static constexpr int kWarps = kResidentThreads / 32;
  static constexpr int kRowsAtOnce = kHasBias && kArithmetic == Arithmetic::kBf16 ? 2 : 4;  // normalised together, as registers allow
  using Row = FragmentRow<kArithmetic, kWidth>;
  using Whole = InputProjection<kArithmetic, 128, true>;

  /// The mask at a thread's eight positions.
  struct Mask {
    float of_lane;           // at position `lane` of the tile
    bool is_selection;       // every factor of the warp is 0 or 1
    std::uint32_t words[4];  // all ones where the factor is not 0: 16 bits a position
  };
  static __device__ __forceinline__ float factor_of(const Mask& mask, int t, int i) {
    return __shfl_sync(0xffffffffU, mask.of_lane, t * kOctet + i);
  }
  static __device__ __forceinline__ Mask spread(float of_lane, int t) {
    Mask mask{.of_lane = of_lane, .is_selection = !__any_sync(0xffffffffU, of_lane != 0.0F && of_lane != 1.0F)};
    const std::uint32_t kept = __ballot_sync(0xffffffffU, of_lane != 0.0F) >> (t * kOctet);
#pragma unroll
    for (int i = 0; i < 4; ++i) mask.words[i] = ((kept >> (2 * i)) & 1U) * 0xffffU | ((kept >> (2 * i + 1)) & 1U) * 0xffff0000U;
    return mask;
  }

  /// Products of 16 rows of weights at 32 positions: rows g hold values, rows g + 8 their gates.
  using Sums = float[kNt][4];

  /// What becomes of them.
  struct Destination {
    bool is_stored;
    std::uint8_t* to;
    const float* bias;  // of the thread's value; of its gate eight further on
  };

  /// A quarter of a thread's results, two positions, from n-tile ni. A zero mask selects zero, whatever x holds.
  template <bool kIsScaled>
  static __device__ __forceinline__ std::uint32_t gate(const Mask& mask, int t, int ni, const Destination& destination, const Sums& acc) {
    float value[2] = {acc[ni][0], acc[ni][1]};
    float gates[2] = {acc[ni][2], acc[ni][3]};
    if constexpr (kHasBias) {
      const float value_bias = __ldg(destination.bias);
      const float gate_bias = __ldg(destination.bias + 8);
#pragma unroll
      for (int e = 0; e < 2; ++e) value[e] += value_bias, gates[e] += gate_bias;
    }
    if constexpr (kIsScaled) {
#pragma unroll
      for (int e = 0; e < 2; ++e) value[e] *= factor_of(mask, t, 2 * ni + e);
    }
    return pack_pair<kArithmetic>(gated_packed<kArithmetic>(value[0], gate_factor<kArithmetic>(gates[0])),
                                  gated_packed<kArithmetic>(value[1], gate_factor<kArithmetic>(gates[1]))) &
           mask.words[ni];
  }

  /// A warp's feed: rows of its next tile, in shared memory. Without room for it, or rows that lie on 16 bytes, they are loaded as they are
  /// needed.
  static constexpr int kFeedBytes = kNt * Row::kFeedBytes;

  /// A thread's rows of a tile: column 2 t + e of n-tile ni is position 8 t + 2 ni + e, so that a thread's results are eight positions in a
  /// row. Its own four rows lie in one row of the planes, as that has a multiple of eight positions.
  struct Place {
    std::int64_t index;      // of the first row among the pairs of x; row ni is 2 ni behind it
    std::int32_t remaining;  // row ni is a pair if 2 ni is below this
  };
  static __device__ __forceinline__ Place locate(const InputProjectionParams& p, std::uint32_t tile, int g) {
    const Positions::Pair first = p.positions.pair(p.positions.start(std::int64_t{tile} * kTile), g / 2 * 8 + g % 2);
    return {first.index(p.positions.tokens),
            first.row < p.positions.rows ? static_cast<std::int32_t>(p.positions.tokens - first.column) : 0};
  }

  static __device__ __forceinline__ void start_rows(const InputProjectionParams& p, std::uint32_t feed, std::uint32_t tile, int lane) {
    const Place place = locate(p, tile, lane / 4);
    const std::uint8_t* const from = static_cast<const std::uint8_t*>(p.x.data) + place.index * (kWidth * 2) + lane % 4 * kChunkBytes;
#pragma unroll
    for (int ni = 0; ni < kNt; ++ni)
      Row::start(feed + static_cast<unsigned>(ni * Row::kFeedBytes), from + 2 * ni * (kWidth * 2), 2 * ni < place.remaining);
    ptx::cp_async_commit_group();
  }

  static __device__ __forceinline__ void load_rows(const InputProjectionParams& p, std::uint32_t tile, int lane,
                                                   std::uint32_t (&z)[kNt][Row::kRegisters]) {
    const Place place = locate(p, tile, lane / 4);
#pragma unroll
    for (int ni = 0; ni < kNt; ++ni) {
      if (2 * ni < place.remaining) {
        Row::load(row_address(p.x, place.index + 2 * ni), p.x.is_vectorised, lane % 4, z[ni]);
      } else {
#pragma unroll
        for (std::uint32_t& value : z[ni]) value = 0;
      }
    }
  }

  /// Mask bits at position `lane` of a tile.
  static __device__ __forceinline__ std::uint32_t load_mask(const InputProjectionParams& p, std::uint32_t tile, int lane) {
    return Whole::mask_bits_of(p, p.positions.pair(p.positions.start(std::int64_t{tile} * kTile), lane));
  }

  // A block's shared memory: weights, the norm's pairs, the warps' feeds.
  static __device__ __forceinline__ std::uint8_t* shared_memory() {
    extern __shared__ __align__(1024) std::uint8_t raw[];
    return raw;
  }
  static __device__ __forceinline__ const float2* norm_of(const InputProjectionParams& p) {
    return reinterpret_cast<const float2*>(shared_memory() + p.weight_bytes);
  }
  static __device__ __forceinline__ bool is_fed(const InputProjectionParams& p) {
    return p.is_fed && p.x.is_vectorised;
  }
  static __device__ __forceinline__ std::uint32_t feed_of(const InputProjectionParams& p, int thread) {
    return ptx::shared_address(shared_memory()) +
           static_cast<unsigned>(p.weight_bytes + kWidth * 8 + thread / 32 * kFeedBytes + thread % 32 * kChunkBytes);
  }

  /// Below 2^31 (is_input_resident).
  static __device__ __forceinline__ std::uint32_t num_tiles_of(const InputProjectionParams& p) {
    return static_cast<std::uint32_t>(p.num_tiles);
  }

  /// A block's chunks of weights.
  struct Chunks {
    int first, count;
  };

  /// The tiles of a warp: `tile` and every (p.groups kWarps)-th behind it. The copies of the block's weights are the threads' last group;
  /// they arrive while the first tiles are normalised.
  static __device__ __forceinline__ void project(const InputProjectionParams& p, const Chunks& chunks, std::uint32_t tile) {
    std::uint32_t next_mask_bits = tile < num_tiles_of(p) ? load_mask(p, tile, static_cast<int>(threadIdx.x % 32)) : 0;
    do {
      const std::uint32_t stride = static_cast<unsigned>(p.groups * kWarps);
      const bool is_first = tile < stride;
      const std::uint32_t next = tile + stride;
      const int thread = ptx::thread_again();
      const int lane = thread % 32;
      const std::uint32_t feed = feed_of(p, thread);
      const std::uint32_t mask_bits = next_mask_bits;
      if (next < num_tiles_of(p)) next_mask_bits = load_mask(p, next, lane);
      std::uint32_t z[kNt][Row::kRegisters];
      if (is_fed(p)) {
        if (!is_first) ptx::cp_async_wait_group<0>();
#pragma unroll
        for (int ni = 0; ni < kNt; ++ni) Row::take(feed + static_cast<unsigned>(ni * Row::kFeedBytes), z[ni]);
      } else {
        load_rows(p, tile, lane, z);
      }
      normalise(p, norm_of(p), lane, z);
      if (is_first) {
        ptx::cp_async_wait_group<0>();
        __syncthreads();
      }
      if (tile >= num_tiles_of(p) || chunks.count == 0) return;
      const Mask mask = spread(mask_factor(p.mask.dtype, mask_bits), lane % 4);
      if (is_fed(p) && next < num_tiles_of(p)) start_rows(p, feed, next, lane);
      if (mask.is_selection)
        multiply<false>(p, chunks, tile, ptx::thread_again() % 32, mask, z);
      else
        multiply<true>(p, chunks, tile, ptx::thread_again() % 32, mask, z);
      tile = next;
    } while (tile < num_tiles_of(p));
  }

  static __device__ __forceinline__ void normalise(const InputProjectionParams& p, const float2* norm, int lane,
                                                   std::uint32_t (&z)[kNt][Row::kRegisters]) {
#pragma unroll
    for (int ni = 0; ni < kNt; ni += kRowsAtOnce) {
      auto& rows = reinterpret_cast<typename Row::Registers(&)[kRowsAtOnce]>(z[ni]);
      Affine affine[kRowsAtOnce];
      Row::template statistics<kRowsAtOnce>(
          rows, p.eps,
          [&](float(&means)[kRowsAtOnce]) {
#pragma unroll
            for (int k = 0; k < kRowsAtOnce; ++k) means[k] = Row::mean_as_b(rows[k], lane);
          },
          affine);
      Row::template normalise<kRowsAtOnce>(rows, affine, norm, lane % 4);
    }
  }

  /// acc = the products of 16 rows of weights, while the ones before are gated. `fragments`: of the first step, and on return of the next
  /// block's; `images`: of this block and of the next.
  template <bool kIsScaled>
  static __device__ __forceinline__ void multiply_block(const AOperand<kArithmetic, Storage::kRows>& a, const std::uint32_t (&images)[2],
                                                        const std::uint32_t (&z)[kNt][Row::kRegisters], std::uint32_t (&fragments)[2][4],
                                                        Sums& acc, const Mask& mask, int t, const Destination& before, const Sums& done) {
    constexpr int kStepsOfQuarter = Row::kSteps / kNt;
    std::uint32_t words[kNt];
#pragma unroll
    for (int ni = 0; ni < kNt; ++ni)
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[ni][i] = 0.0F;
#pragma unroll
    for (int step = 0; step < Row::kSteps; ++step) {
      const int next = (step + 1) % Row::kSteps;
      a.load(fragments[(step + 1) % 2],
             images[step + 1 == Row::kSteps ? 1 : 0] + static_cast<unsigned>(next / kStepsPerSlab<kArithmetic> * kImageBytes), 0,
             next % kStepsPerSlab<kArithmetic>);
#pragma unroll
      for (int ni = 0; ni < kNt; ++ni) mma_16bit<kArithmetic>(acc[ni], fragments[step % 2], z[ni][2 * step], z[ni][2 * step + 1]);
      if (step % kStepsOfQuarter == 0) words[step / kStepsOfQuarter] = gate<kIsScaled>(mask, t, step / kStepsOfQuarter, before, done);
    }
    if (before.is_stored) *reinterpret_cast<uint4*>(before.to) = make_uint4(words[0], words[1], words[2], words[3]);
  }

  /// kIsScaled: not every factor of the mask is 0 or 1.
  template <bool kIsScaled>
  static __device__ __forceinline__ void multiply(const InputProjectionParams& p, const Chunks& chunks, std::uint32_t tile, int lane,
                                                  const Mask& mask, const std::uint32_t (&z)[kNt][Row::kRegisters]) {
    const int g = lane / 4;
    const int t = lane % 4;
    const AOperand<kArithmetic, Storage::kRows> a(lane, 0);
    const std::int64_t block_bytes = 8 * p.positions.pitch * 2;
    // Where the block goes that is gated next; the first time, there is none.
    std::uint8_t* to =
        p.planes + (chunks.first * kInChunkChannels - 8 + g) * (p.positions.pitch * 2) + (std::int64_t{tile} * kTile + t * kOctet) * 2;
    const int blocks = chunks.count * kChunkBlocks;
    const auto own_channels = static_cast<unsigned>(max(0, p.channels - chunks.first * kInChunkChannels - g));
    const auto next_destination = [&](int block) {
      const Destination destination{static_cast<unsigned>(block * 8) < own_channels, to,
                                    kHasBias ? p.bias + chunks.first * kInChunkRows + max(block, 0) * 16 + g : nullptr};
      to += block_bytes;
      return destination;
    };
    const auto image_of = [&](int block) {
      return ptx::shared_address(shared_memory()) +
             static_cast<unsigned>(block / kChunkBlocks * kSlabs * kImageBytes + block % kChunkBlocks * 16 * kSlabRowBytes);
    };
    std::uint32_t fragments[2][4];
    a.load(fragments[0], image_of(0), 0, 0);
    Sums even;
    Sums odd = {};
#pragma unroll 1
    for (int block = 0; block < blocks; block += 2) {
      multiply_block<kIsScaled>(a, {image_of(block), image_of(block + 1)}, z, fragments, even, mask, t, next_destination(block - 1), odd);
      multiply_block<kIsScaled>(a, {image_of(block + 1), image_of(block + 2 < blocks ? block + 2 : 0)}, z, fragments, odd, mask, t,
                                next_destination(block), even);
    }
    const Destination last = next_destination(blocks - 1);
    std::uint32_t words[kNt];
#pragma unroll
    for (int ni = 0; ni < kNt; ++ni) words[ni] = gate<kIsScaled>(mask, t, ni, last, odd);
    if (last.is_stored) *reinterpret_cast<uint4*>(last.to) = make_uint4(words[0], words[1], words[2], words[3]);
  }
};

/// Blocks come in groups of p.parts, which share a tile's channels; p.groups groups.
template <Arithmetic kArithmetic, int kWidth, bool kHasBias>
__global__ void __launch_bounds__(kResidentThreads, 1)
    sm80_resident_input_projection_kernel(const __grid_constant__ InputProjectionParams p) {
  using Kernel = ResidentInputProjection<kArithmetic, kWidth, kHasBias>;
  const int part = static_cast<int>(blockIdx.x) % p.parts;
  const int most_chunks = (p.chunks + p.parts - 1) / p.parts;
  const int first_chunk = part * most_chunks;
  const typename Kernel::Chunks chunks{first_chunk, max(0, min(most_chunks, p.chunks - first_chunk))};
  const int thread = static_cast<int>(threadIdx.x);
  const std::uint32_t tile = static_cast<unsigned>(thread / 32 * p.groups) + blockIdx.x / static_cast<unsigned>(p.parts);
  Kernel::Row::copy_norm(ptx::shared_address(Kernel::norm_of(p)), p.norm);
  if (Kernel::is_fed(p) && tile < Kernel::num_tiles_of(p))
    Kernel::start_rows(p, Kernel::feed_of(p, thread), tile, thread % 32);
  else
    ptx::cp_async_commit_group();
  copy_to_shared(ptx::shared_address(Kernel::shared_memory()), p.weights + std::int64_t{first_chunk} * Kernel::kSlabs * Kernel::kImageBytes,
                 chunks.count * Kernel::kSlabs * Kernel::kImageBytes);
  ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<1>();
  __syncthreads();
  Kernel::project(p, chunks, tile);
}

}  // namespace trimul::cuda::sm80
