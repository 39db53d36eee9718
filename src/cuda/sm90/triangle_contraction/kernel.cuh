// SPDX-License-Identifier: Apache-2.0
// Triangle contraction: per plane y = a b^T (outgoing) or a^T b (incoming), planes of n_pad columns of which N count.
// docs/kernels/sm90-triangle-contraction.md has the roofline, the schedule and what was tried.
//
// Persistent blocks: one producer thread keeps a ring of stages full by TMA, consumer warpgroups multiply (wgmma, both operands from
// 128-byte-swizzled shared memory; incoming takes them transposed, so nothing is ever transposed in memory) and store through shared
// memory.
#pragma once

#include <cstdint>

#include "cuda/common/fragment_norm.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/ptx/matrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/sm90/triangle_contraction/config.hpp"

namespace trimul::cuda::sm90 {

template <ContractionVariant kVariant, bool kIncoming>
struct TriangleContraction {
  static constexpr TriangleContractionConfig kCfg = contraction_config(kVariant);
  static constexpr int kConsumers = kCfg.consumer_warpgroups;
  static constexpr int kRowBlocks = kCfg.row_blocks;
  static constexpr int kTileM = kCfg.tile_m();
  static constexpr int kTileN = kCfg.tile_n;
  static constexpr int kNarrowN = kCfg.narrow_tile_n;
  static constexpr int kStages = kCfg.stages;
  static constexpr int kStageK = 64;
  static constexpr int kBlockBytes = 64 * kSwizzleRowBytes;  // 64 x 64 elements
  static constexpr int kTileChunks = kRowBlocks * kTileN / 64;
  static_assert(kTileChunks % kCfg.store_buffers == 0, "a tile starts with the first store buffer");

  struct SharedStorage {
    alignas(1024) std::uint8_t stage[kStages][kCfg.a_bytes() + kCfg.b_bytes()];  // outgoing: [rows][64 k]; incoming: blocks of [64 k][64]
    alignas(1024) std::uint8_t store[kConsumers][kCfg.store_buffers][kBlockBytes];
    std::uint64_t stage_full[kStages];   // 1 arrival: expect_tx by the producer
    std::uint64_t stage_empty[kStages];  // one arrival per warpgroup that multiplies from it
    std::uint64_t turn[kConsumers];      // ping-pong: 1 arrival: the warpgroup before has issued its last product
  };
  static_assert(sizeof(SharedStorage) == kCfg.smem_bytes(), "the budget that heuristics and their tests see");
  static_assert(sizeof(SharedStorage) <= kMaxSmemBytes / kCfg.blocks_per_sm, "the block does not fit: fewer stages");

  /// Named barriers of the consumer warpgroups; 0 is the block's.
  static __device__ __forceinline__ void sync_warpgroup(int warpgroup) {
    ptx::named_barrier_sync(static_cast<unsigned>(warpgroup + 1), kWarpgroupThreads);
  }

  /// The order in which a block takes tiles.
  struct TileWalk {
    int wave = 0;
    int place = static_cast<int>(blockIdx.x);
    __device__ __forceinline__ bool has_tile(const TriangleContractionParams& p) const { return wave + place < p.total_tiles; }
    __device__ __forceinline__ int tile() const { return wave + place; }
    __device__ __forceinline__ void advance(const TriangleContractionParams& p) {
      wave += static_cast<int>(gridDim.x);
      place += p.rotation;
      if (place >= static_cast<int>(gridDim.x)) place -= static_cast<int>(gridDim.x);
    }
  };

  struct Tile {
    int channel, sample;  // plane
    int first_i, first_j;
    bool is_wide;
  };

  static __device__ __forceinline__ Tile locate(const TriangleContractionParams& p, int tile) {
    const int per_plane = p.tiles_m * p.tiles_n;
    const int plane = tile / per_plane;
    const int within = tile - plane * per_plane;
    const int row = within / p.tiles_n;
    const int column = within - row * p.tiles_n;
    const auto [channel, sample] = p.batch.divide(static_cast<unsigned>(plane));
    Tile at;
    at.channel = static_cast<int>(channel);
    at.sample = static_cast<int>(sample);
    at.first_i = row * kTileM;
    at.is_wide = kNarrowN == 0 || column < p.wide_tiles_n;
    at.first_j = at.is_wide ? column * kTileN : p.wide_tiles_n * kTileN + (column - p.wide_tiles_n) * kNarrowN;
    return at;
  }

  static __device__ __forceinline__ void init_barriers(SharedStorage& smem) {
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_init(&smem.stage_full[i], 1);
      ptx::mbarrier_init(&smem.stage_empty[i], kCfg.ping_pong ? 1 : kConsumers);
    }
    for (int i = 0; i < kConsumers; ++i) ptx::mbarrier_init(&smem.turn[i], 1);
    ptx::fence_mbarrier_init();
  }

