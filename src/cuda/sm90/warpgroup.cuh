// SPDX-License-Identifier: Apache-2.0
// A warp's place among the warpgroups of a block, and the named barriers at which the four warps of a warpgroup meet.
#pragma once

#include <cstdint>

#include "cuda/ptx/grid.cuh"
#include "cuda/sm90/limits.hpp"

namespace trimul::cuda::sm90 {

/// What a warp knows about itself.
struct WarpPlace {
  int lane, warp, warpgroup;  // warp: 0..3 in its warpgroup
};

__device__ __forceinline__ WarpPlace locate_warp() {
  WarpPlace at;
  at.lane = static_cast<int>(threadIdx.x % 32);
  const int warp_in_block = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x / 32), 0);  // uniform for ptxas
  at.warpgroup = warp_in_block / 4;
  at.warp = warp_in_block % 4;
  return at;
}

/// Are there named barriers for the meetings, an enumeration that ends in kCount, of so many warpgroups? 0 is the block's.
template <typename Meeting>
constexpr bool has_barriers_for(int warpgroups) {
  return static_cast<unsigned>(warpgroups) * static_cast<unsigned>(Meeting::kCount) < 16;
}

/// By each warp of a warpgroup once. Who `waits` goes on when all have come, the others at once.
template <typename Meeting>
__device__ __forceinline__ void meet(const WarpPlace& at, Meeting meeting, bool waits) {
  const unsigned barrier =
      1 + static_cast<unsigned>(at.warpgroup) * static_cast<unsigned>(Meeting::kCount) + static_cast<unsigned>(meeting);
  if (waits)
    ptx::named_barrier_sync(barrier, kWarpgroupThreads);
  else
    ptx::named_barrier_arrive(barrier, kWarpgroupThreads);
}

}  // namespace trimul::cuda::sm90
