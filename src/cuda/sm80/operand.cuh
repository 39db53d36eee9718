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
// Eight elements of one k or of one row are a chunk of 16-bit operands; pairs have two chunks for them, the high parts and the low ones;
// four elements are a chunk of 32-bit operands.
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
  static_assert(kArithmetic != Arithmetic::kIeee);
  if constexpr (kArithmetic == Arithmetic::kBf16) return pack_bf16(low, high);
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

/// Consecutive elements that are read, normalised and stored together.
inline constexpr int kOctet = 8;

/// The two parts of two numbers of kPairs: rounded to fp16, and what is left, rounded too; 22 bits at least, as long as the number is not
/// below 2^-3 or so, and 2^-25 from there on. An infinite number becomes NaN: it only stands where what follows is not finite in any case
/// (scaled_weights.cu has none in the gates).
struct PairParts {
  std::uint32_t high, low;
};
__device__ __forceinline__ PairParts split_pair(float first, float second) {
  const __half2 high = __floats2half2_rn(first, second);
  const float2 widened = __half22float2(high);
  return {*reinterpret_cast<const std::uint32_t*>(&high), pack_pair<Arithmetic::kPairs>(first - widened.x, second - widened.y)};
}

/// The same of eight consecutive numbers: the chunk of their high parts and that of their low ones.
struct OctetParts {
  uint4 high, low;
};
__device__ __forceinline__ OctetParts split_octet(const float (&v)[kOctet]) {
  PairParts parts[kOctet / 2];
#pragma unroll
  for (int i = 0; i < kOctet / 2; ++i) parts[i] = split_pair(v[2 * i], v[2 * i + 1]);
  return {make_uint4(parts[0].high, parts[1].high, parts[2].high, parts[3].high),
          make_uint4(parts[0].low, parts[1].low, parts[2].low, parts[3].low)};
}

/// mma.sync m16n8k16 of operands of 16-bit elements.
template <Arithmetic kArithmetic>
__device__ __forceinline__ void mma_16bit(float (&d)[4], const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1) {
  if constexpr (kArithmetic == Arithmetic::kBf16)
    ptx::mma_m16n8k16(d, a, b0, b1);
  else
    ptx::mma_m16n8k16_f16(d, a, b0, b1);
}

enum class Storage { kRows, kSpreadRows, kColumns };

/// k steps of mma.sync of a slab: sixteen elements each.
template <Arithmetic kArithmetic>
inline constexpr int kStepsPerSlab = slab_elements(kArithmetic) / 16;

/// Which of the eight places of a row's chunks chunk 0 takes (kSpreadRows).
__device__ __forceinline__ int spread_key(int row) {
  return (row & 1) | ((row >> 3) & 3) << 1;
}

/// The same for row k of kColumns. 32-bit elements are read four k at a time, each at two neighbouring chunks.
template <Arithmetic kArithmetic>
__device__ __forceinline__ int column_key(int k) {
  return kArithmetic == Arithmetic::kIeee ? 2 * (k & 3) : k & 7;
}

/// Bytes of a slice of kColumns.
template <Arithmetic kArithmetic>
inline constexpr int kSliceBytes = slab_elements(kArithmetic) * kSlabRowBytes;
/// Rows of a slice of kColumns.
template <Arithmetic kArithmetic>
inline constexpr int kSliceRows = kSlabRowBytes / operand_bytes(kArithmetic);

/// Place of the 16-byte chunk of an operand of 16-bit elements that holds part `part` of k or rows `eighth` * 8 on.
template <Arithmetic kArithmetic>
constexpr unsigned chunk_bits(int eighth, int part) {
  return static_cast<unsigned>(eighth * parts_of(kArithmetic) + part) << 4;
}

/// What a lane knows of the A operand of its warp, whose tile starts at row `first_row`, a multiple of its height.
template <Arithmetic kArithmetic, Storage kStorage>
class AOperand {
  static_assert(kStorage != Storage::kSpreadRows);
  static constexpr bool kIsIeee = kArithmetic == Arithmetic::kIeee;
  static constexpr int kParts = parts_of(kArithmetic);

