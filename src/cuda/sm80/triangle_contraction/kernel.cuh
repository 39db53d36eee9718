// SPDX-License-Identifier: Apache-2.0
// Triangle contraction: for every sample and channel y = A B^T (outgoing) or A^T B (incoming) of N x N planes.
// docs/kernels/sm80-triangle-contraction.md has the schedule and what was tried.
//
// A block has one tile of one plane at a time and streams slabs of k through a ring of shared memory, filled by cp.async. Outgoing, k runs
// along the rows of the planes, incoming across them; the operands keep the order they have in memory and are read accordingly.
#pragma once

#include "cuda/ptx/shared_address.cuh"
#include "cuda/sm80/operand.cuh"
#include "cuda/sm80/triangle_contraction/config.hpp"
#include "cuda/sm80/weight_ring.cuh"

namespace trimul::cuda::sm80 {

template <Arithmetic kArithmetic, bool kIncoming, int kTile>
struct TriangleContraction {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kTileM = kTile;
  static constexpr int kTileN = tile_columns(kArithmetic, kTile);
  static constexpr int kWarpsN = 2;
  static constexpr int kWarpRows = kTileM / 2;
  static constexpr int kWarpColumns = kTileN / 2;
  static constexpr int kMt = kWarpRows / 16;
  static constexpr int kNt = kWarpColumns / 8;
  static constexpr Storage kStorage = kIncoming ? Storage::kColumns : Storage::kRows;
  static constexpr int kElementBytes = operand_bytes(kArithmetic);
  static constexpr int kChunkElements = kChunkBytes / kElementBytes;
  static constexpr int kSlab = slab_elements(kArithmetic);
  static constexpr int kABytes = kTileM * kSlabRowBytes;
  static constexpr int kStageBytes = kABytes + kTileN * kSlabRowBytes;

  struct Tile {
    const std::uint8_t* a;  // the plane
    const std::uint8_t* b;
    std::uint8_t* y;
    std::int64_t m, n;  // first row and column
  };

  static __device__ __forceinline__ Tile locate(const TriangleContractionParams& p, std::int64_t tile) {
    const std::int64_t per_plane = p.tiles_m * p.tiles_n;
    const std::int64_t plane = tile / per_plane;
    const std::int64_t place = tile - plane * per_plane;
    const std::int64_t channel = plane / p.batch;
    const std::int64_t offset = channel * p.pitch + (plane - channel * p.batch) * p.sample;
    return {p.a + offset * kElementBytes, p.b + offset * kElementBytes, p.y + offset * y_bytes(kArithmetic), place / p.tiles_n * kTileM,
            place % p.tiles_n * kTileN};
  }

  static __device__ __forceinline__ int clamp_bytes(std::int32_t elements) { return min(max(elements, 0), kChunkElements) * kElementBytes; }

  /// One thread's copies of one operand's part of the slabs: every kPassRows-th row of what lies in memory as rows, one chunk of each. What
  /// is outside of the plane becomes zero.
  template <int kRows>
  struct Loader {
    static constexpr int kRowChunks = kIncoming ? kRows / kChunkElements : kChunksPerSlabRow;  // of a row in memory
    static constexpr int kMemoryRows = kIncoming ? kSlab : kRows;                              // of a slab
    static constexpr int kPassRows = kThreads / kRowChunks;
    static constexpr int kPasses = kMemoryRows / kPassRows;

    const std::uint8_t* from;   // of the next slab
    std::uint32_t to;           // in a stage
    std::int32_t row;           // first row of the thread
    std::int32_t rows_left;     // inside of the plane, from the slab's first row on
    std::int32_t columns_left;  // the same of columns, from the thread's chunk on

    __device__ __forceinline__ Loader(const TriangleContractionParams& p, const std::uint8_t* plane, std::int64_t first) {
      const int thread = static_cast<int>(threadIdx.x);
      const int chunk = thread % kRowChunks;
      row = thread / kRowChunks;
      const std::int64_t memory_row = (kIncoming ? 0 : first) + row;
      const std::int64_t column = (kIncoming ? first : 0) + chunk * kChunkElements;
      from = plane + (memory_row * p.n_pad + column) * kElementBytes;
      rows_left = static_cast<std::int32_t>(p.tokens - (kIncoming ? 0 : first));
      columns_left = static_cast<std::int32_t>(p.tokens - column);
      const int key = kIncoming ? column_key<kArithmetic>(row) : row & 7;  // the same for all of the thread's rows
      to = static_cast<unsigned>((kIncoming ? chunk / kChunksPerSlabRow * kSliceBytes<kArithmetic> : 0) + row * kSlabRowBytes +
                                 ((chunk % kChunksPerSlabRow ^ key) << 4));
    }

