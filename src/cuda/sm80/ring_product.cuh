// SPDX-License-Identifier: Apache-2.0
// Products of the slabs of a ring, one after the other, whose loads run beside the products before them.
#pragma once

#include "cuda/sm80/operand.cuh"

namespace trimul::cuda::sm80 {

/// Where the current slabs of both operands lie.
struct Slabs {
  std::uint32_t a, b;
};

/// Products of the slabs of a ring, one after the other: the first fragments of a slab are loaded before the last products of the slab
/// before it. `advance` releases the current slabs once the whole block has read them and sets `slabs` to the next ones, complete and
/// visible.
template <Arithmetic kArithmetic, int kMt, int kNt>
class RingProduct {
  static constexpr int kSteps = kStepsPerSlab<kArithmetic>;

 public:
  /// The first slab, complete and visible.
  template <typename A, typename B>
  __device__ __forceinline__ void start(const A& a, const B& b, const Slabs& slabs) {
    load(a, b, slabs, 0);
  }

  template <typename A, typename B>
  __device__ __forceinline__ void multiply(float (&acc)[kMt][kNt][4], const A& a, const B& b, const Slabs& slabs, auto&& advance) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step + 1 == kSteps) advance();
      load(a, b, slabs, (step + 1) % kSteps);
#pragma unroll
      for (int mi = 0; mi < kMt; ++mi)
#pragma unroll
        for (int ni = 0; ni < kNt; ++ni) {
          const std::uint32_t* const w = &b_fragments_[step % 2][ni / 2][ni % 2 * 2];
          mma_16bit<kArithmetic>(acc[mi][ni], a_fragments_[step % 2][mi], w[0], w[1]);
        }
    }
  }

 private:
  template <typename A, typename B>
  __device__ __forceinline__ void load(const A& a, const B& b, const Slabs& slabs, int step) {
#pragma unroll
    for (int ni = 0; ni < kNt; ni += 2) b.load(b_fragments_[step % 2][ni / 2], slabs.b, ni, step);
#pragma unroll
    for (int mi = 0; mi < kMt; ++mi) a.load(a_fragments_[step % 2][mi], slabs.a, mi, step);
  }

  std::uint32_t a_fragments_[2][kMt][4];
  std::uint32_t b_fragments_[2][kNt / 2][4];
};

/// Three products of the parts of a fragment, whose sum over a step, 16 terms, is added to acc.
template <int kMt, int kNt>
class RingProduct<Arithmetic::kPairs, kMt, kNt> {
  static constexpr int kSteps = kStepsPerSlab<Arithmetic::kPairs>;
  static_assert(kNt <= 4, "no registers for more: the n-tiles are multiplied in turn, so that no product waits for the one before it");

 public:
  template <typename A, typename B>
  __device__ __forceinline__ void start(const A& a, const B& b, const Slabs& slabs) {
    load_b(b, slabs.b, 0);
    a.load(a_high_[0], slabs.a, 0, 0, 0);
    a.load(a_low_, slabs.a, 0, 0, 1);
  }

  template <typename A, typename B>
  __device__ __forceinline__ void multiply(float (&acc)[kMt][kNt][4], const A& a, const B& b, const Slabs& slabs, auto&& advance) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const auto& w = b_fragments_[step % 2];
#pragma unroll
      for (int mi = 0; mi < kMt; ++mi) {
        const bool is_last = mi + 1 == kMt;
        const int next_step = is_last ? (step + 1) % kSteps : step;
        const int next_mi = is_last ? 0 : mi + 1;
        const auto& high = a_high_[(step * kMt + mi) % 2];
        if (is_last && next_step == 0) advance();
        if (is_last) load_b(b, slabs.b, next_step);
        a.load(a_high_[(step * kMt + mi + 1) % 2], slabs.a, next_mi, next_step, 0);
        float sums[kNt][4] = {};
        const auto multiply_parts = [&](const std::uint32_t(&v)[4], int part) {
#pragma unroll
          for (int ni = 0; ni < kNt; ++ni) {
            const std::uint32_t* const pair = &w[part][ni / 2][ni % 2 * 2];
            mma_16bit<Arithmetic::kPairs>(sums[ni], v, pair[0], pair[1]);
          }
        };
        multiply_parts(a_low_, 0);
        a.load(a_low_, slabs.a, next_mi, next_step, 1);
        multiply_parts(high, 1);
        multiply_parts(high, 0);
#pragma unroll
        for (int ni = 0; ni < kNt; ++ni)
#pragma unroll
          for (int i = 0; i < 4; ++i) acc[mi][ni][i] += sums[ni][i];
      }
    }
  }

 private:
  template <typename B>
  __device__ __forceinline__ void load_b(const B& b, std::uint32_t slab, int step) {
#pragma unroll
    for (int part = 0; part < 2; ++part)
#pragma unroll
      for (int ni = 0; ni < kNt; ni += 2) b.load(b_fragments_[step % 2][part][ni / 2], slab, ni, step, part);
  }
  static_assert(kSteps % 2 == 0, "the first fragments of a slab lie where those before the first slab do");
  std::uint32_t a_high_[2][4];
  std::uint32_t a_low_[4];
  std::uint32_t b_fragments_[2][2][kNt / 2][4];
};

