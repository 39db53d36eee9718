// SPDX-License-Identifier: Apache-2.0
// Weights on their way through shared memory, for kernels whose weights do not fit: stages that one producer thread keeps full, and that
// every consumer warp reads in the same order.
#pragma once

#include <cstdint>

#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/sm90/limits.hpp"

namespace trimul::cuda::sm90 {

/// A stage holds kRows rows of a matrix, 64 kBlocks columns of them: [kBlocks][kRows][128 bytes], swizzled.
template <int kNumStages, int kRows, int kBlocks>
struct WeightRing {
  static constexpr int kStages = kNumStages;
  static constexpr int kBlockBytes = kRows * kSwizzleRowBytes;
  static constexpr int kStageBytes = kBlocks * kBlockBytes;
  static constexpr int kSteps = kBlocks * kSwizzleColumns / 16;  // k steps of a stage

  alignas(1024) std::uint8_t stage[kStages][kStageBytes];
  std::uint64_t full[kStages];   // 1 arrival: expect_tx by the producer
  std::uint64_t empty[kStages];  // 1 arrival of every consumer warp, once its products have read the stage

  /// Where a reader or the producer stands. A fresh ring is empty: the producer starts with the parity of a phase that is over.
  struct Place {
    int index = 0;
    std::uint32_t parity;
    __device__ __forceinline__ explicit Place(std::uint32_t first_parity) : parity(first_parity) {}
    __device__ __forceinline__ void advance() {
      if (++index == kStages) index = 0, parity ^= 1;
    }
  };
  static __device__ __forceinline__ Place reader() { return Place(0); }
  static __device__ __forceinline__ Place producer() { return Place(1); }

  __device__ __forceinline__ void init(int consumer_warps) {
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_init(&full[i], 1);
      ptx::mbarrier_init(&empty[i], static_cast<unsigned>(consumer_warps));
    }
  }

  /// By the producer thread: waits for a stage, starts the copy of `map`'s rows from `row` and columns from `column` on into it.
  __device__ __forceinline__ void fill(Place& place, const CUtensorMap* map, int column, int row) {
    ptx::mbarrier_wait(&empty[place.index], place.parity);
    ptx::mbarrier_arrive_expect_tx(&full[place.index], kStageBytes);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
      ptx::tma_load_2d(stage[place.index] + block * kBlockBytes, map, &full[place.index], column + block * kSwizzleColumns, row);
    place.advance();
  }

  /// Issues acc (+)= fragments W^T with as many stages as all fragments take, from the one at `place` on, each awaited first; a group of
  /// products for each, not waited for.
  template <int kRegisters, int kCount>
  __device__ __forceinline__ void multiply(Place& place, const std::uint32_t (&fragments)[kRegisters], bool accumulates,
                                           float (&acc)[kCount]) {
    static_assert(2 * kCount == kRows && kRegisters % (4 * kSteps) == 0);
    ptx::warpgroup_fence_operand(acc);
    ptx::wgmma_fence();
#pragma unroll
    for (int first = 0; first < kRegisters; first += 4 * kSteps) {
      ptx::mbarrier_wait(&full[place.index], place.parity);
      const std::uint64_t base = ptx::matrix_descriptor(ptx::shared_address(stage[place.index]), 1);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const int offset_bytes = (step / 4) * kBlockBytes + (step % 4) * 32;
        ptx::wgmma_registers(acc, fragments + first + 4 * step, base + static_cast<unsigned>(offset_bytes >> 4),
                             accumulates || first + step > 0);
      }
      ptx::wgmma_commit_group();
      place.advance();
    }
    ptx::warpgroup_fence_operand(acc);
  }

  /// By a whole warp: waits for the products with the last kCount stages before `place` and gives each stage back as soon as it can.
  template <int kCount>
  __device__ __forceinline__ void finish(const Place& place, int lane) {
    if constexpr (kCount > 0) {
      ptx::wgmma_wait_group<kCount - 1>();
      release(place, kCount, lane);
      finish<kCount - 1>(place, lane);
    }
  }

  /// By a whole warp whose products with the stage `behind` stages before `place` have completed: gives it back.
  __device__ __forceinline__ void release(const Place& place, int behind, int lane) {
    const int index = place.index - behind;
    if (lane == 0) ptx::mbarrier_arrive(&empty[index < 0 ? index + kStages : index]);
  }

  /// By a whole warp that has no products with the next `count` stages.
  __device__ __forceinline__ void skip(Place& place, int count, int lane) {
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      ptx::mbarrier_wait(&full[place.index], place.parity);
      release(place, 0, lane);
      place.advance();
    }
  }
};

}  // namespace trimul::cuda::sm90
