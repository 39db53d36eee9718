// SPDX-License-Identifier: Apache-2.0
// The input projection of 16-bit rows of 64 or 128 channels: all weights of a block stay in shared memory, and every warp works by itself,
// its rows in registers from the load to the last product. No barrier after the weights have arrived.
#pragma once

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
  static constexpr int kJoined = kHasBias && kArithmetic == Arithmetic::kBf16 ? 1 : 2;  // blocks of 16 rows at a time, as registers allow
  static constexpr int kRowsAtOnce =
      kArithmetic == Arithmetic::kBf16 ? 4 : 2;  // that share the reading of the norm's pairs, as registers allow
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

  /// Gates of 16 rows of weights at 32 positions: rows g hold values, rows g + 8 their gates. A zero mask selects zero, whatever x holds.
  static __device__ __forceinline__ void store_rows(const Mask& mask, int t, std::uint8_t* to, float (&acc)[kNt][4]) {
    if (!mask.is_selection) {
#pragma unroll
      for (int i = 0; i < kOctet; ++i) acc[i / 2][i % 2] *= factor_of(mask, t, i);
    }
    std::uint32_t words[4];
#pragma unroll
    for (int ni = 0; ni < kNt; ++ni)
      words[ni] =
          pack_pair<kArithmetic>(gated_packed<kArithmetic>(acc[ni][0], acc[ni][2]), gated_packed<kArithmetic>(acc[ni][1], acc[ni][3])) &
          mask.words[ni];
    if (to != nullptr) *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
  }

  static __device__ __forceinline__ void project_tile(const InputProjectionParams& p, const float2* norm, std::uint32_t weights,
                                                      int first_chunk, int chunks, std::int64_t tile) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int g = lane / 4;
    const int t = lane % 4;
    const Positions::Start begin = p.positions.start(tile * kTile);
    // Column 2 t + e of n-tile ni is position 8 t + 2 ni + e: a thread's results are eight positions in a row.
    std::uint32_t z[kNt][Row::kRegisters];
#pragma unroll
    for (int ni = 0; ni < kNt; ++ni) {
      const Positions::Pair pair = p.positions.pair(begin, g / 2 * 8 + 2 * ni + g % 2);
      if (pair.is_valid) {
        Row::load(row_address(p.x, pair.index(p.positions.tokens)), p.x.is_vectorised, t, z[ni]);
      } else {
#pragma unroll
        for (std::uint32_t& value : z[ni]) value = 0;
      }
    }
    const Mask mask = spread(Whole::mask_of(p, p.positions.pair(begin, lane)), t);
    const auto mean_of = [lane](const typename Row::Registers& values) { return Row::mean_as_b(values, lane); };
#pragma unroll
    for (int ni = 0; ni < kNt; ni += kRowsAtOnce) {
      auto& rows = reinterpret_cast<typename Row::Registers(&)[kRowsAtOnce]>(z[ni]);
      Affine affine[kRowsAtOnce];
#pragma unroll
      for (int k = 0; k < kRowsAtOnce; ++k) affine[k] = Row::statistics(rows[k], mean_of(rows[k]), p.eps, mean_of);
      Row::template normalise<kRowsAtOnce>(rows, affine, norm, t);
    }

    const AOperand<kArithmetic, Storage::kRows> a(lane, 0);
    const std::int64_t channel_bytes = p.positions.pitch * 2;
    std::uint8_t* to = p.planes + (first_chunk * kInChunkChannels + g) * channel_bytes + (tile * kTile + t * kOctet) * 2;
    const int blocks = chunks * kChunkBlocks;
    const int own_channels = p.channels - first_chunk * kInChunkChannels - g;
    // Of two blocks of 16 rows the products of one run while the other is gated.
#pragma unroll 1
    for (int block = 0; block < blocks; block += kJoined) {
      const std::uint32_t image =
          weights + static_cast<unsigned>(block / kChunkBlocks * kSlabs * kImageBytes + block % kChunkBlocks * 16 * kSlabRowBytes);
      float acc[kJoined][kNt][4] = {};
#pragma unroll
      for (int step = 0; step < Row::kSteps; ++step)
#pragma unroll
        for (int k = 0; k < kJoined; ++k) {
          std::uint32_t fragment[4];
          a.load(fragment, image + static_cast<unsigned>(step / kStepsPerSlab * kImageBytes), k, step % kStepsPerSlab);
#pragma unroll
          for (int ni = 0; ni < kNt; ++ni) mma_16bit<kArithmetic>(acc[k][ni], fragment, z[ni][2 * step], z[ni][2 * step + 1]);
        }
#pragma unroll
      for (int k = 0; k < kJoined; ++k) {
        if constexpr (kHasBias) {
          const float* const bias = p.bias + first_chunk * kInChunkRows + (block + k) * 16 + g;
          const float value_bias = __ldg(bias);
          const float gate_bias = __ldg(bias + 8);
#pragma unroll
          for (int ni = 0; ni < kNt; ++ni)
            acc[k][ni][0] += value_bias, acc[k][ni][1] += value_bias, acc[k][ni][2] += gate_bias, acc[k][ni][3] += gate_bias;
        }
        store_rows(mask, t, (block + k) * 8 < own_channels ? to : nullptr, acc[k]);
        to += 8 * channel_bytes;
      }
    }
  }
};

/// Blocks come in groups of p.parts, which share a tile's channels.
template <Arithmetic kArithmetic, int kWidth, bool kHasBias>
__global__ void __launch_bounds__(kResidentThreads, 1)
    sm80_resident_input_projection_kernel(const __grid_constant__ InputProjectionParams p) {
  using Kernel = ResidentInputProjection<kArithmetic, kWidth, kHasBias>;
  extern __shared__ __align__(1024) std::uint8_t raw[];
  const int part = static_cast<int>(blockIdx.x) % p.parts;
  const int chunks = (p.chunks + p.parts - 1) / p.parts;
  const int first_chunk = part * chunks;
  const int own_chunks = max(0, min(chunks, p.chunks - first_chunk));
  const int weight_bytes = chunks * Kernel::kSlabs * Kernel::kImageBytes;
  copy_to_shared(ptx::shared_address(raw), p.weights + std::int64_t{first_chunk} * Kernel::kSlabs * Kernel::kImageBytes,
                 own_chunks * Kernel::kSlabs * Kernel::kImageBytes);
  copy_to_shared(ptx::shared_address(raw) + static_cast<unsigned>(weight_bytes), reinterpret_cast<const std::uint8_t*>(p.norm), kWidth * 8);
  ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<0>();
  __syncthreads();
  const std::int64_t groups = gridDim.x / static_cast<unsigned>(p.parts);
  const std::int64_t group = blockIdx.x / static_cast<unsigned>(p.parts);
  const int warp = static_cast<int>(threadIdx.x / 32);
  for (std::int64_t tile = warp * groups + group; tile < p.num_tiles; tile += groups * Kernel::kWarps)
    Kernel::project_tile(p, reinterpret_cast<const float2*>(raw + weight_bytes), ptx::shared_address(raw), first_chunk, own_chunks, tile);
}

}  // namespace trimul::cuda::sm80
