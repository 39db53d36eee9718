// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/implementation.hpp"
#include "core/memory.hpp"
#include "cuda/sm90/limits.hpp"

namespace trimul::cuda::sm90 {

/// Byte offsets in the packed buffer. Matrices are bf16 and halved (v sigmoid(g) = v' + v' tanh(g') with v' = v / 2, g' = g / 2; halving is
/// exact), vectors fp32.
struct PackedLayout {
  static constexpr std::size_t kInWeight = 0;  // [4C, C_z]: 8 value rows, their 8 gate rows, ...
  static constexpr std::size_t kPOutWeight = kInWeight + std::size_t{4} * kHiddenWidth * kPairWidth * 2;  // [C_z, C]
  static constexpr std::size_t kGOutWeight = kPOutWeight + std::size_t{kPairWidth} * kHiddenWidth * 2;    // [C_z, C_z]
  static constexpr std::size_t kNormIn = kGOutWeight + std::size_t{kPairWidth} * kPairWidth * 2;          // [C_z] pairs (weight, bias)
  static constexpr std::size_t kNormOut = kNormIn + std::size_t{kPairWidth} * 8;                          // [C] pairs
  static constexpr std::size_t kInBias = kNormOut + std::size_t{kHiddenWidth} * 8;      // [4C], as the rows of the weights, halved
  static constexpr std::size_t kOutBias = kInBias + std::size_t{4} * kHiddenWidth * 4;  // [2, C_z]: p_out_bias, g_out_bias, halved
  static constexpr std::size_t kBytes = kOutBias + std::size_t{2} * kPairWidth * 4;
};

class Sm90PackedWeights final : public core::PackedWeights {
 public:
  /// Packs on the device of the parameters by one small kernel on `stream`, into `memory` or, where that is null, memory of its own.
  Sm90PackedWeights(const core::Parameters& parameters, const core::Device& device, void* memory, void* stream);
  [[nodiscard]] std::size_t bytes() const override { return PackedLayout::kBytes; }
  [[nodiscard]] std::vector<core::ByteRange> ranges() const override {
    const auto begin = reinterpret_cast<std::uintptr_t>(data_);
    return {{begin, begin + PackedLayout::kBytes}};
  }
  [[nodiscard]] const std::byte* at(std::size_t offset) const { return data_ + offset; }

 private:
  std::optional<core::OwnedMemory> own_;
  std::byte* data_;
};

}  // namespace trimul::cuda::sm90
