// SPDX-License-Identifier: Apache-2.0
// Triangle contraction: for every sample and channel y = A B^T (outgoing) or A^T B (incoming) of N x N planes.
// docs/kernels/sm80-triangle-contraction.md has the schedule and what was tried.
//
// A block has one square tile of one plane at a time and streams slabs of k through a ring of shared memory, filled by cp.async. Outgoing, k runs
// along the rows of the planes, incoming across them; the operands keep the order they have in memory and are read accordingly.
#pragma once

#include "cuda/ptx/shared_address.cuh"
#include "cuda/sm80/operand.cuh"
#include "cuda/sm80/triangle_contraction/config.hpp"
#include "cuda/sm80/weight_ring.cuh"

namespace trimul::cuda::sm80 {

template <Arithmetic kArithmetic, bool kIncoming, int kTile>
struct TriangleContraction {
  static constexpr int kThreads = 2 * kTile;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kWarpsN = kTile / kWarpColumns;
  static constexpr int kWarpRows = kTile / (kWarps / kWarpsN);
  static constexpr int kMt = kWarpRows / 16;
  static constexpr Storage kStorage = kIncoming ? Storage::kColumns : Storage::kRows;
  static constexpr int kElementBytes = operand_bytes(kArithmetic);
  static constexpr int kChunkElements = kChunkBytes / kElementBytes;
  static constexpr int kSlab = slab_elements(kArithmetic);
  static constexpr int kOperandBytes = kTile * kSlabRowBytes;
  static constexpr int kStageBytes = 2 * kOperandBytes;
  static constexpr int kChunksPerThread = kOperandBytes / kChunkBytes / kThreads;

  struct Tile {
    const std::uint8_t* a;  // the plane
    const std::uint8_t* b;
    std::uint8_t* y;
    std::int64_t m, n;  // first row and column
  };

  static __device__ __forceinline__ Tile locate(const TriangleContractionParams& p, std::int64_t tile) {
    const std::int64_t per_plane = p.tiles * p.tiles;
    const std::int64_t plane = tile / per_plane;
    const std::int64_t place = tile - plane * per_plane;
    const std::int64_t channel = plane / p.batch;
    const std::int64_t offset = channel * p.pitch + (plane - channel * p.batch) * p.sample;
    return {p.a + offset * kElementBytes, p.b + offset * kElementBytes, p.y + offset * y_bytes(kArithmetic), place / p.tiles * kTile,
            place % p.tiles * kTile};
  }

  static __device__ __forceinline__ int clamp_bytes(std::int64_t elements) {
    return static_cast<int>(elements <= 0 ? 0 : elements >= kChunkElements ? kChunkBytes : elements * kElementBytes);
  }

  /// Starts the copy of one operand's part of a slab. What lies outside of the plane becomes zero.
  static __device__ __forceinline__ void load_operand(const TriangleContractionParams& p, const std::uint8_t* plane, std::int64_t first,
                                                      std::int64_t k, std::uint32_t to) {
    const int thread = static_cast<int>(threadIdx.x);
    if constexpr (!kIncoming) {
      const int chunk = thread % kChunksPerSlabRow;
      const int bytes = clamp_bytes(p.tokens - k - chunk * kChunkElements);
#pragma unroll
      for (int i = 0; i < kChunksPerThread; ++i) {
        const int row = thread / kChunksPerSlabRow + i * (kThreads / kChunksPerSlabRow);
        const bool is_inside = first + row < p.tokens && bytes > 0;
        const std::uint8_t* const from = plane + (is_inside ? ((first + row) * p.n_pad + k + chunk * kChunkElements) * kElementBytes : 0);
        ptx::cp_async_16(to + static_cast<unsigned>(row * kSlabRowBytes + ((chunk ^ (row & 7)) << 4)), from, is_inside ? bytes : 0);
      }
    } else {
      constexpr int kRowChunks = kTile / kChunkElements;  // of one k
      const int chunk = thread % kRowChunks;
      const int bytes = clamp_bytes(p.tokens - first - chunk * kChunkElements);
#pragma unroll
      for (int i = 0; i < kChunksPerThread; ++i) {
        const int row = thread / kRowChunks + i * (kThreads / kRowChunks);
        const bool is_inside = k + row < p.tokens && bytes > 0;
        const std::uint8_t* const from = plane + (is_inside ? ((k + row) * p.n_pad + first + chunk * kChunkElements) * kElementBytes : 0);
        const int place = (chunk % kChunksPerSlabRow) ^ column_key<kArithmetic>(row);
        ptx::cp_async_16(to + static_cast<unsigned>(chunk / kChunksPerSlabRow * kSliceBytes<kArithmetic> + row * kSlabRowBytes + (place << 4)), from,
                         is_inside ? bytes : 0);
      }
    }
  }

