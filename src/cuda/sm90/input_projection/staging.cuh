// SPDX-License-Identifier: Apache-2.0
// How the four warps of a warpgroup of the input projection work together, in both kernels: each has 16 of the tile's 64 positions, warp 0
// issues the copies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/common/fragment_norm.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/sm90/input_projection/config.hpp"
#include "cuda/sm90/input_projection/gated_chunk.cuh"
#include "cuda/sm90/warpgroup.cuh"

namespace trimul::cuda::sm90 {

/// Where the warps of a warpgroup meet. Of the two sides only the one named here waits.
enum class Meeting : unsigned {
  kTileRead,     // warp 0 waits: the tile is in all warps' registers, its stage may be refilled
  kStagingFull,  // warp 0 waits: all warps have written their part of a chunk
  kStagingFree,  // warps 1 to 3 wait: the store before has left the staging buffer
  kCount
};
__device__ __forceinline__ void meet(const WarpPlace& at, Meeting meeting) {
  meet(at, meeting, (at.warp == 0) == (meeting != Meeting::kStagingFree));
}

/// Before a warp writes to the staging buffer: waits until the chunk before has been read out of it.
__device__ __forceinline__ void claim_staging(const WarpPlace& at) {
  if (at.warp == 0) {
    if (at.lane == 0) ptx::bulk_wait_group_read<0>();
    __syncwarp();
  }
  meet(at, Meeting::kStagingFree);
}

/// After a warp has written its part of a chunk of the weights: once all have, warp 0 stores the whole.
__device__ __forceinline__ void store_chunk(const InputProjectionParams& p, const std::uint8_t* staging, const WarpPlace& at,
                                            std::uint32_t tile, int chunk) {
  ptx::fence_proxy_async_shared();
  meet(at, Meeting::kStagingFull);
  if (at.warp == 0 && at.lane == 0) {
    ptx::tma_store_2d(&p.planes, staging, static_cast<int>(tile * kTilePositions), chunk * kInChunkChannels);
    ptx::bulk_commit_group();
  }
  __syncwarp();
}

/// By the first lane of each quad: keeps how its two rows were normalised; x itself is what the factors apply to.
__device__ __forceinline__ void store_statistics(const InputProjectionParams& p, const WarpPlace& at, std::uint32_t tile,
                                                 const RowNorm& norm) {
  float2* const rows = p.statistics + std::size_t{tile} * kTilePositions + 16 * at.warp + at.lane / 4;
  rows[0] = make_float2(norm.affine.scale.first * norm.factor.first, norm.affine.shift.first);
  rows[8] = make_float2(norm.affine.scale.second * norm.factor.second, norm.affine.shift.second);
}

}  // namespace trimul::cuda::sm90