  /// 64-row (or 64-column) blocks of a tile of `size` from `first` on that reach into the plane.
  static __device__ __forceinline__ int blocks_inside(const TriangleContractionParams& p, int first, int size) {
    return min(size / 64, (p.tokens - first + 63) / 64);
  }

  /// Loads one stage. Blocks wholly outside the plane are neither loaded nor counted: what they feed is clipped by the store.
  static __device__ __forceinline__ void load_stage(const TriangleContractionParams& p, SharedStorage& smem, int stage, const Tile& at,
                                                    int k) {
    std::uint8_t* const a = smem.stage[stage];
    std::uint8_t* const b = a + kCfg.a_bytes();
    std::uint64_t* const full = &smem.stage_full[stage];
    const int blocks_b = blocks_inside(p, at.first_j, at.is_wide ? kTileN : kNarrowN);
    if constexpr (kIncoming) {
      const int blocks_a = blocks_inside(p, at.first_i, kTileM);
      ptx::mbarrier_arrive_expect_tx(full, static_cast<unsigned>((blocks_a + blocks_b) * kBlockBytes));
#pragma unroll
      for (int q = 0; q < kTileM / 64; ++q)
        if (q < blocks_a) ptx::tma_load_4d(a + q * kBlockBytes, &p.a, full, at.first_i + q * 64, k, at.sample, at.channel, p.load_policy);
#pragma unroll
      for (int q = 0; q < kTileN / 64; ++q)
        if (q < blocks_b) ptx::tma_load_4d(b + q * kBlockBytes, &p.b, full, at.first_j + q * 64, k, at.sample, at.channel, p.load_policy);
    } else if constexpr (kNarrowN != 0) {
      ptx::mbarrier_arrive_expect_tx(full, static_cast<unsigned>(kCfg.a_bytes() + blocks_b * kBlockBytes));
      ptx::tma_load_4d(a, &p.a, full, k, at.first_i, at.sample, at.channel, p.load_policy);
#pragma unroll
      for (int q = 0; q < kTileN / 64; ++q)
        if (q < blocks_b) ptx::tma_load_4d(b + q * kBlockBytes, &p.b, full, k, at.first_j + q * 64, at.sample, at.channel, p.load_policy);
    } else {
      ptx::mbarrier_arrive_expect_tx(full, kCfg.a_bytes() + kCfg.b_bytes());
      ptx::tma_load_4d(a, &p.a, full, k, at.first_i, at.sample, at.channel, p.load_policy);
      ptx::tma_load_4d(b, &p.b, full, k, at.first_j, at.sample, at.channel, p.load_policy);
    }
  }

  /// Run by one thread. Waits for stage_empty, signals stage_full; runs ahead over all of the block's tiles.
  static __device__ __forceinline__ void producer_load_tiles(const TriangleContractionParams& p, SharedStorage& smem) {
    ptx::prefetch_tensormap(&p.a);
    ptx::prefetch_tensormap(&p.b);
    ptx::prefetch_tensormap(&p.y);
    ptx::griddepcontrol_wait();
    // After the wait: whoever starts next may then rely on everything before this kernel being finished.
    ptx::griddepcontrol_launch_dependents();
    int stage = 0;
    std::uint32_t parity = 1;  // a fresh ring is empty
    for (TileWalk walk; walk.has_tile(p); walk.advance(p)) {
      const Tile at = locate(p, walk.tile());
      for (int k = 0; k < p.k_stages; ++k) {
        ptx::mbarrier_wait(&smem.stage_empty[stage], parity);
        load_stage(p, smem, stage, at, k * kStageK);
        if (++stage == kStages) {
          stage = 0;
          parity ^= 1;
        }
      }
    }
  }

  /// A consumer's place in the ring. Every warpgroup walks all stages, also those of tiles that are not its own.
  struct RingPosition {
    int stage = 0;
    std::uint32_t parity = 0;
    __device__ __forceinline__ void advance() {
      if (++stage == kStages) {
        stage = 0;
        parity ^= 1;
      }
    }
    __device__ __forceinline__ void skip(int stages) {
      const int sum = stage + stages;
      parity ^= static_cast<unsigned>(sum / kStages) & 1U;
      stage = sum % kStages;
    }
  };

  using Accumulators = float[kRowBlocks][kTileN / 2];

