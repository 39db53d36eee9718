// SPDX-License-Identifier: Apache-2.0
// Input projection: LayerNorm of x -> value and gate products -> value * sigmoid(gate) * mask -> channel-major planes a and b.
// docs/kernels/sm90-input-projection.md has the roofline, the schedule and what was tried.
//
// One persistent block a multiprocessor, `warpgroups` autonomous warpgroups, no producer warp, no block-wide barrier in the loop. Weights
// stay in shared memory.
#pragma once

#include <cstdint>

#include "cuda/common/fragment_norm.cuh"
#include "cuda/common/mask.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/ptx/matrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/sm90/input_projection/config.hpp"
#include "cuda/sm90/input_projection/gated_chunk.cuh"
#include "cuda/sm90/input_projection/staging.cuh"
#include "cuda/sm90/tile_copy.cuh"

namespace trimul::cuda::sm90 {

template <typename Config>
struct InputProjection {
  static constexpr InputProjectionConfig kCfg = Config::kCfg;
  static constexpr int kWarpgroups = kCfg.warpgroups;
  static constexpr int kOutputs = 4 * kHiddenWidth;                                   // rows of the weights: values and gates of a and b
  static constexpr int kChunks = kOutputs / kInChunkRows / kCfg.parts;                // of this block
  static constexpr int kSteps = kPairWidth / 16;                                      // k steps of a product
  static constexpr int kHalfWeightBytes = kChunks * kInChunkRows * kSwizzleRowBytes;  // 64 of the 128 columns
  static constexpr int kTileBytes = kTilePositions * kPairWidth * 2;

  struct SharedStorage {
    alignas(1024) std::uint8_t weights[2 * kHalfWeightBytes];          // [2 halves of k][rows][128 bytes], swizzled
    alignas(1024) std::uint8_t x[kWarpgroups][kTileBytes];             // [2 halves of k][64 rows][128 bytes], swizzled
    alignas(1024) std::uint8_t staging[kWarpgroups][kInStagingBytes];  // [64 channels][128 bytes], swizzled
    // LayerNorm's vectors, or the biases where there are any: both do not fit, and the vectors are read less often (from L1 then).
    alignas(16) float2 vectors[kCfg.has_bias ? kChunks * kInChunkRows / 2 : kPairWidth];
    std::uint64_t x_full[kWarpgroups];    // 1 arrival: expect_tx by the thread that issues the load
    std::uint64_t weights_full[kChunks];  // 1 arrival, once
    std::uint64_t vectors_full;           // 1 arrival, once
  };
  static_assert(sizeof(SharedStorage) <= kMaxSmemBytes, "the block does not fit: fewer warpgroups");
  static_assert(has_barriers_for<Meeting>(kWarpgroups));

  struct Place : WarpPlace {
    std::uint32_t staging_row;  // this lane's row of the warp's stmatrix
  };

  static __device__ __forceinline__ Place locate(SharedStorage& smem) {
    const WarpPlace at = locate_warp();
    return {at, ptx::shared_address(smem.staging[at.warpgroup]) + staging_row_offset(at.warp, at.lane)};
  }

  /// The part of the output channels that is this block's, and its place among the blocks of that part.
  static __device__ __forceinline__ int first_chunk() { return static_cast<int>(blockIdx.x % kCfg.parts) * kChunks; }
  static __device__ __forceinline__ unsigned block() { return blockIdx.x / kCfg.parts; }
  static __device__ __forceinline__ unsigned blocks() { return gridDim.x / kCfg.parts; }

  static __device__ __forceinline__ std::uint32_t first_tile(int warpgroup) {
    return block() + static_cast<unsigned>(warpgroup) * blocks();
  }

  /// By one thread: starts the load of a tile into a warpgroup's stage. Signals x_full.
  static __device__ __forceinline__ void load_tile(const InputProjectionParams& p, SharedStorage& smem, int warpgroup, std::uint32_t tile) {
    ptx::mbarrier_arrive_expect_tx(&smem.x_full[warpgroup], kTileBytes);
    load_pair_tile<kPairWidth / kSwizzleColumns>(p.tiling, &p.x, &smem.x_full[warpgroup], smem.x[warpgroup], tile);
  }

