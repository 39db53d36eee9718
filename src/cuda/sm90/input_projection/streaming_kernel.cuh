// SPDX-License-Identifier: Apache-2.0
// Input projection at C_z = C = 256, whose weights (512 KiB) do not fit shared memory: as kernel.cuh, but the weights stream past the rows.
// docs/kernels/sm90-input-projection.md has the roofline, the schedule and what was tried.
//
// One persistent block a multiprocessor: a producer thread keeps a ring of weights full, three warpgroups own a tile each, whose normalised
// rows stay in their registers, and read every stage of the ring in the same order.
#pragma once

#include "cuda/ptx/grid.cuh"
#include "cuda/sm90/input_projection/config.hpp"
#include "cuda/sm90/input_projection/gated_chunk.cuh"
#include "cuda/sm90/input_projection/staging.cuh"
#include "cuda/sm90/tile_copy.cuh"
#include "cuda/sm90/weight_ring.cuh"

namespace trimul::cuda::sm90 {

template <bool kHasBias>
struct StreamingInputProjection {
  static constexpr int kWarpgroups = kStreamingInputWarpgroups;
  static constexpr int kChunks = 4 * kWideWidth / kInChunkRows;
  static constexpr int kRegisters = kWideWidth / 4;  // of a thread's part of a warp's 16 rows
  static constexpr int kTileBytes = kTilePositions * kWideWidth * 2;
  using Ring = WeightRing<3, kInChunkRows, 2>;
  static constexpr int kStagesPerChunk = kWideWidth / 16 / Ring::kSteps;

  struct SharedStorage {
    Ring weights;
    alignas(1024) std::uint8_t x[kWarpgroups][kTileBytes];             // [4 blocks of 64 channels][64 rows][128 bytes], swizzled
    alignas(1024) std::uint8_t staging[kWarpgroups][kInStagingBytes];  // [64 channels][128 bytes], swizzled
    alignas(16) float2 norm[kWideWidth];
    alignas(16) float2 bias[kHasBias ? kChunks * kInChunkPairs : 1];
    std::uint64_t x_full[kWarpgroups];  // 1 arrival: expect_tx by the thread that issues the load
    std::uint64_t vectors_full;         // 1 arrival, once
  };
  static_assert(sizeof(SharedStorage) <= kMaxSmemBytes);
  static_assert(has_barriers_for<Meeting>(kWarpgroups));

  /// The part of the output channels that is this block's, and its place among the blocks of that part. Blocks of a part follow one
  /// another.
  static __device__ __forceinline__ bool is_second_part(const InputProjectionParams& p) { return blockIdx.x >= p.part_blocks; }
  static __device__ __forceinline__ std::uint32_t block(const InputProjectionParams& p) {
    return blockIdx.x - (is_second_part(p) ? p.part_blocks : 0);
  }
  static __device__ __forceinline__ int first_chunk(const InputProjectionParams& p) { return is_second_part(p) ? p.part_chunks : 0; }
  static __device__ __forceinline__ std::uint32_t tile_step(const InputProjectionParams& p) { return kWarpgroups * p.part_blocks; }

  static __device__ __forceinline__ void init_barriers(SharedStorage& smem) {
    smem.weights.init(4 * kWarpgroups);
    for (int i = 0; i < kWarpgroups; ++i) ptx::mbarrier_init(&smem.x_full[i], 1);
    ptx::mbarrier_init(&smem.vectors_full, 1);
    ptx::fence_mbarrier_init();
  }

  /// By one thread: the vectors, then the weights, once for every round.
  static __device__ __forceinline__ void produce(const InputProjectionParams& p, SharedStorage& smem) {
    ptx::mbarrier_arrive_expect_tx(&smem.vectors_full, sizeof(smem.norm) + (kHasBias ? sizeof(smem.bias) : 0));
    ptx::bulk_load(smem.norm, p.norm, sizeof(smem.norm), &smem.vectors_full);
    if constexpr (kHasBias) ptx::bulk_load(smem.bias, p.bias, sizeof(smem.bias), &smem.vectors_full);
    auto place = Ring::producer();
#pragma unroll 1
    for (std::uint32_t first_tile = block(p); first_tile < p.tiling.num_tiles; first_tile += tile_step(p))
#pragma unroll 1
      for (int k = 0; k < p.part_chunks * kStagesPerChunk; ++k)
        smem.weights.fill(place, &p.weights, k % kStagesPerChunk * Ring::kSteps * 16,
                          (first_chunk(p) + k / kStagesPerChunk) * kInChunkRows);
  }

  /// By one thread: starts the load of a tile into a warpgroup's stage. Signals x_full.
  static __device__ __forceinline__ void load_tile(const InputProjectionParams& p, SharedStorage& smem, int warpgroup, std::uint32_t tile) {
    ptx::mbarrier_arrive_expect_tx(&smem.x_full[warpgroup], kTileBytes);
    load_pair_tile<kWideWidth / kSwizzleColumns>(p.tiling, &p.x, &smem.x_full[warpgroup], smem.x[warpgroup], tile);
  }

  /// Reads this warp's 16 rows of the stage and normalises them; warp 0 refills the stage with `next` on the way.
  static __device__ __forceinline__ void take_tile(const InputProjectionParams& p, SharedStorage& smem, const WarpPlace& at,
                                                   std::uint32_t parity, std::uint32_t tile, std::uint32_t next,
                                                   std::uint32_t (&z)[kRegisters]) {
    ptx::mbarrier_wait(&smem.x_full[at.warpgroup], parity);
    load_row_fragments(fragment_lane_address(smem.x[at.warpgroup], at.warp, at.lane), z);
    const RowPair mean = fragment_means(z);
    // The release below depends on every loaded register through the means.
    ptx::complete_before_barrier(mean.first, mean.second);
    if (at.warp != 0) meet(at, Meeting::kTileRead);
    const RowNorm norm = fragment_norm(z, UnpackByShift{}, mean, p.eps);
    if (at.lane % 4 == 0 && !is_second_part(p)) store_statistics(p, at, tile, norm);  // one part writes them
    if (at.warp == 0) {                                                               // by now the others have read too
      meet(at, Meeting::kTileRead);
      if (at.lane == 0 && next < p.tiling.num_tiles) load_tile(p, smem, at.warpgroup, next);
      __syncwarp();
    }
    fragment_normalise_in_parts(z, UnpackByShift{}, norm.affine, smem.norm, at.lane, p.once);
  }