 public:
  __device__ __forceinline__ AOperand(int lane, int first_row) {
    if constexpr (kStorage == Storage::kRows) {
      const int row = first_row + (kIsIeee ? lane / 4 : lane % 16);
      const int chunk = kIsIeee ? 0 : lane / 16 * kParts;
      offset_ = static_cast<unsigned>(row * kSlabRowBytes + ((chunk ^ (row & 7)) << 4));
    } else if constexpr (!kIsIeee) {
      const int k = lane % 8 + lane / 16 * 8;
      const int chunk = first_row / 8 * kParts % kChunksPerSlabRow + ((lane >> 3) & 1) * kParts;
      offset_ = static_cast<unsigned>(first_row / kSliceRows<kArithmetic> * kSliceBytes<kArithmetic> + k * kSlabRowBytes +
                                      ((chunk ^ column_key<kArithmetic>(k)) << 4));
    } else {
      offset_ = static_cast<unsigned>(first_row / kSliceRows<kArithmetic> * kSliceBytes<kArithmetic> + (lane / 4 << 4));
    }
  }

  /// Fragment of a part of rows 16 mi .. 16 mi + 15 at a step of the slab at `slab`. Not kIeee.
  __device__ __forceinline__ void load(std::uint32_t (&fragment)[4], std::uint32_t slab, int mi, int step, int part = 0) const {
    if constexpr (kStorage == Storage::kRows) {
      ptx::ldmatrix_x4(fragment,
                       slab + (offset_ ^ chunk_bits<kArithmetic>(2 * step, part)) + static_cast<unsigned>(mi * 16 * kSlabRowBytes));
    } else {
      constexpr int kTiles = kSliceRows<kArithmetic> / 16;
      ptx::ldmatrix_x4_trans(fragment, slab + (offset_ ^ chunk_bits<kArithmetic>(2 * (mi % kTiles), part)) +
                                           static_cast<unsigned>(mi / kTiles * kSliceBytes<kArithmetic> + step * 16 * kSlabRowBytes));
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
  static constexpr bool kIsIeee = kArithmetic == Arithmetic::kIeee;
  static constexpr int kParts = parts_of(kArithmetic);
  /// Row of column `c` of n-tile 0.
  static __device__ __forceinline__ int row_of(int c) { return kStorage == Storage::kSpreadRows ? 8 * (c / 2) + c % 2 : c; }
  /// From there to n-tile ni.
  static constexpr int tile_bytes(int ni) { return (kStorage == Storage::kSpreadRows ? ni / 4 * 32 + ni % 4 * 2 : ni * 8) * kSlabRowBytes; }

 public:
  __device__ __forceinline__ BOperand(int lane, int first_row) {
    if constexpr (kStorage != Storage::kColumns) {
      const int c = kIsIeee ? 2 * (lane % 4) : lane % 8;  // kIeee: and the column behind it
      const int row = first_row + row_of(c) + (kIsIeee ? 0 : lane / 16 * (kStorage == Storage::kSpreadRows ? 2 : 8));
      const int chunk = kIsIeee ? 0 : ((lane >> 3) & 1) * kParts;
      offset_ = static_cast<unsigned>(row * kSlabRowBytes + ((chunk ^ c) << 4));
    } else if constexpr (!kIsIeee) {
      const int k = lane % 16;
      const int chunk = first_row / 8 * kParts % kChunksPerSlabRow + lane / 16 * kParts;
      offset_ = static_cast<unsigned>(first_row / kSliceRows<kArithmetic> * kSliceBytes<kArithmetic> + k * kSlabRowBytes +
                                      ((chunk ^ column_key<kArithmetic>(k)) << 4));
    } else {
      offset_ = static_cast<unsigned>(first_row / kSliceRows<kArithmetic> * kSliceBytes<kArithmetic> + (lane % 4 << 4));
    }
  }

  /// Fragments of a part of n-tiles ni and ni + 1, ni even: two registers each. Not kIeee.
  __device__ __forceinline__ void load(std::uint32_t (&fragments)[4], std::uint32_t slab, int ni, int step, int part = 0) const {
    if constexpr (kStorage != Storage::kColumns) {
      ptx::ldmatrix_x4(fragments, slab + (offset_ ^ chunk_bits<kArithmetic>(2 * step, part)) + static_cast<unsigned>(tile_bytes(ni)));
    } else {
      constexpr int kTiles = kSliceRows<kArithmetic> / 8;
      ptx::ldmatrix_x4_trans(fragments, slab + (offset_ ^ chunk_bits<kArithmetic>(ni % kTiles, part)) +
                                            static_cast<unsigned>(ni / kTiles * kSliceBytes<kArithmetic> + step * 16 * kSlabRowBytes));
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