  static __device__ __forceinline__ void init_barriers(SharedStorage& smem) {
    for (int i = 0; i < kWarpgroups; ++i) ptx::mbarrier_init(&smem.x_full[i], 1);
    for (int i = 0; i < kChunks; ++i) ptx::mbarrier_init(&smem.weights_full[i], 1);
    ptx::mbarrier_init(&smem.vectors_full, 1);
    ptx::fence_mbarrier_init();
  }

  /// By thread 0: every warpgroup's first tile, the vectors and the weights, in the order in which they are needed. All by bulk copy: an
  /// ordinary load would wait behind the hundreds of KiB that every multiprocessor asks for at this moment.
  static __device__ __forceinline__ void load_first(const InputProjectionParams& p, SharedStorage& smem) {
    ptx::mbarrier_arrive_expect_tx(&smem.vectors_full, sizeof(smem.vectors));
    ptx::bulk_load(smem.vectors, kCfg.has_bias ? static_cast<const void*>(p.bias + first_chunk() * kInChunkRows) : p.norm,
                   sizeof(smem.vectors), &smem.vectors_full);
#pragma unroll 1
    for (int i = 0; i < kWarpgroups; ++i) {
      if (first_tile(i) < p.tiling.num_tiles) load_tile(p, smem, i, first_tile(i));
      if (i == 0) load_weights(p, smem, 0);
    }
#pragma unroll 1
    for (int chunk = 1; chunk < kChunks; ++chunk) load_weights(p, smem, chunk);
  }

  static __device__ __forceinline__ void load_weights(const InputProjectionParams& p, SharedStorage& smem, int chunk) {
    ptx::mbarrier_arrive_expect_tx(&smem.weights_full[chunk], kInChunkRows * kPairWidth * 2);
    for (int half = 0; half < 2; ++half)
      ptx::tma_load_2d(smem.weights + half * kHalfWeightBytes + chunk * kInChunkRows * kSwizzleRowBytes, &p.weights,
                       &smem.weights_full[chunk], half * kSwizzleColumns, (first_chunk() + chunk) * kInChunkRows);
  }

  /// Issues acc = z W^T [+ bias] for one chunk of weight rows; not waited for.
  static __device__ __forceinline__ void project_chunk(const SharedStorage& smem, int lane, const std::uint32_t (&z)[4 * kSteps], int chunk,
                                                       InChunkSums& acc) {
    if constexpr (kCfg.has_bias) start_from_bias(smem.vectors, chunk, lane, acc);
    const std::uint64_t base = ptx::matrix_descriptor(ptx::shared_address(smem.weights), 1);
    ptx::warpgroup_fence_operand(acc);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int offset_bytes = (step / 4) * kHalfWeightBytes + chunk * kInChunkRows * kSwizzleRowBytes + (step % 4) * 32;
      ptx::wgmma_registers(acc, z + 4 * step, base + static_cast<unsigned>(offset_bytes >> 4), kCfg.has_bias || step > 0);
    }
    ptx::wgmma_commit_group();
    ptx::warpgroup_fence_operand(acc);
  }

  /// Reads this warp's 16 rows of the stage and normalises them; warp 0 refills the stage with `next` on the way.
  static __device__ __forceinline__ void take_tile(const InputProjectionParams& p, SharedStorage& smem, const Place& at,
                                                   std::uint32_t parity, std::uint32_t tile, std::uint32_t next,
                                                   std::uint32_t (&z)[4 * kSteps]) {
    ptx::mbarrier_wait(&smem.x_full[at.warpgroup], parity);
    load_row_fragments(fragment_lane_address(smem.x[at.warpgroup], at.warp, at.lane), z);
    const RowPair mean = fragment_means(z);
    // The release below depends on every loaded register through the means (prototypes that released earlier read refilled rows).
    ptx::complete_before_barrier(mean.first, mean.second);
    if (at.warp != 0) meet(at, Meeting::kTileRead);
    const RowNorm norm = fragment_norm(z, UnpackByShift{}, mean, p.eps);
    if (at.lane % 4 == 0 && first_chunk() == 0) store_statistics(p, at, tile, norm);  // one part writes them
    if (at.warp == 0) {                                                               // by now the others have read too
      meet(at, Meeting::kTileRead);
      if (at.lane == 0 && next < p.tiling.num_tiles) load_tile(p, smem, at.warpgroup, next);
      __syncwarp();
    }
    fragment_normalise(z, UnpackByShift{}, norm.affine, kCfg.has_bias ? p.norm : smem.vectors, at.lane);
  }

