// SPDX-License-Identifier: Apache-2.0
// Slabs of weights on their way through shared memory. Packed weights are the very images of the slabs, one behind the other in the order
// in which a tile needs them (packed_weights.hpp), so that a copy keeps no account of rows, columns or padding.
#pragma once

#include <cstdint>

#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/matrix.cuh"
#include "cuda/sm80/arithmetic.hpp"

namespace trimul::cuda::sm80 {

/// cp.async.wait_group for a ring of 2 to 6 stages, all but whose last are under way: the oldest has arrived.
__device__ __forceinline__ void wait_for_oldest(int stages) {
  switch (stages) {
    case 2: return ptx::cp_async_wait_group<0>();
    case 3: return ptx::cp_async_wait_group<1>();
    case 4: return ptx::cp_async_wait_group<2>();
    case 5: return ptx::cp_async_wait_group<3>();
    default: return ptx::cp_async_wait_group<4>();
  }
}

/// The whole block copies; a stage is rewritten only behind the barrier in `take` that follows its last reading.
template <int kImageBytes, int kThreads>
class WeightRing {
 public:
  __device__ __forceinline__ WeightRing(const std::uint8_t* images, int num_images, std::uint32_t smem, int stages)
      : images_(images), num_images_(num_images), smem_(smem), stages_(stages) {}

  /// Starts the copies of the first images, all stages but one.
  __device__ __forceinline__ void start() {
    next_ = 0;
    for (int i = 0; i < stages_ - 1; ++i) copy_next();
  }

  /// Address of the next image, complete and visible; the copy of another one starts into the stage that was read before.
  __device__ __forceinline__ std::uint32_t take() {
    wait_for_oldest(stages_);
    __syncthreads();
    const std::uint32_t image = smem_ + static_cast<unsigned>(read_stage_ * kImageBytes);
    read_stage_ = read_stage_ + 1 == stages_ ? 0 : read_stage_ + 1;
    copy_next();
    return image;
  }

 private:
  __device__ __forceinline__ void copy_next() {
    if (next_ < num_images_) {
      const std::uint8_t* const from = images_ + std::int64_t{next_} * kImageBytes + threadIdx.x * kChunkBytes;
      const std::uint32_t to = smem_ + static_cast<unsigned>(write_stage_ * kImageBytes) + threadIdx.x * kChunkBytes;
      static_assert(kImageBytes % (kThreads * kChunkBytes) == 0);
#pragma unroll
      for (int i = 0; i < kImageBytes / (kThreads * kChunkBytes); ++i)
        ptx::cp_async_16(to + static_cast<unsigned>(i * kThreads * kChunkBytes), from + i * kThreads * kChunkBytes);
    }
    ptx::cp_async_commit_group();
    ++next_;
    write_stage_ = write_stage_ + 1 == stages_ ? 0 : write_stage_ + 1;
  }

  const std::uint8_t* images_;
  int num_images_;
  std::uint32_t smem_;
  int stages_;
  int next_ = 0;
  int read_stage_ = 0;
  int write_stage_ = 0;
};

/// A sum of products and what makes a number of it: of scaled operands the power of two that they left, and the bias.
template <Arithmetic kArithmetic>
__device__ __forceinline__ float apply(const float2& affine, float sum) {
  return is_scaled(kArithmetic) ? fmaf(sum, affine.x, affine.y) : sum + affine.y;
}

/// value * sigmoid(gate), within some units in the last place.
__device__ __forceinline__ float gated(float value, float gate) {
  return value * ptx::reciprocal_approx(1.0F + __expf(-gate));  // 0 where the power is infinite
}

}  // namespace trimul::cuda::sm80
