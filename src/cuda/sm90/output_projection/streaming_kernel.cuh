// SPDX-License-Identifier: Apache-2.0
// Output projection at C_z = C = 256, whose weights (256 KiB) do not fit shared memory beside the tiles: as kernel.cuh, but the weights
// stream past the rows. docs/kernels/sm90-output-projection.md has the roofline, the schedule and what was tried.
//
// One persistent block a multiprocessor: a producer thread keeps a ring of weights full, two warpgroups own a tile each, whose normalised
// rows of x and y stay in their registers, and read every stage of the ring in the same order. A warpgroup has two buffers. The one that x
// came in takes the result, and then the next y; the one that y came in takes the next x as soon as both are in registers.
#pragma once

#include "cuda/ptx/grid.cuh"
#include "cuda/sm90/output_projection/config.hpp"
#include "cuda/sm90/output_projection/gated_rows.cuh"
#include "cuda/sm90/tile_copy.cuh"
#include "cuda/sm90/warpgroup.cuh"
#include "cuda/sm90/weight_ring.cuh"

namespace trimul::cuda::sm90 {

template <bool kHasResidual, bool kHasBias>
struct StreamingOutputProjection {
  static constexpr int kWarpgroups = kStreamingOutputWarpgroups;
  static constexpr int kChunks = kWideWidth / kOutChunk;
  static constexpr int kRegisters = kWideWidth / 4;  // of a thread's part of a warp's 16 rows
  static constexpr int kTileBytes = kTilePositions * kWideWidth * 2;
  static constexpr int kStatisticsBytes = kTilePositions * static_cast<int>(sizeof(float2));
  using Ring = WeightRing<5, kOutChunk, 2>;
  static constexpr int kStagesPerProduct = kWideWidth / 16 / Ring::kSteps;

  struct SharedStorage {
    Ring weights;
    alignas(1024) std::uint8_t tile[kWarpgroups][2][kTileBytes];    // x: [4 blocks of 64 channels][64 rows][128 bytes]; y: [256][128 bytes]
    alignas(16) float2 statistics[kWarpgroups][2][kTilePositions];  // of the rows of x: scale and shift; with the buffer of x
    alignas(16) float2 norm_in[kWideWidth];
    alignas(16) float2 norm_out[kWideWidth];
    alignas(16) float bias[2][kWideWidth];  // projection, gate
    std::uint64_t x_full[kWarpgroups];      // 1 arrival: expect_tx by the thread that issues the load
    std::uint64_t y_full[kWarpgroups];      // likewise
    std::uint64_t vectors_full;             // 1 arrival, once
  };
  static_assert(sizeof(SharedStorage) <= kMaxSmemBytes);

  /// Where warps 1 to 3 of a warpgroup tell warp 0, which waits, that it may refill a buffer.
  enum class Meeting : unsigned {
    kTileRead,   // x and y are in the warps' registers: the buffer that y came in is free
    kResultOut,  // the results have been read out of the other one
    kCount
  };
  static_assert(has_barriers_for<Meeting>(kWarpgroups));

  static __device__ __forceinline__ void meet(const WarpPlace& at, Meeting meeting) { sm90::meet(at, meeting, at.warp == 0); }

  static __device__ __forceinline__ std::uint32_t tile_step() { return kWarpgroups * gridDim.x; }

  static __device__ __forceinline__ void init_barriers(SharedStorage& smem) {
    smem.weights.init(4 * kWarpgroups);
    for (int i = 0; i < kWarpgroups; ++i) {
      ptx::mbarrier_init(&smem.x_full[i], 1);
      ptx::mbarrier_init(&smem.y_full[i], 1);
    }
    ptx::mbarrier_init(&smem.vectors_full, 1);
    ptx::fence_mbarrier_init();
  }

  /// By one thread: the vectors, then the weights, once for every round: of 64 output channels those of the gate, then of the projection.
  /// They are complete, since the contraction lets this kernel start only once the projection before it has finished.
  static __device__ __forceinline__ void produce(const OutputProjectionParams& p, SharedStorage& smem) {
    ptx::mbarrier_arrive_expect_tx(&smem.vectors_full, sizeof(smem.norm_in) + sizeof(smem.norm_out) + sizeof(smem.bias));
    ptx::bulk_load(smem.norm_in, p.norm_in, sizeof(smem.norm_in), &smem.vectors_full);
    ptx::bulk_load(smem.norm_out, p.norm_out, sizeof(smem.norm_out), &smem.vectors_full);
    ptx::bulk_load(smem.bias, p.bias, sizeof(smem.bias), &smem.vectors_full);
    auto place = Ring::producer();
#pragma unroll 1
    for (std::uint32_t first_tile = blockIdx.x; first_tile < p.tiling.num_tiles; first_tile += tile_step())
#pragma unroll 1
      for (int chunk = 0; chunk < kChunks; ++chunk)
#pragma unroll 1
        for (int k = 0; k < 2 * kStagesPerProduct; ++k)
          smem.weights.fill(place, k < kStagesPerProduct ? &p.g_weight : &p.p_weight, k % kStagesPerProduct * Ring::kSteps * 16,
                            chunk * kOutChunk);
  }

