// SPDX-License-Identifier: Apache-2.0
// Output projection: sigmoid(LayerNorm(x) g_out^T + g_out_bias) * (LayerNorm(y) p_out^T + p_out_bias) [+ x], with y in channel-major
// planes. docs/kernels/sm80-output-projection.md has the schedule and what was tried.
//
// A block has a tile of positions, whose normalised rows of x and y stay in shared memory where they fit, and streams the weights past
// them. The packed rows of a chunk of weights are ordered so that a thread's results are eight consecutive channels.
#pragma once

#include "cuda/ptx/shared_address.cuh"
#include "cuda/sm80/kernel_order.cuh"
#include "cuda/sm80/operand.cuh"
#include "cuda/sm80/output_projection/config.hpp"
#include "cuda/sm80/pair_rows.cuh"
#include "cuda/sm80/plane_columns.cuh"
#include "cuda/sm80/ring_product.cuh"
#include "cuda/sm80/weight_ring.cuh"

namespace trimul::cuda::sm80 {

template <Arithmetic kArithmetic, int kPositions, bool kIsWhole>
struct OutputProjection {
  static constexpr int kThreads = projection_threads(kArithmetic, kPositions);
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kWarpChannels = 32;
  static constexpr int kWarpsAlongChannels = kOutChunkRows / kWarpChannels;
  static constexpr int kWarpPositions = kPositions / (kWarps / kWarpsAlongChannels);
  static constexpr int kMt = kWarpPositions / 16;
  static constexpr int kNt = kWarpChannels / 8;
  static constexpr int kImageBytes = kOutChunkRows * kSlabRowBytes;
  static constexpr bool kIsPipelined = kIsWhole && kArithmetic == Arithmetic::kPairs;  // the others have no registers for it
  using Rows = NormalisedRows<kArithmetic, kPositions, false>;
  using Columns = NormalisedColumns<kArithmetic, kPositions>;
  using Ring = WeightRing<kImageBytes, kThreads>;
  using A = AOperand<kArithmetic, Storage::kRows>;
  using B = BOperand<kArithmetic, Storage::kRows>;
  using Accumulators = float[kMt][kNt][4];

  /// Behind the slabs of x, those of y and the ring.
  struct SharedStorage {
    RowStatistics statistics[kPositions];
    typename Columns::Sums sums;
  };
  static_assert(sizeof(SharedStorage) <= kPositions * kOutputStorageBytes);

  struct Place {
    int lane;
    int first_position;  // of the tile
    int first_channel;   // of the chunk
  };

  /// acc = the product of all slabs of one operand with their weights. `refill(slab)` puts the slabs from there on into shared memory.
  template <typename Refill>
  static __device__ __forceinline__ void multiply(const A& a, const B& b, Ring& weights, int slabs, int resident, std::uint32_t rows_smem,
                                                  const Refill& refill, Accumulators& acc) {
    clear(acc);
#pragma unroll 1
    for (int slab = 0; slab < slabs; ++slab) {
      int place = slab;
      if constexpr (!kIsWhole) {
        place %= resident;
        if (place == 0 && resident != slabs) {
          __syncthreads();  // the slabs before have been read
          refill(slab);
        }
      }
      const std::uint32_t image = weights.take();
      multiply_slab(acc, a, rows_smem + static_cast<unsigned>(place * Rows::kSlabBytes), b, image);
    }
  }

  static __device__ __forceinline__ void store_chunk(const OutputProjectionParams& p, SharedStorage& smem, const Place& at,
                                                     const Rows& rows, const Positions::Start& begin, int chunk, const Accumulators& value,
                                                     const Accumulators& gate) {
    const int channel = chunk * kOutChunkRows + at.first_channel + at.lane % 4 * kOctet;
    if (channel >= p.out.width) return;
#pragma unroll
    for (int mi = 0; mi < kMt; ++mi)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int position = at.first_position + a_row<kArithmetic, Storage::kRows>(at.lane, mi, h);
        const Positions::Pair pair = p.positions.pair(begin, position);
        if (!pair.is_valid) continue;
        float results[kOctet];
#pragma unroll
        for (int i = 0; i < kOctet; ++i) {
          float2 of_value{1.0F, 0.0F};
          float2 of_gate{1.0F, 0.0F};
          if constexpr (is_scaled(kArithmetic)) {
            of_value = __ldg(p.p_affine + channel + i);
            of_gate = __ldg(p.g_affine + channel + i);
          } else if (p.p_bias != nullptr) {
            of_value.y = __ldg(p.p_bias + channel + i);
            of_gate.y = __ldg(p.g_bias + channel + i);
          }
          float sum = value[mi][i / 2][2 * h + i % 2];
          if constexpr (Columns::kIsEnlarged) sum *= Columns::factor_of(smem.sums, position);
          results[i] = gated(apply<kArithmetic>(of_value, sum), apply<kArithmetic>(of_gate, gate[mi][i / 2][2 * h + i % 2]));
        }
        if (p.has_residual) {
          bool is_valid;
          float x[kOctet];
          load_octet(p.x, rows.row_of(begin, position, is_valid), channel, x);
#pragma unroll
          for (int i = 0; i < kOctet; ++i) results[i] += x[i];
        }
        store_octet(p.out, row_address(p.out, pair.index(p.positions.tokens)), channel, results);
      }
  }