  static __device__ __forceinline__ void load_slab(const TriangleContractionParams& p, const Tile& tile, std::int64_t slab, std::uint32_t to) {
    if (slab * kSlab < p.tokens) {
      load_operand(p, tile.a, tile.m, slab * kSlab, to);
      load_operand(p, tile.b, tile.n, slab * kSlab, to + kOperandBytes);
    }
    ptx::cp_async_commit_group();
  }

  static __device__ __forceinline__ void store_tile(const TriangleContractionParams& p, const Tile& tile, int first_row, int first_column,
                                                    const float (&acc)[kMt][kWarpTilesN][4]) {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int mi = 0; mi < kMt; ++mi)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const std::int64_t row = tile.m + first_row + a_row<kArithmetic, kStorage>(lane, mi, h);
        if (row >= p.tokens) continue;
        std::uint8_t* const to = tile.y + (row * p.n_pad) * y_bytes(kArithmetic);
#pragma unroll
        for (int ni = 0; ni < kWarpTilesN; ++ni) {
          // The column is even and n_pad too: where it is inside of N, the next one is at least padding.
          const std::int64_t column = tile.n + first_column + b_row<kArithmetic, kStorage>(lane, ni);
          if (column >= p.tokens) continue;
          const float low = acc[mi][ni][2 * h];
          const float high = acc[mi][ni][2 * h + 1];
          if constexpr (y_bytes(kArithmetic) == 2)
            *reinterpret_cast<std::uint32_t*>(to + column * 2) = pack_pair_bf16(low, high);
          else
            *reinterpret_cast<float2*>(to + column * 4) = make_float2(low, high);
        }
      }
  }

  static __device__ __forceinline__ void contract_tile(const TriangleContractionParams& p, std::uint32_t smem, std::int64_t index) {
    const Tile tile = locate(p, index);
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int warp = static_cast<int>(threadIdx.x / 32);
    const int first_row = warp / kWarpsN * kWarpRows;
    const int first_column = warp % kWarpsN * kWarpColumns;
    const AOperand<kArithmetic, kStorage> a(lane, first_row);
    const BOperand<kArithmetic, kStorage> b(lane, first_column);
    for (int stage = 0; stage < p.stages - 1; ++stage) load_slab(p, tile, stage, smem + static_cast<unsigned>(stage * kStageBytes));
    float acc[kMt][kWarpTilesN][4];
    clear(acc);
    int read_stage = 0;
    int write_stage = p.stages - 1;
    const std::int64_t slabs = (p.tokens + kSlab - 1) / kSlab;
#pragma unroll 1
    for (std::int64_t slab = 0; slab < slabs; ++slab) {
      wait_for_oldest(p.stages);
      __syncthreads();  // every thread's copies are there, and the stage to write has been read
      load_slab(p, tile, slab + p.stages - 1, smem + static_cast<unsigned>(write_stage * kStageBytes));
      const std::uint32_t stage = smem + static_cast<unsigned>(read_stage * kStageBytes);
      multiply_slab(acc, a, stage, b, stage + kOperandBytes);
      read_stage = read_stage + 1 == p.stages ? 0 : read_stage + 1;
      write_stage = write_stage + 1 == p.stages ? 0 : write_stage + 1;
    }
    store_tile(p, tile, first_row, first_column, acc);
  }
};

template <Arithmetic kArithmetic, bool kIncoming, int kTile>
__global__ void __launch_bounds__(2 * kTile, kProjectionThreadsPerSm<kArithmetic> / (2 * kTile))
    sm80_triangle_contraction_kernel(const __grid_constant__ TriangleContractionParams p) {
  using Kernel = TriangleContraction<kArithmetic, kIncoming, kTile>;
  extern __shared__ __align__(1024) std::uint8_t raw[];
  for (std::int64_t tile = blockIdx.x; tile < p.total_tiles; tile += gridDim.x) {
    Kernel::contract_tile(p, ptx::shared_address(raw), tile);
    __syncthreads();
  }
}

}  // namespace trimul::cuda::sm80
