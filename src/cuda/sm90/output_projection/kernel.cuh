// SPDX-License-Identifier: Apache-2.0
// Output projection: out = sigmoid(LN(x) g_out^T + g_out_bias) * (LN(y) p_out^T + p_out_bias) [+ x].
// docs/kernels/sm90-output-projection.md has the roofline, the schedule and what was tried.
//
// One persistent block a multiprocessor, autonomous warpgroups, no producer warp, no block-wide barrier in the loop; weights stay in shared
// memory. How a row of x is normalised comes from the input projection. A tile's stage of x is also where its result is staged: x is read
// from there a second time for the residual, and in place costs nothing.
#pragma once

#include <cstdint>

#include "cuda/common/fragment_norm.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/ptx/matrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/sm90/output_projection/config.hpp"
#include "cuda/sm90/output_projection/gated_rows.cuh"
#include "cuda/sm90/tile_copy.cuh"
#include "cuda/sm90/warpgroup.cuh"

namespace trimul::cuda::sm90 {

template <typename Config>
struct OutputProjection {
  static constexpr OutputProjectionConfig kCfg = Config::kCfg;
  static constexpr int kWarpgroups = kCfg.warpgroups;
  static constexpr int kSteps = kHiddenWidth / 16;                        // k steps of a product
  static constexpr int kHalfWeightBytes = kPairWidth * kSwizzleRowBytes;  // 64 of the 128 columns
  static constexpr int kTileBytes = kTilePositions * kPairWidth * 2;
  static constexpr int kStatisticsBytes = kTilePositions * static_cast<int>(sizeof(float2));
  static constexpr int kVectorBytes = (kPairWidth + kHiddenWidth) * static_cast<int>(sizeof(float2)) + 2 * kPairWidth * 4;
  static_assert(kPairWidth == kHiddenWidth, "the fragment loops share their bounds");

  struct SharedStorage {
    alignas(1024) std::uint8_t p_weight[2 * kHalfWeightBytes];  // [2 halves of k][128 rows][128 bytes], swizzled
    alignas(1024) std::uint8_t g_weight[2 * kHalfWeightBytes];
    alignas(1024) std::uint8_t x[kWarpgroups][2][kTileBytes];  // two stages of [2 halves][64 rows][128 bytes], swizzled; then the result
    alignas(1024) std::uint8_t y[kWarpgroups][kTileBytes];     // [128 channels][64 positions], swizzled
    alignas(16) float2 statistics[kWarpgroups][2][kTilePositions];  // of the rows of x, with its stages: scale and shift
    alignas(16) float2 norm_in[kPairWidth];
    alignas(16) float2 norm_out[kHiddenWidth];
    alignas(16) float bias[2][kPairWidth];  // projection, gate; all three come with g_weight
    std::uint64_t x_full[kWarpgroups][2];   // 1 arrival: expect_tx by the thread that issues the load
    std::uint64_t y_full[kWarpgroups];      // 1 arrival: expect_tx
    std::uint64_t gate_full;                // 1 arrival, once: g_weight and the vectors
    std::uint64_t projection_full;          // 1 arrival, once: p_weight
  };
  static_assert(sizeof(SharedStorage) <= kMaxSmemBytes, "the block does not fit: fewer warpgroups");

  /// Where warps 1 to 3 of a warpgroup tell warp 0, which waits, that it may refill a stage.
  enum class Meeting : unsigned {
    kResultOut,  // the results of the tile before have been read out of their rows of the stage of x
    kTileRead,   // y is in the warps' registers
    kCount
  };
  static_assert(has_barriers_for<Meeting>(kWarpgroups));

  static __device__ __forceinline__ void meet(const WarpPlace& at, Meeting meeting) { sm90::meet(at, meeting, at.warp == 0); }

  static __device__ __forceinline__ std::uint32_t first_tile(int warpgroup) {
    return blockIdx.x + static_cast<unsigned>(warpgroup) * gridDim.x;
  }
  static __device__ __forceinline__ std::uint32_t tile_step() { return static_cast<unsigned>(kWarpgroups) * gridDim.x; }

  static __device__ __forceinline__ void load_x(const OutputProjectionParams& p, SharedStorage& smem, int warpgroup, int stage,
                                                std::uint32_t tile) {
    ptx::mbarrier_arrive_expect_tx(&smem.x_full[warpgroup][stage], kTileBytes + kStatisticsBytes);
    ptx::bulk_load(smem.statistics[warpgroup][stage], p.statistics + std::size_t{tile} * kTilePositions, kStatisticsBytes,
                   &smem.x_full[warpgroup][stage]);
    load_pair_tile<kPairWidth / kSwizzleColumns>(p.tiling, &p.x, &smem.x_full[warpgroup][stage], smem.x[warpgroup][stage], tile);
  }

  static __device__ __forceinline__ void load_y(const OutputProjectionParams& p, SharedStorage& smem, int warpgroup, std::uint32_t tile) {
    ptx::mbarrier_arrive_expect_tx(&smem.y_full[warpgroup], kTileBytes);
    ptx::tma_load_2d(smem.y[warpgroup], &p.y, &smem.y_full[warpgroup], static_cast<int>(tile * kTilePositions), 0, p.y_policy);
  }