  /// Multiplies one stage: up to 4 steps of 16 along k. Releases the stage before, whose products have finished by then.
  template <int kWidth, int kBlocks, bool kIsFull>
  static __device__ __forceinline__ void multiply_stage(SharedStorage& smem, int warpgroup, RingPosition& ring, int& previous,
                                                        bool is_first, int steps, bool releases, Accumulators& acc) {
    const std::uint8_t* const a = smem.stage[ring.stage] + (kCfg.ping_pong ? 0 : warpgroup * kRowBlocks * kBlockBytes);
    const std::uint8_t* const b = smem.stage[ring.stage] + kCfg.a_bytes();
    constexpr unsigned kLeading = kIncoming ? kBlockBytes / 16 : 1;
    constexpr unsigned kStepAdvance = (kIncoming ? 16 * kSwizzleRowBytes : 32) / 16;
    const std::uint64_t a_descriptor = ptx::matrix_descriptor(ptx::shared_address(a), kLeading);
    const std::uint64_t b_descriptor = ptx::matrix_descriptor(ptx::shared_address(b), kLeading);
    ptx::mbarrier_wait(&smem.stage_full[ring.stage], ring.parity);
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m) ptx::warpgroup_fence_operand(acc[m]);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step)
      if (kIsFull || step < steps) {
        if constexpr (!kIsFull) ptx::wgmma_fence();  // each step is a block of its own; ptxas would add it
#pragma unroll
        for (int m = 0; m < kBlocks; ++m)
          ptx::wgmma_shared<kIncoming>(*reinterpret_cast<float(*)[kWidth / 2]>(&acc[m][0]),
                                       a_descriptor + step * kStepAdvance + static_cast<unsigned>(m * (kBlockBytes / 16)),
                                       b_descriptor + step * kStepAdvance, step > 0 || !is_first);
      }
    ptx::wgmma_commit_group();
    if (!is_first) {
      ptx::wgmma_wait_group<1>();
      if (releases) ptx::mbarrier_arrive(&smem.stage_empty[previous]);
    }
    previous = ring.stage;
    ring.advance();
  }

  /// All products of a tile of kWidth columns, kBlocks of the warpgroup's row blocks. Returns the stage that is still to be released.
  template <int kWidth, int kBlocks>
  static __device__ __forceinline__ int multiply_tile(const TriangleContractionParams& p, SharedStorage& smem, int warpgroup,
                                                      RingPosition& ring, bool releases, Accumulators& acc) {
    int previous = 0;
#pragma unroll 1
    for (int k = 0; k < p.k_stages - 1; ++k)
      multiply_stage<kWidth, kBlocks, true>(smem, warpgroup, ring, previous, k == 0, 4, releases, acc);
    multiply_stage<kWidth, kBlocks, false>(smem, warpgroup, ring, previous, p.k_stages == 1, p.last_k_steps, releases, acc);
    return previous;
  }

  template <int kWidth>
  static __device__ __forceinline__ int multiply_rows(const TriangleContractionParams& p, SharedStorage& smem, int warpgroup,
                                                      RingPosition& ring, bool releases, bool second_block_is_empty, Accumulators& acc) {
    if constexpr (kCfg.ping_pong && kRowBlocks == 2) {
      if (second_block_is_empty) return multiply_tile<kWidth, 1>(p, smem, warpgroup, ring, releases, acc);
    }
    return multiply_tile<kWidth, kRowBlocks>(p, smem, warpgroup, ring, releases, acc);
  }

  /// Rounds a tile to bf16 and stores it in chunks of 64 x 64. Thread 0 of the warpgroup owns the bulk groups: one per chunk, also for a
  /// chunk that is left out, so that their count tells which buffer is free.
  static __device__ __forceinline__ void store_tile(const TriangleContractionParams& p, SharedStorage& smem, int warpgroup, const Tile& at,
                                                    bool second_block_is_empty, const Accumulators& acc) {
    const int thread = static_cast<int>(threadIdx.x % kWarpgroupThreads);
    const int lane = thread % 32;
    const int matrix = lane / 8;
    const int row = lane % 8;
    const int row_offset = (16 * (thread / 32) + (matrix & 1) * 8 + row) * kSwizzleRowBytes;
    const int first_i = at.first_i + (kCfg.ping_pong ? 0 : warpgroup * kRowBlocks * 64);
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
      for (int chunk = 0; chunk < kTileN / 64; ++chunk) {
        std::uint8_t* const buffer = smem.store[warpgroup][(m * (kTileN / 64) + chunk) % kCfg.store_buffers];
        const bool is_left_out = (kNarrowN != 0 && chunk >= kNarrowN / 64 && !at.is_wide) || (m == 1 && second_block_is_empty);
        if (is_left_out) {
          if (thread == 0) ptx::bulk_commit_group();
          continue;
        }
        if (thread == 0) ptx::bulk_wait_group_read<kCfg.store_buffers - 1>();
        sync_warpgroup(warpgroup);
        const std::uint32_t base = ptx::shared_address(buffer) + static_cast<unsigned>(row_offset);
#pragma unroll
        for (int octet = 0; octet < 8; octet += 2) {
          const float* d = &acc[m][(chunk * 8 + octet) * 4];
          const std::uint32_t packed[4] = {pack_bf16(d[0], d[1]), pack_bf16(d[2], d[3]), pack_bf16(d[4], d[5]), pack_bf16(d[6], d[7])};
          ptx::stmatrix_x4(base + static_cast<unsigned>(((octet + (matrix >> 1)) ^ row) << 4), packed);
        }
        ptx::fence_proxy_async_shared();
        sync_warpgroup(warpgroup);
        if (thread == 0) {
          const int j = at.first_j + chunk * 64;
          const int i = first_i + m * 64;
          if (i < p.tokens && j < p.tokens) ptx::tma_store_4d(&p.y, buffer, j, i, at.sample, at.channel);
          ptx::bulk_commit_group();
        }
      }
  }

  /// A consumer warpgroup. Waits for stage_full and, in ping-pong, for its turn; signals stage_empty and the other's turn.
  static __device__ __forceinline__ void consumer_multiply_tiles(const TriangleContractionParams& p, SharedStorage& smem, int warpgroup) {
    const int thread = static_cast<int>(threadIdx.x % kWarpgroupThreads);
    const bool releases = thread == 0;
    Accumulators acc;
    RingPosition ring;
    std::uint32_t turn_parity = 0;
    int count = 0;
    for (TileWalk walk; walk.has_tile(p); walk.advance(p), ++count) {
      if (kCfg.ping_pong && count % kConsumers != warpgroup) {
        ring.skip(p.k_stages);
        continue;
      }
      if (kCfg.ping_pong && count > 0) {  // the block's first tile waits for nobody
        if (thread < 32) ptx::mbarrier_wait(&smem.turn[warpgroup], warpgroup > 0 ? turn_parity : turn_parity ^ 1);
        sync_warpgroup(warpgroup);
      }
      const Tile at = locate(p, walk.tile());
      const bool second_block_is_empty = kCfg.ping_pong && kRowBlocks == 2 && p.skips_empty_rows && at.first_i + 64 >= p.tokens;
      int last_stage;
      if (kNarrowN == 0 || at.is_wide)
        last_stage = multiply_rows<kTileN>(p, smem, warpgroup, ring, releases, second_block_is_empty, acc);
      else
        last_stage = multiply_rows<(kNarrowN != 0 ? kNarrowN : kTileN)>(p, smem, warpgroup, ring, releases, second_block_is_empty, acc);
      if (kCfg.ping_pong && thread == 0) ptx::mbarrier_arrive(&smem.turn[(warpgroup + 1) % kConsumers]);
      ptx::wgmma_wait_group<0>();
#pragma unroll
      for (int m = 0; m < kRowBlocks; ++m) ptx::warpgroup_fence_operand(acc[m]);
      if (releases) ptx::mbarrier_arrive(&smem.stage_empty[last_stage]);
      turn_parity ^= 1;
      store_tile(p, smem, warpgroup, at, second_block_is_empty, acc);
    }
    if (thread == 0) ptx::bulk_wait_group<0>();
  }
};

