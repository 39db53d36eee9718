// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/checked.hpp"
#include "core/implementation.hpp"
#include "core/memory.hpp"
#include "cuda/host/chain.hpp"
#include "cuda/sm80/arithmetic.hpp"
#include "cuda/sm80/heuristics.hpp"

namespace trimul::cuda::sm80 {

/// Byte offsets in the packed buffer. Matrices are images of slabs as they lie in shared memory (operand.cuh, kRows), zero where a chunk or
/// a slab is wider than the matrix; vectors are fp32, zero behind their width.
struct PackedLayout {
  /// `resident_in`, `resident_out`: for the kernels of resident_kernel.cuh. k of the products with x runs in the order of fragment_rows.cuh
  /// then, and bf16 weights and biases are halved (v sigmoid(g) = v' + v' tanh(g') with v' = v / 2, g' = g / 2; halving is exact).
  PackedLayout(Arithmetic arithmetic, std::int64_t c_z, std::int64_t c_hidden, bool resident_in, bool resident_out)
      : in_is_resident(resident_in),
        out_is_resident(resident_out),
        x_slabs(slabs_of(c_z, arithmetic)),
        y_slabs(slabs_of(c_hidden, arithmetic)),
        in_chunks(core::ceil_div(2 * c_hidden, kInChunkChannels)),
        out_chunks(core::ceil_div(c_z, kOutChunkRows)) {
    std::int64_t end = 0;
    const auto place = [&end](std::int64_t part_bytes) {
      const std::int64_t begin = end;
      end = core::round_up(begin + part_bytes, core::kWorkspaceAlignmentBytes);
      return begin;
    };
    in_weight = place(in_chunks * x_slabs * kInChunkRows * kSlabRowBytes);
    out_weight = place(out_chunks * (x_slabs + y_slabs) * kOutChunkRows * kSlabRowBytes);
    norm_in = place(core::round_up(c_z, kNormPadding) * 8);
    norm_out = place(core::round_up(c_hidden, kNormPadding) * 8);
    if (is_scaled(arithmetic)) {
      in_affine = place(in_chunks * kInChunkRows * 8);
      p_out_affine = place(out_chunks * kOutChunkRows * 8);
      g_out_affine = place(out_chunks * kOutChunkRows * 8);
      exponents = place((2 * c_hidden + 1) * 4);
    } else {
      in_bias = place(in_chunks * kInChunkRows * 4);
      p_out_bias = place(out_chunks * kOutChunkRows * 4);
      g_out_bias = place(out_chunks * kOutChunkRows * 4);
    }
    bytes = end;
  }

  static constexpr std::int64_t kNormPadding = 64;  // of every arithmetic's slabs a multiple

  bool in_is_resident, out_is_resident;
  std::int64_t x_slabs, y_slabs, in_chunks, out_chunks;
  std::int64_t in_weight;    // [in_chunks][x_slabs] images of 128 rows: 8 values, their 8 gates, ...
  std::int64_t out_weight;   // [out_chunks][x_slabs of g_out, y_slabs of p_out] images of 64 rows, in the order of out_channel_of
  std::int64_t norm_in;      // [C_z] pairs (weight, bias)
  std::int64_t norm_out;     // [C] pairs
  std::int64_t in_bias = 0;  // as the rows of in_weight
  std::int64_t p_out_bias = 0, g_out_bias = 0;  // [C_z]
  // Of scaled operands, whose biases are here: pairs (factor of the sum, bias), and the exponents of the planes' scales.
  std::int64_t in_affine = 0;                       // as the rows of in_weight
  std::int64_t p_out_affine = 0, g_out_affine = 0;  // [C_z]
  std::int64_t exponents = 0;                       // [2C]: a, then b; behind them whether every bias of norm_out is zero
  std::int64_t bytes;
};

class Sm80PackedWeights final : public core::PackedWeights {
 public:
  /// Packs on the device of the parameters by one kernel of `chain`, into `memory` or, where that is null, memory of its own.
  Sm80PackedWeights(const core::Parameters& parameters, Arithmetic arithmetic, std::int64_t c_z, std::int64_t c_hidden,
                    const PackedLayout& layout, const core::Device& device, void* memory, Chain& chain);
  [[nodiscard]] std::size_t bytes() const override { return static_cast<std::size_t>(layout_.bytes); }
  [[nodiscard]] std::vector<core::ByteRange> ranges() const override {
    const auto begin = reinterpret_cast<std::uintptr_t>(data_);
    return {{begin, begin + bytes()}};
  }
  [[nodiscard]] const std::uint8_t* at(std::int64_t offset) const { return data_ + offset; }
  [[nodiscard]] const PackedLayout& layout() const { return layout_; }

 private:
  PackedLayout layout_;
  std::optional<core::OwnedMemory> own_;
  std::uint8_t* data_;
};

}  // namespace trimul::cuda::sm80