  static __device__ __forceinline__ void init_barriers(SharedStorage& smem) {
    for (int i = 0; i < kWarpgroups; ++i) {
      for (int stage = 0; stage < 2; ++stage) ptx::mbarrier_init(&smem.x_full[i][stage], 1);
      ptx::mbarrier_init(&smem.y_full[i], 1);
    }
    ptx::mbarrier_init(&smem.gate_full, 1);
    ptx::mbarrier_init(&smem.projection_full, 1);
    ptx::fence_mbarrier_init();
  }

  /// By thread 0: x with its statistics and the weights, which are complete since the contraction lets this kernel start only once the
  /// projection before it has finished; then, once the contraction itself has, y. All by bulk copy: an ordinary load would wait behind the
  /// hundreds of KiB that every multiprocessor asks for at this moment. In the order of need.
  static __device__ __forceinline__ void load_first(const OutputProjectionParams& p, SharedStorage& smem) {
    ptx::mbarrier_arrive_expect_tx(&smem.gate_full, 2 * kHalfWeightBytes + kVectorBytes);
    ptx::bulk_load(smem.norm_in, p.norm_in, sizeof(smem.norm_in), &smem.gate_full);
    ptx::bulk_load(smem.norm_out, p.norm_out, sizeof(smem.norm_out), &smem.gate_full);
    ptx::bulk_load(smem.bias, p.bias, sizeof(smem.bias), &smem.gate_full);
    load_first_x(p, smem, 0, 0, 1);
    for (int half = 0; half < 2; ++half)
      ptx::tma_load_2d(smem.g_weight + half * kHalfWeightBytes, &p.g_weight, &smem.gate_full, half * kSwizzleColumns, 0);
    load_first_x(p, smem, 0, 1, kWarpgroups);
    ptx::mbarrier_arrive_expect_tx(&smem.projection_full, 2 * kHalfWeightBytes);
    for (int half = 0; half < 2; ++half)
      ptx::tma_load_2d(smem.p_weight + half * kHalfWeightBytes, &p.p_weight, &smem.projection_full, half * kSwizzleColumns, 0);
    ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();
#pragma unroll 1
    for (int i = 0; i < kWarpgroups; ++i)
      if (first_tile(i) < p.tiling.num_tiles) load_y(p, smem, i, first_tile(i));
    load_first_x(p, smem, 1, 0, kWarpgroups);
  }

  /// By thread 0: the first tile of a stage of the warpgroups from `begin` to before `end`.
  static __device__ __forceinline__ void load_first_x(const OutputProjectionParams& p, SharedStorage& smem, int stage, int begin, int end) {
#pragma unroll 1
    for (int i = begin; i < end; ++i) {
      const std::uint32_t tile = first_tile(i) + static_cast<unsigned>(stage) * tile_step();
      if (tile < p.tiling.num_tiles) load_x(p, smem, i, stage, tile);
    }
  }

  /// Issues acc = bias + fragments W^T for output channels from `first` on; not waited for.
  template <int kOutputs>
  static __device__ __forceinline__ void project(const std::uint8_t* weight, const float* bias, int lane,
                                                 const std::uint32_t (&fragments)[4 * kSteps], int first, float (&acc)[kOutputs / 2]) {
    start_from_bias(bias + first, lane, acc);
    const std::uint64_t base = ptx::matrix_descriptor(ptx::shared_address(weight), 1);
    ptx::warpgroup_fence_operand(acc);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int offset_bytes = (step / 4) * kHalfWeightBytes + first * kSwizzleRowBytes + (step % 4) * 32;
      ptx::wgmma_registers(acc, fragments + 4 * step, base + static_cast<unsigned>(offset_bytes >> 4), 1);
    }
    ptx::wgmma_commit_group();
    ptx::warpgroup_fence_operand(acc);
  }

  /// Once the warps' results of the tile before have left the other stage of x: warp 0 fills it with `next`.
  static __device__ __forceinline__ void refill_x(const OutputProjectionParams& p, SharedStorage& smem, const WarpPlace& at, int stage,
                                                  std::uint32_t next) {
    if (at.lane == 0) ptx::bulk_wait_group_read<0>();
    __syncwarp();
    meet(at, Meeting::kResultOut);
    if (at.warp == 0 && at.lane == 0 && next < p.tiling.num_tiles) load_x(p, smem, at.warpgroup, stage, next);
    __syncwarp();
  }