  /// Copies the tile's rows of x to `to`, since out, which is x, is written before the last chunk has read them.
  static __device__ __forceinline__ void copy_rows(const OutputProjectionParams& p, const Positions::Start& begin, std::uint8_t* to) {
    const auto bytes = row_bytes(p.x);
    for (int position = 0; position < kPositions; ++position) {
      const Positions::Pair pair = p.positions.pair(begin, position);
      if (!pair.is_valid) continue;
      const auto* const from = reinterpret_cast<const std::uint16_t*>(row_address(p.x, pair.index(p.positions.tokens)));
      for (int k = static_cast<int>(threadIdx.x); k < bytes / 2; k += kThreads)
        reinterpret_cast<std::uint16_t*>(to + position * bytes)[k] = from[k];
    }
    __syncthreads();
  }

  static __device__ __forceinline__ void project_tile(const OutputProjectionParams& p, SharedStorage& smem, std::uint32_t x_smem,
                                                      std::int64_t tile) {
    const int warp = static_cast<int>(threadIdx.x / 32);
    const Place at{static_cast<int>(threadIdx.x % 32), warp / kWarpsAlongChannels * kWarpPositions,
                   warp % kWarpsAlongChannels * kWarpChannels};
    const A a(at.lane, at.first_position);
    const B b(at.lane, at.first_channel);
    const std::uint32_t y_smem = x_smem + static_cast<unsigned>(p.resident_x_slabs * Rows::kSlabBytes);
    Ring weights(p.weights, p.chunks * (p.x_slabs + p.y_slabs), y_smem + static_cast<unsigned>(p.resident_y_slabs * Rows::kSlabBytes),
                 p.stages);
    weights.start();
    const Positions::Start begin = p.positions.start(tile * kPositions);
    std::uint8_t* copy = nullptr;
    if constexpr (!kIsWhole) {
      if (p.copies != nullptr) {
        copy = p.copies + blockIdx.x * (kPositions * row_bytes(p.x));
        copy_rows(p, begin, copy);
      }
    }
    const Rows rows{p.x, p.positions, copy, p.norm_in, 1.0F / static_cast<float>(p.x.width), p.eps};
    const Columns columns{p.y + tile * kPositions * y_bytes(kArithmetic),
                          p.positions.pitch * y_bytes(kArithmetic),
                          p.channels,
                          p.positions.pair(begin, Columns::position()).is_valid,
                          p.norm_out,
                          1.0F / static_cast<float>(p.channels),
                          p.eps,
                          &smem.sums,
                          p.is_unbiased};
    const RowStatistics y_statistics = columns.template prepare<kIsWhole>(p.y_slabs, p.resident_y_slabs, y_smem);
    rows.template prepare<kIsWhole>(begin, smem.statistics, p.x_slabs, x_smem, p.resident_x_slabs == p.x_slabs);
    if constexpr (kIsPipelined) {
      Slabs slabs{x_smem, weights.take()};
      RingProduct<kArithmetic, kMt, kNt> product;
      product.start(a, b, slabs);
      // The slabs of y follow those of x in shared memory too.
      const std::uint32_t end = y_smem + static_cast<unsigned>(p.y_slabs * Rows::kSlabBytes);
      const auto multiply_next = [&](int num_slabs, Accumulators& acc) {
        clear(acc);
#pragma unroll 1
        for (int slab = 0; slab < num_slabs; ++slab)
          product.multiply(acc, a, b, slabs, [&] {
            slabs.b = weights.take();
            slabs.a += Rows::kSlabBytes;
            if (slabs.a == end) slabs.a = x_smem;
          });
      };
#pragma unroll 1
      for (int chunk = 0; chunk < p.chunks; ++chunk) {
        Accumulators gate;
        Accumulators value;
        multiply_next(p.x_slabs, gate);
        multiply_next(p.y_slabs, value);
        store_chunk(p, smem, at, rows, begin, chunk, value, gate);
      }
    } else {
#pragma unroll 1
      for (int chunk = 0; chunk < p.chunks; ++chunk) {
        Accumulators gate;
        Accumulators value;
        multiply(
            a, b, weights, p.x_slabs, p.resident_x_slabs, x_smem,
            [&](int slab) { rows.fill(begin, smem.statistics, slab, min(p.resident_x_slabs, p.x_slabs - slab), x_smem); }, gate);
        multiply(
            a, b, weights, p.y_slabs, p.resident_y_slabs, y_smem,
            [&](int slab) { columns.fill(y_statistics, slab, min(p.resident_y_slabs, p.y_slabs - slab), y_smem); }, value);
        store_chunk(p, smem, at, rows, begin, chunk, value, gate);
      }
    }
  }
};

template <Arithmetic kArithmetic, int kPositions, bool kIsWhole>
__global__ void __launch_bounds__(projection_threads(kArithmetic, kPositions), blocks_per_sm(kArithmetic, kPositions, kIsWhole))
    sm80_output_projection_kernel(const __grid_constant__ OutputProjectionParams p) {
  using Kernel = OutputProjection<kArithmetic, kPositions, kIsWhole>;
  extern __shared__ __align__(1024) std::uint8_t raw[];
  auto& smem = *reinterpret_cast<typename Kernel::SharedStorage*>(
      raw + (p.resident_x_slabs + p.resident_y_slabs) * Kernel::Rows::kSlabBytes + p.stages * Kernel::kImageBytes);
  wait_for_kernel_before();
  for (std::int64_t tile = blockIdx.x; tile < p.num_tiles; tile += gridDim.x) {
    Kernel::project_tile(p, smem, ptx::shared_address(raw), tile);
    __syncthreads();
  }
}

}  // namespace trimul::cuda::sm80
