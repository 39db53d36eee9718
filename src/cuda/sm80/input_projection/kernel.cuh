// SPDX-License-Identifier: Apache-2.0
// Input projection: LayerNorm of x -> value and gate products -> value * sigmoid(gate) * mask -> channel-major planes a and b.
// docs/kernels/sm80-input-projection.md has the schedule and what was tried.
//
// A block has a tile of positions, whose normalised rows stay in shared memory where they fit, and streams the weights past them. Rows of
// the product are channels, so that a thread's results are consecutive positions of a plane.
#pragma once

#include "cuda/common/mask.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/sm80/input_projection/config.hpp"
#include "cuda/sm80/operand.cuh"
#include "cuda/sm80/pair_rows.cuh"
#include "cuda/sm80/ring_product.cuh"
#include "cuda/sm80/weight_ring.cuh"

namespace trimul::cuda::sm80 {

template <Arithmetic kArithmetic, int kPositions, bool kIsWhole>
struct InputProjection {
  static constexpr int kThreads = projection_threads(kArithmetic, kPositions);
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kWarpPositions = kPositions == 128 ? 64 : 32;
  static constexpr int kWarpsAlongRows = kWarps / (kPositions / kWarpPositions);
  static constexpr int kWarpRows = kInChunkRows / kWarpsAlongRows;
  static constexpr int kMt = kWarpRows / 16;
  static constexpr int kNt = kWarpPositions / 8;
  static constexpr int kImageBytes = kInChunkRows * kSlabRowBytes;
  static constexpr int kElementBytes = operand_bytes(kArithmetic);
  static constexpr bool kIsPipelined = kIsWhole && kArithmetic == Arithmetic::kPairs;  // the others have no registers for it
  using Rows = NormalisedRows<kArithmetic, kPositions, true>;
  using Ring = WeightRing<kImageBytes, kThreads>;

  /// In front of the slabs of rows and the ring.
  struct SharedStorage {
    RowStatistics statistics[kPositions];
    float mask[kPositions];
  };
  static_assert(sizeof(SharedStorage) == kPositions * kInputStorageBytes);

  /// Bits of the mask at a position; those of zero, in every dtype, in the padding.
  static __device__ __forceinline__ std::uint32_t mask_bits_of(const InputProjectionParams& p, const Positions::Pair& pair) {
    if (!pair.is_valid) return 0;
    const MaskParams& mask = p.mask;
    if (mask.data == nullptr) return __float_as_uint(1.0F);  // pack_mask sets the dtype to fp32 then
    std::int64_t index;
    if (mask.is_linear) {
      index = pair.index(p.positions.tokens);
    } else {
      const std::int64_t sample = pair.row / p.positions.tokens;
      index = (pair.row - sample * p.positions.tokens) * mask.stride_i + pair.column * mask.stride_j + mask_sample_offset(mask, sample);
    }
    return load_mask_bits(mask, index);
  }

  /// What the results at a position are multiplied by: the mask; of scaled operands times the power of two of its row or column.
  static __device__ __forceinline__ float factor_of(const InputProjectionParams& p, const Positions::Pair& pair) {
    const float factor = mask_factor(p.mask.dtype, mask_bits_of(p, pair));
    if (!is_scaled(kArithmetic) || p.mask_scale == nullptr || !pair.is_valid) return factor;
    constexpr float kLeast = 0x1p-126F;  // what is not zero stays so: zero is a selection
    const std::int64_t sample = pair.row / p.positions.tokens;
    const std::int64_t token = p.is_incoming ? pair.column : pair.row - sample * p.positions.tokens;
    const float scaled = factor * __ldg(p.mask_scale + sample * p.positions.n_pad + token);
    return factor != 0.0F && fabsf(scaled) < kLeast ? copysignf(kLeast, factor) : scaled;
  }

  /// What a warp's lane knows about its place in the product.
  struct Place {
    int lane;
    int first_row;       // of the chunk
    int first_position;  // of the tile
  };

  /// value * sigmoid(gate) * mask of one chunk into the planes. Rows 16 mi + g hold values, rows 16 mi + 8 + g their gates.
  static __device__ __forceinline__ void store_chunk(const InputProjectionParams& p, const Place& at, const float* mask, std::int64_t tile,
                                                     int chunk, const float (&acc)[kMt][kNt][4]) {
#pragma unroll
    for (int part = 0; part < kNt / 4; ++part) {
      const int position = at.first_position + 32 * part + at.lane % 4 * kOctet;
      float factors[kOctet];
#pragma unroll
      for (int i = 0; i < kOctet; ++i) factors[i] = mask[position + i];
#pragma unroll
      for (int mi = 0; mi < kMt; ++mi) {
        const int row = chunk * kInChunkRows + at.first_row + 16 * mi + at.lane / 4;
        const int channel = row / 16 * 8 + row % 8;
        if (channel >= p.channels) continue;
        float2 of_value{1.0F, 0.0F};
        float2 of_gate{1.0F, 0.0F};
        if constexpr (is_scaled(kArithmetic)) {
          of_value = __ldg(p.affine + row);
          of_gate = __ldg(p.affine + row + 8);
        } else if (p.bias != nullptr) {
          of_value.y = __ldg(p.bias + row);
          of_gate.y = __ldg(p.bias + row + 8);
        }
        float results[kOctet];
#pragma unroll
        for (int i = 0; i < kOctet; ++i) {
          const float value = apply<kArithmetic>(of_value, acc[mi][4 * part + i / 2][i % 2]);
          const float gate = apply<kArithmetic>(of_gate, acc[mi][4 * part + i / 2][2 + i % 2]);
          const float result = gated(value * factors[i], gate);
          results[i] = factors[i] == 0.0F ? 0.0F : result;  // a selection, whatever x holds
        }
        store_positions(p.planes + (channel * p.positions.pitch + tile * kPositions + position) * kElementBytes, results);
      }
    }
  }