  static __device__ __forceinline__ void load_x(const OutputProjectionParams& p, SharedStorage& smem, int warpgroup, int buffer,
                                                std::uint32_t tile) {
    ptx::mbarrier_arrive_expect_tx(&smem.x_full[warpgroup], kTileBytes + kStatisticsBytes);
    ptx::bulk_load(smem.statistics[warpgroup][buffer], p.statistics + std::size_t{tile} * kTilePositions, kStatisticsBytes,
                   &smem.x_full[warpgroup]);
    load_pair_tile<kWideWidth / kSwizzleColumns>(p.tiling, &p.x, &smem.x_full[warpgroup], smem.tile[warpgroup][buffer], tile);
  }

  static __device__ __forceinline__ void load_y(const OutputProjectionParams& p, SharedStorage& smem, int warpgroup, int buffer,
                                                std::uint32_t tile) {
    ptx::mbarrier_arrive_expect_tx(&smem.y_full[warpgroup], kTileBytes);
    ptx::tma_load_2d(smem.tile[warpgroup][buffer], &p.y, &smem.y_full[warpgroup], static_cast<int>(tile * kTilePositions), 0, p.y_policy);
  }

  /// Issues acc = fragments W^T [+ bias] for the next 64 output channels; not waited for.
  static __device__ __forceinline__ void project(SharedStorage& smem, typename Ring::Place& weights, const float* bias, int lane,
                                                 const std::uint32_t (&fragments)[kRegisters], float (&acc)[kOutChunk / 2]) {
    if constexpr (kHasBias) start_from_bias(bias, lane, acc);
    smem.weights.multiply(weights, fragments, kHasBias, acc);
  }

  /// Reads x and normalises it.
  static __device__ __forceinline__ void take_x(const OutputProjectionParams& p, SharedStorage& smem, const WarpPlace& at, int buffer,
                                                std::uint32_t (&z)[kRegisters]) {
    ptx::mbarrier_wait(&smem.x_full[at.warpgroup], static_cast<unsigned>(buffer));
    load_row_fragments(fragment_lane_address(smem.tile[at.warpgroup][buffer], at.warp, at.lane), z);
    const float2* const rows = smem.statistics[at.warpgroup][buffer] + kTileWarpRows * at.warp + at.lane / 4;
    const float2 first = rows[0];
    const float2 second = rows[8];
    fragment_normalise_in_parts(z, UnpackByShift{}, RowAffine{{first.x, second.x}, {first.y, second.y}}, smem.norm_in, at.lane, p.once);
  }

  /// Reads y and works out how to normalise it; warp 0 puts the next x into its buffer on the way. The release depends on every loaded
  /// register through the means, and on those of x, which a product has been issued with. That product is in flight meanwhile.
  static __device__ __forceinline__ RowAffine take_y(const OutputProjectionParams& p, SharedStorage& smem, const WarpPlace& at, int buffer,
                                                     std::uint32_t parity, std::uint32_t next, std::uint32_t (&y)[kRegisters]) {
    ptx::mbarrier_wait(&smem.y_full[at.warpgroup], parity);
    load_column_fragments(smem.tile[at.warpgroup][buffer], at.warp, at.lane, y);
    const RowPair mean = fragment_means(y);
    ptx::complete_before_barrier(mean.first, mean.second);
    if (at.warp != 0) meet(at, Meeting::kTileRead);
    const RowAffine affine = fragment_norm(y, UnpackByArgument{p.unpack_shift, p.unpack_mask}, mean, p.eps).affine;
    if (at.warp == 0) {  // by now the others have read too
      meet(at, Meeting::kTileRead);
      if (at.lane == 0 && next < p.tiling.num_tiles) load_x(p, smem, at.warpgroup, buffer, next);
      __syncwarp();
    }
    return affine;
  }

  /// By a warp that has written its rows of one block of 64 channels of the result: stores them.
  static __device__ __forceinline__ void store_rows(const OutputProjectionParams& p, const WarpPlace& at, const std::uint8_t* tile_smem,
                                                    std::uint32_t tile, int block) {
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (at.lane == 0) {
      store_pair_rows<1>(p.tiling, &p.out, tile_smem, tile, at.warp, block);
      ptx::bulk_commit_group();
    }
    __syncwarp();
  }

