// SPDX-License-Identifier: Apache-2.0
// Operands of a block's matrix product in shared memory, and the product of a slab of two of them in a warp's registers.
//
// A slab holds 128 bytes of k (slab_elements) for every row of an operand, in 16-byte chunks whose place is their number exclusive-or a key
// of the row, so that eight lanes that read one chunk of eight rows meet 32 different banks. Three ways to lie there:
//
//   kRows          [rows][128 bytes], k contiguous; key: row % 8
//   kSpreadRows    the same, for a B operand of 32 or 64 rows a warp, of which a thread shall hold eight or twice eight in a row: column
//                  2 t + e of the warp's n-tile ni is row 32 (ni / 4) + 8 t + 2 (ni % 4) + e; key: spread_key(row)
//   kColumns       [slices of 128 bytes of rows][k of the slab][128 bytes], the row index contiguous; key: column_key(k)
//
// Accumulators of a warp: acc[mi][ni][2 h + e] belongs to row a_row(mi, h) and columns b_row(ni), b_row(ni) + 1 of its tile. Sums run over
// ascending k, the steps of a slab one after the other, whatever the tile.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/common/fragment_norm.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/matrix.cuh"
#include "cuda/sm80/arithmetic.hpp"

namespace trimul::cuda::sm80 {

/// Two numbers as 16-bit elements of an operand, the first in the low half.
template <Arithmetic kArithmetic>
__device__ __forceinline__ std::uint32_t pack_pair(float low, float high) {
  static_assert(operand_bytes(kArithmetic) == 2);
  if constexpr (kArithmetic == Arithmetic::kBf16) return pack_bf16(low, high);
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

enum class Storage { kRows, kSpreadRows, kColumns };

inline constexpr int kStepsPerSlab = 4;  // k steps of mma.sync: 32 bytes of k each

/// Which of the eight places of a row's chunks chunk 0 takes (kSpreadRows).
__device__ __forceinline__ int spread_key(int row) {
  return (row & 1) | ((row >> 3) & 3) << 1;
}

/// The same for row k of kColumns. 32-bit elements are read four k at a time, each at two neighbouring chunks.
template <Arithmetic kArithmetic>
__device__ __forceinline__ int column_key(int k) {
  return operand_bytes(kArithmetic) == 2 ? k & 7 : 2 * (k & 3);
}

/// Bytes of a slice of kColumns.
template <Arithmetic kArithmetic>
inline constexpr int kSliceBytes = slab_elements(kArithmetic) * kSlabRowBytes;
/// Rows of a slice of kColumns.
template <Arithmetic kArithmetic>
inline constexpr int kSliceRows = kSlabRowBytes / operand_bytes(kArithmetic);

/// What a lane knows of the A operand of its warp, whose tile starts at row `first_row`, a multiple of its height.
template <Arithmetic kArithmetic, Storage kStorage>
class AOperand {
  static_assert(kStorage != Storage::kSpreadRows);
  static constexpr bool kIs16Bit = operand_bytes(kArithmetic) == 2;
  static constexpr bool kIsIeee = kArithmetic == Arithmetic::kIeee;

 public:
  __device__ __forceinline__ AOperand(int lane, int first_row) {
    const int g = lane / 4;
    const int t = lane % 4;
    if constexpr (kStorage == Storage::kRows) {
      const int row = first_row + (kIsIeee ? g : lane % 16);
      const int chunk = kIsIeee ? 0 : lane / 16;
      offset_ = static_cast<unsigned>(row * kSlabRowBytes + ((chunk ^ (row & 7)) << 4));
    } else if constexpr (kIs16Bit) {
      const int k = lane % 8 + lane / 16 * 8;
      const int chunk = first_row / 8 % kChunksPerSlabRow + ((lane >> 3) & 1);
      offset_ = static_cast<unsigned>(first_row / kSliceRows<kArithmetic> * kSliceBytes<kArithmetic> + k * kSlabRowBytes +
                                      ((chunk ^ column_key<kArithmetic>(k)) << 4));
    } else if constexpr (!kIsIeee) {
      const int chunk = g >> 2;
      offset_ = static_cast<unsigned>(first_row / kSliceRows<kArithmetic> * kSliceBytes<kArithmetic> + t * kSlabRowBytes +
                                      ((chunk ^ column_key<kArithmetic>(t)) << 4) + (g & 3) * 4);
    } else {
      offset_ = static_cast<unsigned>(first_row / kSliceRows<kArithmetic> * kSliceBytes<kArithmetic> + (g << 4));
    }
  }

  /// Fragment of rows 16 mi .. 16 mi + 15 at a step of the slab at `slab`.
  __device__ __forceinline__ void load(std::uint32_t (&fragment)[4], std::uint32_t slab, int mi, int step) const {
    if constexpr (kStorage == Storage::kRows) {
      ptx::ldmatrix_x4(fragment, slab + (offset_ ^ static_cast<unsigned>(step << 5)) + static_cast<unsigned>(mi * 16 * kSlabRowBytes));
    } else if constexpr (kIs16Bit) {
      ptx::ldmatrix_x4_trans(fragment,
                             slab + (offset_ ^ static_cast<unsigned>((2 * mi) << 4)) + static_cast<unsigned>(step * 16 * kSlabRowBytes));
    } else {
      const std::uint32_t address = slab + static_cast<unsigned>(mi / 2 * kSliceBytes<kArithmetic> + step * 8 * kSlabRowBytes);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        fragment[i] = ptx::load_shared(address + (offset_ ^ static_cast<unsigned>((4 * (mi % 2) + 2 * (i % 2)) << 4)) +
                                       static_cast<unsigned>(i / 2 * 4 * kSlabRowBytes));
    }
  }

  /// kIeee, kRows: k 4 chunk .. 4 chunk + 3 of row i of the thread.
  __device__ __forceinline__ float4 load_k(std::uint32_t slab, int i, int chunk) const {
    return ptx::load_shared_float4(slab + (offset_ ^ static_cast<unsigned>(chunk << 4)) + static_cast<unsigned>(i * 8 * kSlabRowBytes));
  }
  /// kIeee, kColumns: rows 4 quad .. 4 quad + 3 of the thread at k.
  __device__ __forceinline__ float4 load_rows(std::uint32_t slab, int quad, int k) const {
    return ptx::load_shared_float4(slab + (offset_ ^ static_cast<unsigned>(column_key<kArithmetic>(k) << 4)) +
                                   static_cast<unsigned>(quad * kSliceBytes<kArithmetic> + k * kSlabRowBytes));
  }

 private:
  std::uint32_t offset_;
};

/// The same for the B operand: 32 or 64 rows from `first_row` on, a multiple of that.
template <Arithmetic kArithmetic, Storage kStorage>
class BOperand {
  static constexpr bool kIs16Bit = operand_bytes(kArithmetic) == 2;
  static constexpr bool kIsIeee = kArithmetic == Arithmetic::kIeee;
  /// Row of column `c` of n-tile 0.
  static __device__ __forceinline__ int row_of(int c) { return kStorage == Storage::kSpreadRows ? 8 * (c / 2) + c % 2 : c; }
  /// From there to n-tile ni.
  static constexpr int tile_bytes(int ni) { return (kStorage == Storage::kSpreadRows ? ni / 4 * 32 + ni % 4 * 2 : ni * 8) * kSlabRowBytes; }

 public:
  __device__ __forceinline__ BOperand(int lane, int first_row) {
    const int g = lane / 4;
    const int t = lane % 4;
    if constexpr (kStorage != Storage::kColumns) {
      const int c = kIsIeee ? 2 * t : lane % 8;  // kIeee: and the column behind it
      const int row = first_row + row_of(c) + (kIsIeee ? 0 : lane / 16 * (kStorage == Storage::kSpreadRows ? 2 : 8));
      const int chunk = kIsIeee ? 0 : (lane >> 3) & 1;
      offset_ = static_cast<unsigned>(row * kSlabRowBytes + ((chunk ^ c) << 4));
    } else if constexpr (kIs16Bit) {
      const int k = lane % 16;
      const int chunk = first_row / 8 % kChunksPerSlabRow + lane / 16;
      offset_ = static_cast<unsigned>(first_row / kSliceRows<kArithmetic> * kSliceBytes<kArithmetic> + k * kSlabRowBytes +
                                      ((chunk ^ column_key<kArithmetic>(k)) << 4));
    } else if constexpr (!kIsIeee) {
      const int chunk = g >> 2;
      offset_ = static_cast<unsigned>(first_row / kSliceRows<kArithmetic> * kSliceBytes<kArithmetic> + t * kSlabRowBytes +
                                      ((chunk ^ column_key<kArithmetic>(t)) << 4) + (g & 3) * 4);
    } else {
      offset_ = static_cast<unsigned>(first_row / kSliceRows<kArithmetic> * kSliceBytes<kArithmetic> + (t << 4));
    }
  }

  /// Fragments of n-tiles ni and ni + 1, ni even: two registers each.
  __device__ __forceinline__ void load(std::uint32_t (&fragments)[4], std::uint32_t slab, int ni, int step) const {
    if constexpr (kStorage != Storage::kColumns) {
      ptx::ldmatrix_x4(fragments, slab + (offset_ ^ static_cast<unsigned>(step << 5)) + static_cast<unsigned>(tile_bytes(ni)));
    } else if constexpr (kIs16Bit) {
      ptx::ldmatrix_x4_trans(fragments,
                             slab + (offset_ ^ static_cast<unsigned>(ni << 4)) + static_cast<unsigned>(step * 16 * kSlabRowBytes));
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        fragments[i] = ptx::load_shared(slab + (offset_ ^ static_cast<unsigned>((2 * (ni % 4 + i / 2)) << 4)) +
                                        static_cast<unsigned>(ni / 4 * kSliceBytes<kArithmetic> + (step * 8 + i % 2 * 4) * kSlabRowBytes));
    }
  }

  /// kIeee, not kColumns: k 4 chunk .. 4 chunk + 3 of column e of n-tile ni.
  __device__ __forceinline__ float4 load_k(std::uint32_t slab, int ni, int e, int chunk) const {
    const std::uint32_t offset = e == 0 ? offset_ : (offset_ ^ 16U) + kSlabRowBytes;
    return ptx::load_shared_float4(slab + (offset ^ static_cast<unsigned>(chunk << 4)) + static_cast<unsigned>(tile_bytes(ni)));
  }
  /// kIeee, kColumns: columns of n-tiles 2 pair and 2 pair + 1 at k.
  __device__ __forceinline__ float4 load_rows(std::uint32_t slab, int pair, int k) const {
    return ptx::load_shared_float4(slab + (offset_ ^ static_cast<unsigned>((column_key<kArithmetic>(k) ^ 4 * (pair % 2)) << 4)) +
                                   static_cast<unsigned>(pair / 2 * kSliceBytes<kArithmetic> + k * kSlabRowBytes));
  }

 private:
  std::uint32_t offset_;
};

/// Row of the A operand's warp tile that acc[mi][.][2 h + .] belongs to.
template <Arithmetic kArithmetic, Storage kStorage>
__device__ __forceinline__ int a_row(int lane, int mi, int h) {
  if constexpr (kArithmetic == Arithmetic::kIeee && kStorage == Storage::kColumns) {
    const int i = 2 * mi + h;
    return 32 * (i / 4) + lane / 4 * 4 + i % 4;
  }
  return 16 * mi + 8 * h + lane / 4;
}

/// Row of the B operand's warp tile, that is column of the product, that acc[.][ni][0] belongs to; [1] is the one behind it.
template <Arithmetic kArithmetic, Storage kStorage>
__device__ __forceinline__ int b_row(int lane, int ni) {
  const int t = lane % 4;
  if constexpr (kStorage == Storage::kSpreadRows) return 32 * (ni / 4) + 8 * t + 2 * (ni % 4);
  if constexpr (kArithmetic == Arithmetic::kIeee && kStorage == Storage::kColumns) return 16 * (ni / 2) + 4 * t + 2 * (ni % 2);
  return 8 * ni + 2 * t;
}

/// An fp32 number as the sum of two TF32 numbers, the first rounded, but for the last bits of the second, which the tensor cores do not
/// read. An infinite number becomes NaN: it only stands where what follows is not finite in any case (packed_weights.cu has none in the
/// gates).
struct SplitTf32 {
  std::uint32_t high, low;
};
__device__ __forceinline__ SplitTf32 split_tf32(std::uint32_t bits) {
  const std::uint32_t high = (bits + 0x1000U) & 0xffffe000U;  // as cvt.rna.tf32, in half the time
  return {high, __float_as_uint(__uint_as_float(bits) - __uint_as_float(high))};
}

/// One product a fragment. The fragments of a step are loaded while the products of the one before run.
template <int kMt, int kNt, typename A, typename B>
__device__ __forceinline__ void multiply_slab_once(float (&acc)[kMt][kNt][4], const A& a, std::uint32_t a_slab, const B& b,
                                                   std::uint32_t b_slab, auto&& product) {
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
  for (int step = 0; step < kStepsPerSlab; ++step) {
    if (step + 1 < kStepsPerSlab) load(step + 1);
#pragma unroll
    for (int mi = 0; mi < kMt; ++mi)
#pragma unroll
      for (int ni = 0; ni < kNt; ++ni)
        product(acc[mi][ni], a_fragments[step % 2][mi], b_fragments[step % 2][ni / 2][ni % 2 * 2],
                b_fragments[step % 2][ni / 2][ni % 2 * 2 + 1]);
  }
}

/// Three products a fragment, summed up over two steps, 16 terms, before they are added to acc.
template <int kMt, int kNt, typename A, typename B>
__device__ __forceinline__ void multiply_slab_tf32x3(float (&acc)[kMt][kNt][4], const A& a, std::uint32_t a_slab, const B& b,
                                                     std::uint32_t b_slab) {
  static_assert(kNt <= 4, "the parts of more n-tiles do not leave enough registers");
  constexpr int kJoined = 2;
#pragma unroll 1  // neither do those of more steps
  for (int first = 0; first < kStepsPerSlab; first += kJoined) {
    SplitTf32 b_parts[kJoined][kNt][2];
#pragma unroll
    for (int step = 0; step < kJoined; ++step)
#pragma unroll
      for (int ni = 0; ni < kNt; ni += 2) {
        std::uint32_t fragments[4];
        b.load(fragments, b_slab, ni, first + step);
#pragma unroll
        for (int i = 0; i < 4; ++i) b_parts[step][ni + i / 2][i % 2] = split_tf32(fragments[i]);
      }
#pragma unroll
    for (int mi = 0; mi < kMt; ++mi) {
      float sums[kNt][4] = {};
#pragma unroll
      for (int step = 0; step < kJoined; ++step) {
        std::uint32_t high[4];
        std::uint32_t low[4];
        a.load(high, a_slab, mi, first + step);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const SplitTf32 parts = split_tf32(high[i]);
          high[i] = parts.high;
          low[i] = parts.low;
        }
        // The n-tiles in turn, so that no product waits for the one before it.
        const auto& w = b_parts[step];
#pragma unroll
        for (int ni = 0; ni < kNt; ++ni) ptx::mma_m16n8k8_tf32(sums[ni], low, w[ni][0].high, w[ni][1].high);
#pragma unroll
        for (int ni = 0; ni < kNt; ++ni) ptx::mma_m16n8k8_tf32(sums[ni], high, w[ni][0].low, w[ni][1].low);
#pragma unroll
        for (int ni = 0; ni < kNt; ++ni) ptx::mma_m16n8k8_tf32(sums[ni], high, w[ni][0].high, w[ni][1].high);
      }
#pragma unroll
      for (int ni = 0; ni < kNt; ++ni)
#pragma unroll
        for (int i = 0; i < 4; ++i) acc[mi][ni][i] += sums[ni][i];
    }
  }
}

template <int kMt, int kNt, Storage kStorageA, Storage kStorageB>
__device__ __forceinline__ void multiply_slab_ieee(float (&acc)[kMt][kNt][4], const AOperand<Arithmetic::kIeee, kStorageA>& a,
                                                   std::uint32_t a_slab, const BOperand<Arithmetic::kIeee, kStorageB>& b,
                                                   std::uint32_t b_slab) {
  if constexpr (kStorageA == Storage::kColumns) {
    static_assert(kStorageB == Storage::kColumns);
#pragma unroll 4
    for (int k = 0; k < slab_elements(Arithmetic::kIeee); ++k) {
      float b_values[kNt / 2][4];
#pragma unroll
      for (int pair = 0; pair < kNt / 2; ++pair) {
        const float4 v = b.load_rows(b_slab, pair, k);
        b_values[pair][0] = v.x, b_values[pair][1] = v.y, b_values[pair][2] = v.z, b_values[pair][3] = v.w;
      }
#pragma unroll
      for (int quad = 0; quad < kMt / 2; ++quad) {
        const float4 v = a.load_rows(a_slab, quad, k);
        const float a_values[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int c = 0; c < 2 * kNt; ++c) {
            float& sum = acc[2 * quad + i / 2][c / 2][2 * (i % 2) + c % 2];
            sum = fmaf(a_values[i], b_values[c / 4][c % 4], sum);
          }
      }
    }
  } else {
#pragma unroll 1
    for (int chunk = 0; chunk < kChunksPerSlabRow; ++chunk) {
      float4 b_values[kNt][2];
#pragma unroll
      for (int ni = 0; ni < kNt; ++ni)
#pragma unroll
        for (int e = 0; e < 2; ++e) b_values[ni][e] = b.load_k(b_slab, ni, e, chunk);
#pragma unroll
      for (int i = 0; i < 2 * kMt; ++i) {
        const float4 v = a.load_k(a_slab, i, chunk);
#pragma unroll
        for (int c = 0; c < 2 * kNt; ++c) {
          float& sum = acc[i / 2][c / 2][2 * (i % 2) + c % 2];
          const float4& w = b_values[c / 2][c % 2];
          sum = fmaf(v.x, w.x, sum);
          sum = fmaf(v.y, w.y, sum);
          sum = fmaf(v.z, w.z, sum);
          sum = fmaf(v.w, w.w, sum);
        }
      }
    }
  }
}

/// acc += the product of a slab of both operands; whole warp, both complete and visible.
template <Arithmetic kArithmetic, int kMt, int kNt, Storage kStorageA, Storage kStorageB>
__device__ __forceinline__ void multiply_slab(float (&acc)[kMt][kNt][4], const AOperand<kArithmetic, kStorageA>& a, std::uint32_t a_slab,
                                              const BOperand<kArithmetic, kStorageB>& b, std::uint32_t b_slab) {
  if constexpr (kArithmetic == Arithmetic::kBf16)
    multiply_slab_once(acc, a, a_slab, b, b_slab, ptx::mma_m16n8k16);
  else if constexpr (kArithmetic == Arithmetic::kFp16)
    multiply_slab_once(acc, a, a_slab, b, b_slab, ptx::mma_m16n8k16_f16);
  else if constexpr (kArithmetic == Arithmetic::kTf32)
    multiply_slab_once(acc, a, a_slab, b, b_slab, ptx::mma_m16n8k8_tf32);
  else if constexpr (kArithmetic == Arithmetic::kTf32x3)
    multiply_slab_tf32x3(acc, a, a_slab, b, b_slab);
  else
    multiply_slab_ieee(acc, a, a_slab, b, b_slab);
}

template <int kMt, int kNt>
__device__ __forceinline__ void clear(float (&acc)[kMt][kNt][4]) {
#pragma unroll
  for (int mi = 0; mi < kMt; ++mi)
#pragma unroll
    for (int ni = 0; ni < kNt; ++ni)
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[mi][ni][i] = 0.0F;
}

}  // namespace trimul::cuda::sm80