  /// A warpgroup's life: its tiles, one after the other.
  static __device__ __forceinline__ void project_tiles(const InputProjectionParams& p, SharedStorage& smem) {
    const Place at = locate(smem);
    if (threadIdx.x == 0) load_first(p, smem);
    __syncwarp();
    std::uint32_t tile = first_tile(at.warpgroup);
    if (tile >= p.tiling.num_tiles) return;
    const std::uint32_t step = kWarpgroups * blocks();
    // A warp has 16 positions and 32 lanes: they fetch the masks of two tiles at once, one tile ahead.
    const auto lane_mask = [&](std::uint32_t of_tile) {
      return load_tile_mask(p.mask, p.tiling, of_tile + (at.lane < 16 ? 0 : step), static_cast<unsigned>(16 * at.warp + at.lane % 16));
    };
    std::uint32_t mask_bits = lane_mask(tile);
    float mask_of_lane = 0.0F;
    std::uint32_t parity = 0;
    bool is_first = true;
    ptx::mbarrier_wait(&smem.vectors_full, 0);
    while (true) {
      const std::uint32_t next = tile + step;
      std::uint32_t z[4 * kSteps];
      take_tile(p, smem, at, parity, tile, next, z);
      if (parity == 0) mask_of_lane = mask_factor(p.mask.dtype, mask_bits);
      const RowMasks mask = spread_mask(mask_of_lane, at.lane, static_cast<int>(parity));
      if constexpr (!kCfg.has_bias) drop_masked_rows(mask, z);
      if (parity == 1) mask_bits = lane_mask(next);
      parity ^= 1;
      InChunkSums acc;
      if (is_first) ptx::mbarrier_wait(&smem.weights_full[0], 0);
      project_chunk(smem, at.lane, z, 0, acc);
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        ptx::wgmma_wait_group<0>();
        ptx::warpgroup_fence_operand(acc);
        if (!mask.are_selections) scale_values(mask, acc);
        claim_staging(at);
        gate_chunk<kCfg.has_bias>(at.staging_row, acc, mask);
        if (chunk + 1 < kChunks) {  // the next products, so that the fence and the store run beside them
          if (is_first) ptx::mbarrier_wait(&smem.weights_full[chunk + 1], 0);
          project_chunk(smem, at.lane, z, chunk + 1, acc);
        }
        store_chunk(p, smem.staging[at.warpgroup], at, tile, first_chunk() + chunk);
      }
      is_first = false;
      if (next >= p.tiling.num_tiles) break;
      tile = next;
    }
    ptx::bulk_wait_group<0>();
  }
};

template <typename Config>
__global__ void __launch_bounds__(Config::kCfg.threads(), 1) input_projection_kernel(const __grid_constant__ InputProjectionParams p) {
  using Kernel = InputProjection<Config>;
  extern __shared__ __align__(1024) std::uint8_t raw[];
  auto& smem = *reinterpret_cast<typename Kernel::SharedStorage*>(raw);
  if (threadIdx.x == 0) Kernel::init_barriers(smem);
  if (threadIdx.x == kWarpgroupThreads) {  // another warp than the one that has the barriers and the first loads to see to
    ptx::prefetch_tensormap(&p.x);
    ptx::prefetch_tensormap(&p.weights);
    ptx::prefetch_tensormap(&p.planes);
  }
  __syncthreads();
  ptx::griddepcontrol_wait();
  // After the wait: whoever starts next may then rely on everything before this kernel being finished, the packing of the weights included.
  ptx::griddepcontrol_launch_dependents();
  Kernel::project_tiles(p, smem);
}

}  // namespace trimul::cuda::sm90
