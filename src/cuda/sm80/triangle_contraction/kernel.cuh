// SPDX-License-Identifier: Apache-2.0
// Triangle contraction: for every sample and channel y = A B^T (outgoing) or A^T B (incoming) of N x N planes.
// docs/kernels/sm80-triangle-contraction.md has the schedule and what was tried.
//
// A block takes tiles of the planes in turn and streams their slabs of k through a ring of shared memory, filled by cp.async; the slabs of
// the next tile follow those of the last without a gap. Outgoing, k runs along the rows of the planes, incoming across them; the operands
// keep the order they have in memory and are read accordingly.
#pragma once

#include "cuda/ptx/shared_address.cuh"
#include "cuda/sm80/kernel_order.cuh"
#include "cuda/sm80/operand.cuh"
#include "cuda/sm80/ring_product.cuh"
#include "cuda/sm80/triangle_contraction/config.hpp"
#include "cuda/sm80/weight_ring.cuh"

namespace trimul::cuda::sm80 {

template <Arithmetic kArithmetic, bool kIncoming, int kTile>
struct TriangleContraction {
  static constexpr ContractionTile kShape = contraction_tile(kArithmetic, kTile);
  static constexpr int kThreads = kContractionThreads;
  static constexpr int kTileM = kShape.rows;
  static constexpr int kTileN = kShape.columns;
  static constexpr int kWarpRows = kShape.warp_rows;
  static constexpr int kWarpColumns = kShape.warp_columns;
  static constexpr int kWarpsN = kTileN / kWarpColumns;
  static_assert(kTileM / kWarpRows * kWarpsN * 32 == kThreads);
  static constexpr int kMt = kWarpRows / 16;
  static constexpr int kNt = kWarpColumns / 8;
  static constexpr Storage kStorage = kIncoming ? Storage::kColumns : Storage::kRows;
  static constexpr int kElementBytes = operand_bytes(kArithmetic);
  static constexpr int kPartBytes = kElementBytes / parts_of(kArithmetic);  // of the elements that a chunk holds
  static constexpr int kChunkElements = kChunkBytes / kPartBytes;
  static constexpr int kSlab = slab_elements(kArithmetic);
  static constexpr int kABytes = kTileM * kSlabRowBytes;
  static constexpr int kStageBytes = kABytes + kTileN * kSlabRowBytes;

  struct Tile {
    const std::uint8_t* a;  // the plane
    const std::uint8_t* b;
    std::uint8_t* y;
    std::int64_t m, n;  // first row and column
    float scale;        // of scaled operands: what y is multiplied by,
    const float* mask;  // and the sample's mask_scale
  };

  static __device__ __forceinline__ Tile locate(const TriangleContractionParams& p, std::int64_t tile) {
    const std::int64_t per_plane = p.tiles_m * p.tiles_n;
    const std::int64_t plane = tile / per_plane;
    const std::int64_t place = tile - plane * per_plane;
    const std::int64_t channel = plane / p.batch;
    const std::int64_t sample = plane - channel * p.batch;
    const std::int64_t offset = channel * p.pitch + sample * p.sample;
    Tile at{p.a + offset * kElementBytes,
            p.b + offset * kElementBytes,
            p.y + offset * y_bytes(kArithmetic),
            place / p.tiles_n * kTileM,
            place % p.tiles_n * kTileN,
            1.0F,
            nullptr};
    if constexpr (is_scaled(kArithmetic)) {
      at.scale = ldexpf(1.0F, -__ldg(p.exponents + channel) - __ldg(p.exponents + p.channels + channel));
      if (p.mask_scale != nullptr) at.mask = p.mask_scale + sample * p.n_pad;
    }
    return at;
  }

  static __device__ __forceinline__ int clamp_bytes(std::int32_t elements) { return min(max(elements, 0), kChunkElements) * kPartBytes; }

  /// One thread's copies of one operand's part of the slabs: every kPassRows-th row of what lies in memory as rows, one chunk of each. What
  /// is outside of the plane becomes zero.
  template <int kRows>
  struct Loader {
    static constexpr int kRowChunks = kIncoming ? kRows * kElementBytes / kChunkBytes : kChunksPerSlabRow;  // of a row in memory
    static constexpr int kMemoryRows = kIncoming ? kSlab : kRows;                                           // of a slab
    static constexpr int kPassRows = kThreads / kRowChunks;
    static constexpr int kPasses = kMemoryRows / kPassRows;

    const std::uint8_t* from;   // of the next slab
    std::uint32_t to;           // in a stage
    std::int32_t row;           // first row of the thread
    std::int32_t rows_left;     // inside of the plane, from the slab's first row on
    std::int32_t columns_left;  // the same of columns, from the thread's chunk on

