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
 public:
  /// The first slab, complete and visible.
  template <typename A, typename B>
  __device__ __forceinline__ void start(const A& a, const B& b, const Slabs& slabs) {
    load(a, b, slabs, 0);
  }

  template <typename A, typename B>
  __device__ __forceinline__ void multiply(float (&acc)[kMt][kNt][4], const A& a, const B& b, const Slabs& slabs, auto&& advance) {
#pragma unroll
    for (int step = 0; step < kStepsPerSlab; ++step) {
      if (step + 1 == kStepsPerSlab) advance();
      load(a, b, slabs, (step + 1) % kStepsPerSlab);
#pragma unroll
      for (int mi = 0; mi < kMt; ++mi)
#pragma unroll
        for (int ni = 0; ni < kNt; ++ni) {
          const std::uint32_t* const w = &b_fragments_[step % 2][ni / 2][ni % 2 * 2];
          if constexpr (kArithmetic == Arithmetic::kBf16)
            ptx::mma_m16n8k16(acc[mi][ni], a_fragments_[step % 2][mi], w[0], w[1]);
          else if constexpr (kArithmetic == Arithmetic::kFp16)
            ptx::mma_m16n8k16_f16(acc[mi][ni], a_fragments_[step % 2][mi], w[0], w[1]);
          else
            ptx::mma_m16n8k8_tf32(acc[mi][ni], a_fragments_[step % 2][mi], w[0], w[1]);
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

/// Three products a fragment, summed up over two steps, 16 terms, before they are added to acc.
template <int kMt, int kNt>
class RingProduct<Arithmetic::kTf32x3, kMt, kNt> {
  static_assert(kNt <= 4, "the parts of more n-tiles do not leave enough registers");
  static constexpr int kJoined = 2;

 public:
  template <typename A, typename B>
  __device__ __forceinline__ void start(const A& a, const B& b, const Slabs& slabs) {
    load_b(b, slabs.b, 0);
    load_a(a, slabs.a, 0, 0);
  }

  template <typename A, typename B>
  __device__ __forceinline__ void multiply(float (&acc)[kMt][kNt][4], const A& a, const B& b, const Slabs& slabs, auto&& advance) {
#pragma unroll
    for (int first = 0; first < kStepsPerSlab; first += kJoined) {
      SplitTf32 w[kJoined][kNt][2];
#pragma unroll
      for (int step = 0; step < kJoined; ++step)
#pragma unroll
        for (int ni = 0; ni < kNt; ++ni)
#pragma unroll
          for (int i = 0; i < 2; ++i) w[step][ni][i] = split_tf32(b_fragments_[step][ni / 2][ni % 2 * 2 + i]);
#pragma unroll
      for (int mi = 0; mi < kMt; ++mi) {
        std::uint32_t high[kJoined][4];
        std::uint32_t low[kJoined][4];
#pragma unroll
        for (int step = 0; step < kJoined; ++step)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const SplitTf32 parts = split_tf32(a_fragments_[step][i]);
            high[step][i] = parts.high;
            low[step][i] = parts.low;
          }
        if (mi + 1 < kMt) {
          load_a(a, slabs.a, mi + 1, first);
        } else {
          const int next = (first + kJoined) % kStepsPerSlab;
          if (next == 0) advance();
          load_b(b, slabs.b, next);
          load_a(a, slabs.a, 0, next);
        }
        // The n-tiles in turn, so that no product waits for the one before it.
        float sums[kNt][4] = {};
#pragma unroll
        for (int step = 0; step < kJoined; ++step) {
#pragma unroll
          for (int ni = 0; ni < kNt; ++ni) ptx::mma_m16n8k8_tf32(sums[ni], low[step], w[step][ni][0].high, w[step][ni][1].high);
#pragma unroll
          for (int ni = 0; ni < kNt; ++ni) ptx::mma_m16n8k8_tf32(sums[ni], high[step], w[step][ni][0].low, w[step][ni][1].low);
#pragma unroll
          for (int ni = 0; ni < kNt; ++ni) ptx::mma_m16n8k8_tf32(sums[ni], high[step], w[step][ni][0].high, w[step][ni][1].high);
        }
#pragma unroll
        for (int ni = 0; ni < kNt; ++ni)
#pragma unroll
          for (int i = 0; i < 4; ++i) acc[mi][ni][i] += sums[ni][i];
      }
    }
  }

 private:
  template <typename B>
  __device__ __forceinline__ void load_b(const B& b, std::uint32_t b_slab, int first) {
#pragma unroll
    for (int step = 0; step < kJoined; ++step)
#pragma unroll
      for (int ni = 0; ni < kNt; ni += 2) b.load(b_fragments_[step][ni / 2], b_slab, ni, first + step);
  }
  template <typename A>
  __device__ __forceinline__ void load_a(const A& a, std::uint32_t a_slab, int mi, int first) {
#pragma unroll
    for (int step = 0; step < kJoined; ++step) a.load(a_fragments_[step], a_slab, mi, first + step);
  }

  std::uint32_t a_fragments_[kJoined][4];
  std::uint32_t b_fragments_[kJoined][kNt / 2][4];
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

}  // namespace trimul::cuda::sm80