  /// Reads y and works out how to normalise it; warp 0 refills its stage on the way. The release depends on every loaded register through
  /// the means. The gate's product is in flight meanwhile and holds 96 registers, hence the ways of unpacking.
  static __device__ __forceinline__ RowAffine take_y(const OutputProjectionParams& p, SharedStorage& smem, const WarpPlace& at,
                                                     std::uint32_t parity, std::uint32_t next, std::uint32_t (&y)[4 * kSteps]) {
    ptx::mbarrier_wait(&smem.y_full[at.warpgroup], parity);
    load_column_fragments(smem.y[at.warpgroup], at.warp, at.lane, y);
    const RowPair mean = fragment_means(y);
    ptx::complete_before_barrier(mean.first, mean.second);
    if (at.warp != 0) meet(at, Meeting::kTileRead);
    const RowAffine affine = fragment_norm(y, UnpackByArgument{p.unpack_shift, p.unpack_mask}, mean, p.eps).affine;
    if (at.warp == 0) {  // by now the others have read too
      meet(at, Meeting::kTileRead);
      if (at.lane == 0 && next < p.tiling.num_tiles) load_y(p, smem, at.warpgroup, next);
      __syncwarp();
    }
    return affine;
  }

  /// Reads x and normalises it. The stage stays this tile's until its result has left it.
  static __device__ __forceinline__ void take_x(const OutputProjectionParams& p, SharedStorage& smem, const WarpPlace& at, int stage,
                                                std::uint32_t parity, std::uint32_t (&z)[4 * kSteps]) {
    ptx::mbarrier_wait(&smem.x_full[at.warpgroup][stage], parity);
    load_row_fragments(fragment_lane_address(smem.x[at.warpgroup][stage], at.warp, at.lane), z);
    const float2* const rows = smem.statistics[at.warpgroup][stage] + kTileWarpRows * at.warp + at.lane / 4;
    const float2 first = rows[0];
    const float2 second = rows[8];
    fragment_normalise(z, UnpackByShift{}, RowAffine{{first.x, second.x}, {first.y, second.y}}, smem.norm_in, at.lane);
  }

  /// A warpgroup's life: its tiles, one after the other.
  static __device__ __forceinline__ void project_tiles(const OutputProjectionParams& p, SharedStorage& smem) {
    const int warp_in_block = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x / 32), 0);  // uniform for ptxas
    const WarpPlace at{static_cast<int>(threadIdx.x % 32), warp_in_block % 4, warp_in_block / 4};
    std::uint32_t count = 0;  // tiles done: stage count % 2, parity of x (count / 2) % 2, of y count % 2
    for (std::uint32_t tile = first_tile(at.warpgroup); tile < p.tiling.num_tiles; tile += tile_step(), ++count) {
      const int stage = static_cast<int>(count & 1);
      std::uint8_t* const x_tile = smem.x[at.warpgroup][stage];
      std::uint32_t y[4 * kSteps];
      std::uint32_t z[4 * kSteps];
      float gate[kPairWidth / 2];
      if (count == 0) ptx::mbarrier_wait(&smem.gate_full, 0);
      take_x(p, smem, at, stage, (count >> 1) & 1, z);
      project<kPairWidth>(smem.g_weight, smem.bias[1], at.lane, z, 0, gate);
      const RowAffine y_affine = take_y(p, smem, at, count & 1, tile + tile_step(), y);
      ptx::wgmma_wait_group<0>();
      ptx::warpgroup_fence_operand(gate);
      // The result of the tile before has long been read out of the other stage. Stage 1 had its first tile from the start.
      if (count > 0) refill_x(p, smem, at, stage ^ 1, tile + tile_step());
      fragment_normalise(y, UnpackByPermute{}, y_affine, smem.norm_out, at.lane);
      if (count == 0) ptx::mbarrier_wait(&smem.projection_full, 0);
#pragma unroll
      for (int chunk = 0; chunk < kPairWidth / kOutChunk; ++chunk) {
        float value[kOutChunk / 2];
        project<kOutChunk>(smem.p_weight, smem.bias[0], at.lane, y, chunk * kOutChunk, value);
        ptx::wgmma_wait_group<0>();
        ptx::warpgroup_fence_operand(value);
        gate_rows<kCfg.has_residual>(fragment_lane_address(x_tile, at.warp, at.lane), chunk, value, gate + chunk * (kOutChunk / 2));
      }
      ptx::fence_proxy_async_shared();
      __syncwarp();
      if (at.lane == 0) {
        store_pair_rows<kPairWidth / kSwizzleColumns>(p.tiling, &p.out, x_tile, tile, at.warp);
        ptx::bulk_commit_group();
      }
      __syncwarp();
    }
    ptx::bulk_wait_group<0>();
  }
};

template <typename Config>
__global__ void __launch_bounds__(Config::kCfg.threads(), 1) output_projection_kernel(const __grid_constant__ OutputProjectionParams p) {
  using Kernel = OutputProjection<Config>;
  extern __shared__ __align__(1024) std::uint8_t raw[];
  auto& smem = *reinterpret_cast<typename Kernel::SharedStorage*>(raw);
  if (threadIdx.x == 0) Kernel::init_barriers(smem);
  __syncthreads();
  if (threadIdx.x == 0) Kernel::load_first(p, smem);
  __syncwarp();
  Kernel::project_tiles(p, smem);
}

}  // namespace trimul::cuda::sm90