    __device__ __forceinline__ Loader(const TriangleContractionParams& p, const std::uint8_t* plane, std::int64_t first) {
      const int thread = static_cast<int>(threadIdx.x);
      const int chunk = thread % kRowChunks;
      row = thread / kRowChunks;
      const std::int64_t memory_row = (kIncoming ? 0 : first) + row;
      const std::int64_t column = (kIncoming ? first : 0) + chunk / parts_of(kArithmetic) * kChunkElements;
      from = plane + (memory_row * p.n_pad + (kIncoming ? first : 0)) * kElementBytes + chunk * kChunkBytes;
      rows_left = static_cast<std::int32_t>(p.tokens - (kIncoming ? 0 : first));
      columns_left = static_cast<std::int32_t>(p.tokens - column);
      const int key = kIncoming ? column_key<kArithmetic>(row) : row & 7;  // of the thread's first row
      to = static_cast<unsigned>((kIncoming ? chunk / kChunksPerSlabRow * kSliceBytes<kArithmetic> : 0) + row * kSlabRowBytes +
                                 ((chunk % kChunksPerSlabRow ^ key) << 4));
    }

    /// Starts the copies of the next slab.
    __device__ __forceinline__ void load(std::int64_t row_bytes, std::uint32_t stage) {
      const int bytes = clamp_bytes(columns_left);
      const std::uint8_t* source = from;
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        constexpr bool kKeyVaries = kIncoming && kArithmetic != Arithmetic::kIeee;
        const unsigned change = kKeyVaries ? static_cast<unsigned>(pass * kPassRows & 7) << 4 : 0U;
        ptx::cp_async_16(stage + (to ^ change) + static_cast<unsigned>(pass * kPassRows * kSlabRowBytes), source,
                         row + pass * kPassRows < rows_left ? bytes : 0);
        source += kPassRows * row_bytes;
      }
      if constexpr (kIncoming) {
        from = source;
        rows_left -= kSlab;
      } else {
        from += kSlabRowBytes;
        columns_left -= kSlab;
      }
    }
  };

  /// The copies of a block, one slab after the other over all of its tiles.
  struct Producer {
    const TriangleContractionParams& p;
    std::int64_t tile;
    int slab = 0;
    Loader<kTileM> a;
    Loader<kTileN> b;

    __device__ __forceinline__ Producer(const TriangleContractionParams& params, std::int64_t first, const Tile& place)
        : p(params), tile(first), a(params, place.a, place.m), b(params, place.b, place.n) {}

    /// Starts the copies of the next slab, if there is one, and closes the group.
    __device__ __forceinline__ void load_next(int slabs, std::uint32_t stage) {
      if (slab == slabs) {
        slab = 0;
        tile += gridDim.x;
        if (tile < p.total_tiles) {
          const Tile place = locate(p, tile);
          a = Loader<kTileM>(p, place.a, place.m);
          b = Loader<kTileN>(p, place.b, place.n);
        }
      }
      if (tile < p.total_tiles) {
        const std::int64_t row_bytes = p.n_pad * kElementBytes;
        a.load(row_bytes, stage);
        b.load(row_bytes, stage + kABytes);
      }
      ptx::cp_async_commit_group();
      ++slab;
    }
  };

  /// Of a power of two, neither it nor its inverse denormal.
  static __device__ __forceinline__ float inverse_power(float power) {
    return __uint_as_float(0x7f000000U - __float_as_uint(power));
  }