    /// Starts the copies of the next slab.
    __device__ __forceinline__ void load(std::int64_t row_bytes, std::uint32_t stage) {
      const int bytes = clamp_bytes(columns_left);
      const std::uint8_t* source = from;
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        ptx::cp_async_16(stage + to + static_cast<unsigned>(pass * kPassRows * kSlabRowBytes), source,
                         row + pass * kPassRows < rows_left ? bytes : 0);
        source += kPassRows * row_bytes;
      }
      if constexpr (kIncoming) {
        from = source;
        rows_left -= kSlab;
      } else {
        from += kSlabRowBytes;
        columns_left -= kSlab;
      }
    }
  };

  static __device__ __forceinline__ void store_tile(const TriangleContractionParams& p, const Tile& tile, int first_row, int first_column,
                                                    const float (&acc)[kMt][kNt][4]) {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int mi = 0; mi < kMt; ++mi)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const std::int64_t row = tile.m + first_row + a_row<kArithmetic, kStorage>(lane, mi, h);
        if (row >= p.tokens) continue;
        std::uint8_t* const to = tile.y + (row * p.n_pad) * y_bytes(kArithmetic);
#pragma unroll
        for (int ni = 0; ni < kNt; ++ni) {
          // The column is even and n_pad too: where it is inside of N, the next one is at least padding.
          const std::int64_t column = tile.n + first_column + b_row<kArithmetic, kStorage>(lane, ni);
          if (column >= p.tokens) continue;
          const float low = acc[mi][ni][2 * h];
          const float high = acc[mi][ni][2 * h + 1];
          if constexpr (y_bytes(kArithmetic) == 2)
            *reinterpret_cast<std::uint32_t*>(to + column * 2) = pack_bf16(low, high);
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
    Loader<kTileM> a_loader(p, tile.a, tile.m);
    Loader<kTileN> b_loader(p, tile.b, tile.n);
    const int slabs = static_cast<int>((p.tokens + kSlab - 1) / kSlab);
    const std::int64_t row_bytes = p.n_pad * kElementBytes;
    int loaded = 0;
    const auto load_next = [&](std::uint32_t stage) {
      if (loaded < slabs) {
        a_loader.load(row_bytes, stage);
        b_loader.load(row_bytes, stage + kABytes);
      }
      ptx::cp_async_commit_group();
      ++loaded;
    };
    for (int stage = 0; stage < p.stages - 1; ++stage) load_next(smem + static_cast<unsigned>(stage * kStageBytes));
    float acc[kMt][kNt][4];
    clear(acc);
    std::uint32_t read_stage = smem;
    const std::uint32_t last_stage = smem + static_cast<unsigned>((p.stages - 1) * kStageBytes);
    std::uint32_t write_stage = last_stage;
#pragma unroll 1
    for (int slab = 0; slab < slabs; ++slab) {
      wait_for_oldest(p.stages);
      __syncthreads();  // every thread's copies are there, and the stage to write has been read
      load_next(write_stage);
      multiply_slab(acc, a, read_stage, b, read_stage + kABytes);
      write_stage = read_stage;  // the one that has just been read is the next to be written
      read_stage = read_stage == last_stage ? smem : read_stage + kStageBytes;
    }
    store_tile(p, tile, first_row, first_column, acc);
  }
};

template <Arithmetic kArithmetic, bool kIncoming, int kTile>
__global__ void __launch_bounds__(kBlockThreads, kTile == 128 ? 2 : 4)
    sm80_triangle_contraction_kernel(const __grid_constant__ TriangleContractionParams p) {
  using Kernel = TriangleContraction<kArithmetic, kIncoming, kTile>;
  extern __shared__ __align__(1024) std::uint8_t raw[];
  for (std::int64_t tile = blockIdx.x; tile < p.total_tiles; tile += gridDim.x) {
    Kernel::contract_tile(p, ptx::shared_address(raw), tile);
    __syncthreads();
  }
}

}  // namespace trimul::cuda::sm80