  /// Once the warps' results have left the buffer: warp 0 puts the next y into it.
  static __device__ __forceinline__ void refill_y(const OutputProjectionParams& p, SharedStorage& smem, const WarpPlace& at, int buffer,
                                                  std::uint32_t next) {
    if (at.lane == 0) ptx::bulk_wait_group_read<0>();
    __syncwarp();
    meet(at, Meeting::kResultOut);
    if (at.warp == 0 && at.lane == 0 && next < p.tiling.num_tiles) load_y(p, smem, at.warpgroup, buffer, next);
    __syncwarp();
  }

  /// A warpgroup's life: its tiles, one after the other.
  static __device__ __forceinline__ void project_tiles(const OutputProjectionParams& p, SharedStorage& smem) {
    const int warp_in_block = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x / 32), 0);  // uniform for ptxas
    const WarpPlace at{static_cast<int>(threadIdx.x % 32), warp_in_block % 4, warp_in_block / 4};
    std::uint32_t tile = blockIdx.x + static_cast<unsigned>(at.warpgroup) * gridDim.x;
    if (at.warp == 0 && at.lane == 0 && tile < p.tiling.num_tiles) {
      load_x(p, smem, at.warpgroup, 0, tile);
      ptx::griddepcontrol_wait();
      ptx::griddepcontrol_launch_dependents();
      load_y(p, smem, at.warpgroup, 1, tile);
    }
    __syncwarp();
    auto weights = Ring::reader();
    ptx::mbarrier_wait(&smem.vectors_full, 0);
    std::uint32_t parity = 0;  // of both tiles; also the buffer that x comes in
#pragma unroll 1
    for (; tile < p.tiling.num_tiles; tile += tile_step(), parity ^= 1) {
      const int x_buffer = static_cast<int>(parity);
      std::uint8_t* const result = smem.tile[at.warpgroup][x_buffer];
      std::uint32_t y[kRegisters];
      std::uint32_t z[kRegisters];
      float gate[kOutChunk / 2];
      take_x(p, smem, at, x_buffer, z);
      project(smem, weights, smem.bias[1], at.lane, z, gate);
      const RowAffine y_affine = take_y(p, smem, at, x_buffer ^ 1, parity, tile + tile_step(), y);
      fragment_normalise_in_parts(y, UnpackByPermute{}, y_affine, smem.norm_out, at.lane, p.once);
#pragma unroll 1
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        float value[kOutChunk / 2];
        project(smem, weights, smem.bias[0] + chunk * kOutChunk, at.lane, y, value);
        smem.weights.template finish<2 * kStagesPerProduct>(weights, at.lane);
        ptx::warpgroup_fence_operand(gate);
        ptx::warpgroup_fence_operand(value);
        gate_rows<kHasResidual>(fragment_lane_address(result, at.warp, at.lane), chunk, value, gate);
        // The next products, so that the fence and the store run beside them.
        if (chunk + 1 < kChunks) project(smem, weights, smem.bias[1] + (chunk + 1) * kOutChunk, at.lane, z, gate);
        store_rows(p, at, result, tile, chunk);
      }
      refill_y(p, smem, at, x_buffer, tile + tile_step());
    }
    // In the last round the other warpgroup may have a tile where this one has none.
    if (tile - static_cast<unsigned>(at.warpgroup) * gridDim.x < p.tiling.num_tiles)
      smem.weights.skip(weights, kChunks * 2 * kStagesPerProduct, at.lane);
    ptx::bulk_wait_group<0>();
  }
};

template <bool kHasResidual, bool kHasBias>
__global__ void __launch_bounds__((kStreamingOutputWarpgroups + 1) * kWarpgroupThreads, 1)
    streaming_output_projection_kernel(const __grid_constant__ OutputProjectionParams p) {
  using Kernel = StreamingOutputProjection<kHasResidual, kHasBias>;
  extern __shared__ __align__(1024) std::uint8_t raw[];
  auto& smem = *reinterpret_cast<typename Kernel::SharedStorage*>(raw);
  if (threadIdx.x == 0) Kernel::init_barriers(smem);
  __syncthreads();
  if (threadIdx.x < kStreamingOutputWarpgroups * kWarpgroupThreads) {
    ptx::setmaxnreg_inc<240>();
    Kernel::project_tiles(p, smem);
  } else {
    ptx::setmaxnreg_dec<24>();
    if (threadIdx.x == kStreamingOutputWarpgroups * kWarpgroupThreads) Kernel::produce(p, smem);
  }
}

}  // namespace trimul::cuda::sm90
