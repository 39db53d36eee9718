// SPDX-License-Identifier: Apache-2.0
// The five ways to compute the matrix products of the portable implementation, and what follows from each.
#pragma once

#include <cstdint>

namespace trimul::cuda::sm80 {

enum class Arithmetic : std::int32_t {
  kBf16,    // mma.sync on bf16 operands
  kFp16,    // mma.sync on fp16 operands; y is fp32, which its range does not fit into fp16
  kScaled,  // mma.sync on fp32 operands scaled by powers of two and rounded to fp16, which has the eleven significant bits of TF32
  kPairs,   // three products of scaled fp32 operands in two fp16 parts; their sums are added up in fp32 every 16 terms
  kIeee,    // fp32 multiply-adds
};

/// Are operands fp32 numbers times powers of two that keep them inside of fp16's range? scaled_weights.cu chooses them; where products are
/// used, they are taken out again.
constexpr bool is_scaled(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::kScaled || arithmetic == Arithmetic::kPairs;
}

/// 16-byte chunks that hold eight consecutive elements of an operand: of kPairs the high parts, then the low ones. Not of kIeee.
constexpr int parts_of(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::kPairs ? 2 : 1;
}

constexpr const char* arithmetic_name(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::kBf16: return "bf16";
    case Arithmetic::kFp16: return "fp16";
    case Arithmetic::kScaled: return "scaled fp16";
    case Arithmetic::kPairs: return "scaled fp16 pairs";
    case Arithmetic::kIeee: return "ieee";
  }
  return "unknown";
}

/// Bytes of an element of z, a, b, u and the matrices of the weights.
constexpr int operand_bytes(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::kIeee ? 4 : 2 * parts_of(arithmetic);
}

/// Bytes of an element of y.
constexpr int y_bytes(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::kBf16 ? 2 : 4;
}

// Operands lie in shared memory in slabs: 128 bytes of k for each row.
inline constexpr int kSlabRowBytes = 128;
inline constexpr int kChunkBytes = 16;
inline constexpr int kChunksPerSlabRow = kSlabRowBytes / kChunkBytes;

/// k of a slab: 64, or 32 of elements of four bytes.
constexpr int slab_elements(Arithmetic arithmetic) {
  return kSlabRowBytes / operand_bytes(arithmetic);
}

/// Threads of the contraction's blocks: four warps, which leave each other enough registers for sums.
inline constexpr int kContractionThreads = 128;
/// Threads of the projections' blocks, whose warps work on one tile together: as many as hide the latency of its LayerNorm, but where sums
/// and parts need the registers.
constexpr int projection_threads(Arithmetic arithmetic, int positions) {
  const bool needs_registers = arithmetic == Arithmetic::kPairs || arithmetic == Arithmetic::kIeee;
  return positions == 32 || needs_registers ? 128 : 256;
}

/// Blocks of the projections that keep all weights, whose warps work by themselves: one a multiprocessor.
inline constexpr int kResidentThreads = 384;

/// Rows of the input weights in a chunk, of which half are values and half gates.
inline constexpr int kInChunkRows = 128;
inline constexpr int kInChunkChannels = kInChunkRows / 2;
/// Output channels in a chunk of the output projection.
inline constexpr int kOutChunkRows = 64;

}  // namespace trimul::cuda::sm80