  /// 16 bytes of a row of y for every thread: a quad exchanges its words so that each thread has neighbouring columns.
  static __device__ __forceinline__ void store_tile(const TriangleContractionParams& p, const Tile& tile, int first_row, int first_column,
                                                    const float (&acc)[kMt][kNt][4]) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    constexpr int kStoreColumns = 16 / y_bytes(kArithmetic);
    constexpr int kGroup = kStoreColumns / 2;  // n-tiles whose columns a quad exchanges: 4 or 2
    const int member = lane % kGroup;
#pragma unroll
    for (int mi = 0; mi < kMt; ++mi)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const std::int64_t row = tile.m + first_row + a_row<kArithmetic, kStorage>(lane, mi, h);
        std::uint8_t* const to = tile.y + (row * p.n_pad) * y_bytes(kArithmetic);
        float scale = tile.scale;
        if (is_scaled(kArithmetic) && tile.mask != nullptr && row < p.tokens) scale *= inverse_power(__ldg(tile.mask + row));
#pragma unroll
        for (int ni = 0; ni < kNt; ni += kGroup) {
          uint4 words;
          std::int64_t column = tile.n + first_column;
          if constexpr (y_bytes(kArithmetic) == 2) {
            std::uint32_t w[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) w[k] = pack_bf16(acc[mi][ni + k][2 * h], acc[mi][ni + k][2 * h + 1]);
            exchange(w[0], w[1], lane, 1);
            exchange(w[2], w[3], lane, 1);
            exchange(w[0], w[2], lane, 2);
            exchange(w[1], w[3], lane, 2);
            words = make_uint4(w[0], w[1], w[2], w[3]);
            column += 8 * (ni + member);
          } else {
            std::uint32_t w[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
              const float sum = acc[mi][ni + k / 2][2 * h + k % 2];
              w[k] = __float_as_uint(is_scaled(kArithmetic) ? sum * scale : sum);
            }
            if constexpr (kArithmetic == Arithmetic::kIeee && kIncoming) {
              column += b_row<kArithmetic, kStorage>(lane, ni);  // four columns as they are
            } else {
              exchange(w[0], w[2], lane, 1);
              exchange(w[1], w[3], lane, 1);
              column += 8 * (ni + member) + lane % 4 / 2 * 4;
            }
            if (is_scaled(kArithmetic) && tile.mask != nullptr && column < p.tokens) {
              const float4 powers = __ldg(reinterpret_cast<const float4*>(tile.mask + column));
              w[0] = __float_as_uint(__uint_as_float(w[0]) * inverse_power(powers.x));
              w[1] = __float_as_uint(__uint_as_float(w[1]) * inverse_power(powers.y));
              w[2] = __float_as_uint(__uint_as_float(w[2]) * inverse_power(powers.z));
              w[3] = __float_as_uint(__uint_as_float(w[3]) * inverse_power(powers.w));
            }
            words = make_uint4(w[0], w[1], w[2], w[3]);
          }
          // Rows of planes have a multiple of eight elements: where the first column is inside of N, the others are at least padding.
          if (row < p.tokens && column < p.tokens) *reinterpret_cast<uint4*>(to + column * y_bytes(kArithmetic)) = words;
        }
      }
  }

  /// Lanes whose number has `bit` give `low` for the `high` of the lanes without it.
  static __device__ __forceinline__ void exchange(std::uint32_t& low, std::uint32_t& high, int lane, int bit) {
    const bool is_upper = (lane & bit) != 0;
    const std::uint32_t received = __shfl_xor_sync(0xffffffffU, is_upper ? low : high, bit);
    low = is_upper ? received : low;
    high = is_upper ? high : received;
  }

  /// All tiles of the block.
  static __device__ __forceinline__ void contract(const TriangleContractionParams& p, std::uint32_t smem) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int warp = static_cast<int>(threadIdx.x / 32);
    const int first_row = warp / kWarpsN * kWarpRows;
    const int first_column = warp % kWarpsN * kWarpColumns;
    const AOperand<kArithmetic, kStorage> a(lane, first_row);
    const BOperand<kArithmetic, kStorage> b(lane, first_column);
    const int slabs = static_cast<int>((p.tokens + kSlab - 1) / kSlab);
    std::int64_t index = blockIdx.x;
    Tile tile = locate(p, index);
    let_next_kernel_start();
    Producer producer(p, index, tile);
    for (int stage = 0; stage < p.stages; ++stage) producer.load_next(slabs, smem + static_cast<unsigned>(stage * kStageBytes));
    const std::uint32_t last_stage = smem + static_cast<unsigned>((p.stages - 1) * kStageBytes);
    Slabs stage{smem, smem + kABytes};
    // The stage that has just been read, by every thread, is written next; the one behind it has arrived.
    const auto advance = [&] {
      wait_for_oldest(p.stages);
      __syncthreads();
      producer.load_next(slabs, stage.a);
      stage.a = stage.a == last_stage ? smem : stage.a + kStageBytes;
      stage.b = stage.a + kABytes;
    };
    wait_for_oldest(p.stages);
    __syncthreads();
    RingProduct<kArithmetic, kMt, kNt> product;
    product.start(a, b, stage);
#pragma unroll 1
    while (true) {
      float acc[kMt][kNt][4];
      clear(acc);
#pragma unroll 1
      for (int slab = 0; slab < slabs; ++slab) product.multiply(acc, a, b, stage, advance);
      store_tile(p, kArithmetic == Arithmetic::kPairs ? locate(p, index) : tile, first_row, first_column, acc);
      index += gridDim.x;
      if (index >= p.total_tiles) break;
      tile = locate(p, index);
    }
  }
};

template <Arithmetic kArithmetic, bool kIncoming, int kTile>
__global__ void __launch_bounds__(kContractionThreads, contraction_tile(kArithmetic, kTile).blocks_per_sm)
    sm80_triangle_contraction_kernel(const __grid_constant__ TriangleContractionParams p) {
  extern __shared__ __align__(1024) std::uint8_t raw[];
  TriangleContraction<kArithmetic, kIncoming, kTile>::contract(p, ptx::shared_address(raw));
}

}  // namespace trimul::cuda::sm80
