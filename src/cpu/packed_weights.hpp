// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/implementation.hpp"

namespace trimul::cpu {

/// Hidden channels of a (or of b) that one matrix product of the input projection covers, with their gates.
inline constexpr std::int64_t kChannelsPerGroup = 64;

/// The parameters in fp32. The input projection's rows are regrouped so that one product yields the values and the gates of the same
/// channels: for each group of up to kChannelsPerGroup of the 2C channels, its value rows and then its gate rows.
class CpuPackedWeights final : public core::PackedWeights {
 public:
  CpuPackedWeights(const core::Parameters& parameters, std::int64_t c_z, std::int64_t c_hidden);
  [[nodiscard]] std::size_t bytes() const override;
  [[nodiscard]] std::vector<core::ByteRange> ranges() const override;

  std::vector<float> norm_in_weight, norm_in_bias;    // [C_z]
  std::vector<float> in_weight;                       // [4C, C_z], grouped
  std::vector<float> p_in_bias, g_in_bias;            // [2C], as given
  std::vector<float> norm_out_weight, norm_out_bias;  // [C]
  std::vector<float> p_out_weight;                    // [C_z, C]
  std::vector<float> g_out_weight;                    // [C_z, C_z]
  std::vector<float> p_out_bias, g_out_bias;          // [C_z]

 private:
  [[nodiscard]] std::vector<const std::vector<float>*> all() const;
};

}  // namespace trimul::cpu
