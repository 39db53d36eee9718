// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/implementation.hpp"
#include "core/memory.hpp"
#include "cuda/host/chain.hpp"
#include "cuda/sm90/limits.hpp"

namespace trimul::cuda::sm90 {

/// Byte offsets in the packed buffer of C_z = C = `width`. Matrices are bf16 and halved (v sigmoid(g) = v' + v' tanh(g') with v' = v / 2,
/// g' = g / 2; halving is exact), vectors fp32.
struct PackedLayout {
  constexpr explicit PackedLayout(std::size_t width)
      : p_out_weight(4 * width * width * 2),
        g_out_weight(p_out_weight + width * width * 2),
        norm_in(g_out_weight + width * width * 2),
        norm_out(norm_in + width * 8),
        in_bias(norm_out + width * 8),
        out_bias(in_bias + 4 * width * 4),
        bytes(out_bias + 2 * width * 4) {}

  std::size_t in_weight = 0;  // [4C, C_z]: 8 value rows, their 8 gate rows, ...
  std::size_t p_out_weight;   // [C_z, C]
  std::size_t g_out_weight;   // [C_z, C_z]
  std::size_t norm_in;        // [C_z] pairs (weight, bias)
  std::size_t norm_out;       // [C] pairs
  std::size_t in_bias;        // [4C], as the rows of the weights, halved
  std::size_t out_bias;       // [2, C_z]: p_out_bias, g_out_bias, halved
  std::size_t bytes;
};

class Sm90PackedWeights final : public core::PackedWeights {
 public:
  /// Packs on the device of the parameters, of C_z = C = `width`, by one small kernel of `chain`, into `memory` or, where that is null,
  /// memory of its own.
  Sm90PackedWeights(const core::Parameters& parameters, int width, const core::Device& device, void* memory, Chain& chain);
  [[nodiscard]] const PackedLayout& layout() const { return layout_; }
  [[nodiscard]] std::size_t bytes() const override { return layout_.bytes; }
  [[nodiscard]] std::vector<core::ByteRange> ranges() const override {
    const auto begin = reinterpret_cast<std::uintptr_t>(data_);
    return {{begin, begin + layout_.bytes}};
  }
  [[nodiscard]] const std::byte* at(std::size_t offset) const { return data_ + offset; }

 private:
  PackedLayout layout_;
  std::optional<core::OwnedMemory> own_;
  std::byte* data_;
};

}  // namespace trimul::cuda::sm90