  /// Eight consecutive positions of a plane.
  static __device__ __forceinline__ void store_positions(std::uint8_t* to, const float (&results)[kOctet]) {
    auto* const chunks = reinterpret_cast<uint4*>(to);
    if constexpr (kArithmetic == Arithmetic::kPairs) {
      const OctetParts parts = split_octet(results);
      chunks[1] = parts.low;
      chunks[0] = parts.high;
      return;
    }
    std::uint32_t words[kOctet];
    if constexpr (kElementBytes == 2) {
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = pack_pair<kArithmetic>(results[2 * i], results[2 * i + 1]);
    } else {
#pragma unroll
      for (int i = 0; i < kOctet; ++i) words[i] = __float_as_uint(results[i]);
      chunks[1] = make_uint4(words[4], words[5], words[6], words[7]);
    }
    chunks[0] = make_uint4(words[0], words[1], words[2], words[3]);
  }

  static __device__ __forceinline__ void project_tile(const InputProjectionParams& p, SharedStorage& smem, std::uint32_t rows_smem,
                                                      std::int64_t tile) {
    const int warp = static_cast<int>(threadIdx.x / 32);
    const Place at{static_cast<int>(threadIdx.x % 32), warp % kWarpsAlongRows * kWarpRows, warp / kWarpsAlongRows * kWarpPositions};
    const AOperand<kArithmetic, Storage::kRows> a(at.lane, at.first_row);
    const BOperand<kArithmetic, Storage::kSpreadRows> b(at.lane, at.first_position);
    Ring weights(p.weights, p.chunks * p.slabs, rows_smem + static_cast<unsigned>(p.resident_slabs * Rows::kSlabBytes), p.stages);
    weights.start();
    const Positions::Start begin = p.positions.start(tile * kPositions);
    if (threadIdx.x < kPositions) smem.mask[threadIdx.x] = factor_of(p, p.positions.pair(begin, static_cast<int>(threadIdx.x)));
    const Rows rows{p.x, p.positions, nullptr, p.norm, 1.0F / static_cast<float>(p.x.width), p.eps};
    rows.template prepare<kIsWhole>(begin, smem.statistics, p.slabs, rows_smem);
    if constexpr (kIsPipelined) {
      Slabs slabs{weights.take(), rows_smem};
      RingProduct<kArithmetic, kMt, kNt> product;
#pragma unroll 1
      for (int chunk = 0; chunk < p.chunks; ++chunk) {
        product.start(a, b, slabs);  // again, rather than keep the fragments while the chunk before is stored
        float acc[kMt][kNt][4];
        clear(acc);
#pragma unroll 1
        for (int slab = 0; slab < p.slabs; ++slab)
          product.multiply(acc, a, b, slabs, [&] {
            slabs.a = weights.take();
            slabs.b = slab + 1 < p.slabs ? slabs.b + Rows::kSlabBytes : rows_smem;
          });
        store_chunk(p, at, smem.mask, tile, chunk, acc);
      }
    } else {
#pragma unroll 1
      for (int chunk = 0; chunk < p.chunks; ++chunk) {
        float acc[kMt][kNt][4];
        clear(acc);
#pragma unroll 1
        for (int slab = 0; slab < p.slabs; ++slab) {
          int place = slab;
          if constexpr (!kIsWhole) {
            place %= p.resident_slabs;
            if (place == 0) {
              __syncthreads();  // the slabs before have been read
              rows.fill(begin, smem.statistics, slab, min(p.resident_slabs, p.slabs - slab), rows_smem);
            }
          }
          const std::uint32_t image = weights.take();
          multiply_slab(acc, a, image, b, rows_smem + static_cast<unsigned>(place * Rows::kSlabBytes));
        }
        store_chunk(p, at, smem.mask, tile, chunk, acc);
      }
    }
  }
};

template <Arithmetic kArithmetic, int kPositions, bool kIsWhole>
__global__ void __launch_bounds__(projection_threads(kArithmetic, kPositions), blocks_per_sm(kArithmetic, kPositions, kIsWhole))
    sm80_input_projection_kernel(const __grid_constant__ InputProjectionParams p) {
  using Kernel = InputProjection<kArithmetic, kPositions, kIsWhole>;
  extern __shared__ __align__(1024) std::uint8_t raw[];
  // Slabs first: their rows start on 128 bytes.
  auto& smem = *reinterpret_cast<typename Kernel::SharedStorage*>(raw + p.resident_slabs * Kernel::Rows::kSlabBytes +
                                                                  p.stages * Kernel::kImageBytes);
  for (std::int64_t tile = blockIdx.x; tile < p.num_tiles; tile += gridDim.x) {
    Kernel::project_tile(p, smem, ptx::shared_address(raw), tile);
    __syncthreads();
  }
}

}  // namespace trimul::cuda::sm80
