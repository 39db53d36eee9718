// SPDX-License-Identifier: Apache-2.0
// Tiles of 64 positions of x and out between memory and shared memory, and shared memory and registers. A tile in shared memory is
// [blocks of 64 channels][64 rows][128 bytes], 128-byte swizzled.
#pragma once

#include "cuda/common/pair_tiling.hpp"
#include "cuda/ptx/matrix.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/sm90/limits.hpp"

namespace trimul::cuda::sm90 {

inline constexpr int kTileBlockBytes = kTilePositions * kSwizzleRowBytes;
inline constexpr int kTileWarpRows = 16;  // rows of a tile that one warp of the warpgroup holds

/// By one thread: loads a tile of `kBlocks` blocks; 8 KiB for each complete on `barrier` whatever part of it lies outside. The map is
/// [blocks, rows, columns, 64] with boxes of 64 columns and all blocks, or of 8 columns and one block for TileCopy::kUnits.
template <int kBlocks>
__device__ __forceinline__ void load_pair_tile(const PairTiling& tiling, const CUtensorMap* map, std::uint64_t* barrier,
                                               std::uint8_t* tile_smem, std::uint32_t tile) {
  if (tiling.copy == TileCopy::kFlat) {
    ptx::tma_load_4d(tile_smem, map, barrier, 0, static_cast<int>(tile * kTilePositions), 0, 0);
    return;
  }
  if (tiling.copy == TileCopy::kRow) {
    const PairTiling::Unit unit = tiling.unit(tile, 0);
    ptx::tma_load_4d(tile_smem, map, barrier, 0, static_cast<int>(unit.column), static_cast<int>(unit.row), 0);
    return;
  }
#pragma unroll 1
  for (int k = 0; k < kTilePositions / kUnitPositions; ++k) {
    const PairTiling::Unit unit = tiling.unit(tile, static_cast<unsigned>(k));
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
      ptx::tma_load_4d(tile_smem + block * kTileBlockBytes + k * kUnitPositions * kSwizzleRowBytes, map, barrier, 0,
                       static_cast<int>(unit.column), static_cast<int>(unit.row), block);
  }
}

/// By one thread of a warp: stores the warp's 16 rows of `kBlocks` blocks of a tile, from block `first` on, in the thread's current bulk
/// group. Columns from N on are clipped. The map is [blocks, rows, columns, 64] with boxes of one block and 16 columns, or 8 for
/// TileCopy::kUnits.
template <int kBlocks>
__device__ __forceinline__ void store_pair_rows(const PairTiling& tiling, const CUtensorMap* map, const std::uint8_t* tile_smem,
                                                std::uint32_t tile, int warp, int first = 0) {
  const std::uint8_t* rows = tile_smem + first * kTileBlockBytes + warp * kTileWarpRows * kSwizzleRowBytes;
  if (tiling.copy == TileCopy::kUnits) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const PairTiling::Unit unit = tiling.unit(tile, static_cast<unsigned>(2 * warp + k));
#pragma unroll
      for (int block = 0; block < kBlocks; ++block)
        ptx::tma_store_4d(map, rows + block * kTileBlockBytes + k * kUnitPositions * kSwizzleRowBytes, 0, static_cast<int>(unit.column),
                          static_cast<int>(unit.row), first + block);
    }
    return;
  }
  std::int32_t column = static_cast<int>(tile * kTilePositions);
  std::int32_t row = 0;
  if (tiling.copy == TileCopy::kRow) {
    const PairTiling::Unit unit = tiling.unit(tile, 0);
    column = static_cast<int>(unit.column);
    row = static_cast<int>(unit.row);
  }
#pragma unroll
  for (int block = 0; block < kBlocks; ++block)
    ptx::tma_store_4d(map, rows + block * kTileBlockBytes, 0, column + warp * kTileWarpRows, row, first + block);
}

/// Address of the 16-byte row that this lane passes to ldmatrix and stmatrix for k step 0: matrices (rows 0-7, channels 0-7), (rows 8-15,
/// channels 0-7), (rows 0-7, channels 8-15), (rows 8-15, channels 8-15) of the warp's 16 rows and the step's 16 channels.
__device__ __forceinline__ std::uint32_t fragment_lane_address(const std::uint8_t* tile_smem, int warp, int lane) {
  const int matrix = lane / 8;
  const int row = kTileWarpRows * warp + (matrix & 1) * 8 + lane % 8;
  return ptx::shared_address(tile_smem) + static_cast<unsigned>(row * kSwizzleRowBytes + (((matrix >> 1) ^ (row & 7)) << 4));
}

/// The same for a later step. The swizzle is an exclusive or, so that one register serves all steps (tiles are 1024-byte aligned).
__device__ __forceinline__ std::uint32_t fragment_address(std::uint32_t lane_address, int step) {
  return (lane_address ^ static_cast<unsigned>((step % 4) << 5)) + static_cast<unsigned>((step / 4) * kTileBlockBytes);
}

/// This warp's 16 rows as A fragments: registers 4 step .. 4 step + 3.
template <int kRegisters>
__device__ __forceinline__ void load_row_fragments(std::uint32_t lane_address, std::uint32_t (&fragments)[kRegisters]) {
#pragma unroll
  for (int step = 0; step < kRegisters / 4; ++step)
    ptx::ldmatrix_x4(*reinterpret_cast<std::uint32_t(*)[4]>(&fragments[4 * step]), fragment_address(lane_address, step));
}

/// The same out of a tile that is [channels][64 positions], 128-byte swizzled: transposed on the way.
template <int kRegisters>
__device__ __forceinline__ void load_column_fragments(const std::uint8_t* tile_smem, int warp, int lane,
                                                      std::uint32_t (&fragments)[kRegisters]) {
  const int matrix = lane / 8;
  const int row = lane % 8;
  const std::uint32_t base = ptx::shared_address(tile_smem) +
                             static_cast<unsigned>(((matrix >> 1) * 8 + row) * kSwizzleRowBytes + (((2 * warp + (matrix & 1)) ^ row) << 4));
#pragma unroll
  for (int step = 0; step < kRegisters / 4; ++step)
    ptx::ldmatrix_x4_trans(*reinterpret_cast<std::uint32_t(*)[4]>(&fragments[4 * step]),
                           base + static_cast<unsigned>(step * 16 * kSwizzleRowBytes));
}

}  // namespace trimul::cuda::sm90