template <ContractionVariant kVariant, bool kIncoming>
__global__ void __launch_bounds__(contraction_config(kVariant).threads(), contraction_config(kVariant).blocks_per_sm)
    triangle_contraction_kernel(const __grid_constant__ TriangleContractionParams p) {
  using Kernel = TriangleContraction<kVariant, kIncoming>;
  constexpr TriangleContractionConfig kCfg = Kernel::kCfg;
  extern __shared__ __align__(1024) std::uint8_t raw[];
  auto& smem = *reinterpret_cast<typename Kernel::SharedStorage*>(raw);
  const int warpgroup = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x / kWarpgroupThreads), 0);  // uniform for ptxas
  if (threadIdx.x == 0) Kernel::init_barriers(smem);
  __syncthreads();
  if (warpgroup == kCfg.consumer_warpgroups) {
    if constexpr (kCfg.reallocates_registers()) ptx::setmaxnreg_dec<kCfg.producer_registers()>();
    if (threadIdx.x % kWarpgroupThreads == 0) Kernel::producer_load_tiles(p, smem);
  } else {
    if constexpr (kCfg.reallocates_registers()) ptx::setmaxnreg_inc<kCfg.consumer_registers()>();
    Kernel::consumer_multiply_tiles(p, smem, warpgroup);
  }
}

}  // namespace trimul::cuda::sm90