/// fp32 multiply-adds, which hide the latency of their loads by themselves.
template <int kMt, int kNt>
class RingProduct<Arithmetic::kIeee, kMt, kNt> {
 public:
  template <typename A, typename B>
  __device__ __forceinline__ void start(const A& /*a*/, const B& /*b*/, const Slabs& /*slabs*/) {}

  template <typename A, typename B>
  __device__ __forceinline__ void multiply(float (&acc)[kMt][kNt][4], const A& a, const B& b, const Slabs& slabs, auto&& advance) {
    multiply_slab_ieee(acc, a, slabs.a, b, slabs.b);
    advance();
  }
};

/// One product a fragment. The fragments of a step are loaded while the products of the one before run.
template <Arithmetic kArithmetic, int kMt, int kNt, typename A, typename B>
__device__ __forceinline__ void multiply_slab_once(float (&acc)[kMt][kNt][4], const A& a, std::uint32_t a_slab, const B& b,
                                                   std::uint32_t b_slab) {
  constexpr int kSteps = kStepsPerSlab<kArithmetic>;
  std::uint32_t a_fragments[2][kMt][4];
  std::uint32_t b_fragments[2][kNt / 2][4];
  const auto load = [&](int step) {
#pragma unroll
    for (int ni = 0; ni < kNt; ni += 2) b.load(b_fragments[step % 2][ni / 2], b_slab, ni, step);
#pragma unroll
    for (int mi = 0; mi < kMt; ++mi) a.load(a_fragments[step % 2][mi], a_slab, mi, step);
  };
  load(0);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if (step + 1 < kSteps) load(step + 1);
#pragma unroll
    for (int mi = 0; mi < kMt; ++mi)
#pragma unroll
      for (int ni = 0; ni < kNt; ++ni)
        mma_16bit<kArithmetic>(acc[mi][ni], a_fragments[step % 2][mi], b_fragments[step % 2][ni / 2][ni % 2 * 2],
                               b_fragments[step % 2][ni / 2][ni % 2 * 2 + 1]);
  }
}

/// acc += the product of a slab of both operands; whole warp, both complete and visible.
template <Arithmetic kArithmetic, int kMt, int kNt, Storage kStorageA, Storage kStorageB>
__device__ __forceinline__ void multiply_slab(float (&acc)[kMt][kNt][4], const AOperand<kArithmetic, kStorageA>& a, std::uint32_t a_slab,
                                              const BOperand<kArithmetic, kStorageB>& b, std::uint32_t b_slab) {
  if constexpr (kArithmetic == Arithmetic::kIeee) {
    multiply_slab_ieee(acc, a, a_slab, b, b_slab);
  } else if constexpr (kArithmetic == Arithmetic::kPairs) {
    RingProduct<kArithmetic, kMt, kNt> product;
    product.start(a, b, {a_slab, b_slab});
    product.multiply(acc, a, b, {a_slab, b_slab}, [] {});
  } else {
    multiply_slab_once<kArithmetic>(acc, a, a_slab, b, b_slab);
  }
}

}  // namespace trimul::cuda::sm80