  /// Issues acc = z W^T [+ bias] for one chunk of weight rows; not waited for.
  static __device__ __forceinline__ void project_chunk(SharedStorage& smem, typename Ring::Place& weights, int lane,
                                                       const std::uint32_t (&z)[kRegisters], int chunk, InChunkSums& acc) {
    if constexpr (kHasBias) start_from_bias(smem.bias, chunk, lane, acc);
    smem.weights.multiply(weights, z, kHasBias, acc);
  }

  /// Waits for the products of a chunk, those that were issued last, and gives its stages back.
  static __device__ __forceinline__ void finish_chunk(SharedStorage& smem, const typename Ring::Place& weights, int lane,
                                                      InChunkSums& acc) {
    smem.weights.template finish<kStagesPerChunk>(weights, lane);
    ptx::warpgroup_fence_operand(acc);
  }

  /// A warpgroup's life: its tiles, one after the other.
  static __device__ __forceinline__ void project_tiles(const InputProjectionParams& p, SharedStorage& smem) {
    const WarpPlace at = locate_warp();
    const std::uint32_t step = tile_step(p);
    std::uint32_t tile = block(p) + static_cast<unsigned>(at.warpgroup) * p.part_blocks;
    if (at.warp == 0 && at.lane == 0 && tile < p.tiling.num_tiles) load_tile(p, smem, at.warpgroup, tile);
    __syncwarp();
    // A warp has 16 positions and 32 lanes: they fetch the masks of two tiles at once, one tile ahead.
    const auto lane_mask = [&](std::uint32_t of_tile) {
      return load_tile_mask(p.mask, p.tiling, of_tile + (at.lane < 16 ? 0 : step), static_cast<unsigned>(16 * at.warp + at.lane % 16));
    };
    std::uint32_t mask_bits = lane_mask(tile);
    float mask_of_lane = 0.0F;
    std::uint32_t parity = 0;
    auto weights = Ring::reader();
    ptx::mbarrier_wait(&smem.vectors_full, 0);
#pragma unroll 1
    for (; tile < p.tiling.num_tiles; tile += step, parity ^= 1) {
      std::uint32_t z[kRegisters];
      take_tile(p, smem, at, parity, tile, tile + step, z);
      if (parity == 0) mask_of_lane = mask_factor(p.mask.dtype, mask_bits);
      const RowMasks mask = spread_mask(mask_of_lane, at.lane, static_cast<int>(parity));
      if constexpr (!kHasBias) drop_masked_rows(mask, z);
      if (parity == 1) mask_bits = lane_mask(tile + step);
      // Worked out for every tile, out of a thread number read anew: no register holds it while the rows are normalised.
      const std::uint32_t row = ptx::shared_address(smem.staging[at.warpgroup]) + staging_row_offset(at.warp, ptx::thread_again() % 32);
      InChunkSums acc;
      const int end_chunk = first_chunk(p) + p.part_chunks;
      project_chunk(smem, weights, at.lane, z, first_chunk(p), acc);
#pragma unroll 1
      for (int chunk = first_chunk(p); chunk < end_chunk; ++chunk) {
        finish_chunk(smem, weights, at.lane, acc);
        if (!mask.are_selections) scale_values(mask, acc);
        claim_staging(at);
        gate_chunk<kHasBias>(row, acc, mask);
        // The next products, so that the fence and the store run beside them.
        if (chunk + 1 < end_chunk) project_chunk(smem, weights, at.lane, z, chunk + 1, acc);
        store_chunk(p, smem.staging[at.warpgroup], at, tile, chunk);
      }
    }
    // In the last round other warpgroups may have a tile where this one has none.
    if (tile - static_cast<unsigned>(at.warpgroup) * p.part_blocks < p.tiling.num_tiles)
      smem.weights.skip(weights, p.part_chunks * kStagesPerChunk, at.lane);
    ptx::bulk_wait_group<0>();
  }
};

template <bool kHasBias>
__global__ void __launch_bounds__((kStreamingInputWarpgroups + 1) * kWarpgroupThreads, 1)
    streaming_input_projection_kernel(const __grid_constant__ InputProjectionParams p) {
  using Kernel = StreamingInputProjection<kHasBias>;
  extern __shared__ __align__(1024) std::uint8_t raw[];
  auto& smem = *reinterpret_cast<typename Kernel::SharedStorage*>(raw);
  if (threadIdx.x == 0) Kernel::init_barriers(smem);
  __syncthreads();
  ptx::griddepcontrol_wait();
  // After the wait: whoever starts next may then rely on everything before this kernel being finished, the packing of the weights included.
  ptx::griddepcontrol_launch_dependents();
  if (threadIdx.x < kStreamingInputWarpgroups * kWarpgroupThreads) {
    ptx::setmaxnreg_inc<160>();
    Kernel::project_tiles(p, smem);
  } else {
    ptx::setmaxnreg_dec<32>();
    if (threadIdx.x == kStreamingInputWarpgroups * kWarpgroupThreads) Kernel::produce(p, smem);
  }
}

}  // namespace trimul::cuda::sm90
