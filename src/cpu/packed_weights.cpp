// SPDX-License-Identifier: Apache-2.0
#include "cpu/packed_weights.hpp"

#include <algorithm>

namespace trimul::cpu {
namespace {

std::vector<float> as_floats(const core::TensorView& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  for (std::size_t k = 0; k < values.size(); ++k)
    values[k] = static_cast<float>(core::load_as_double(tensor.data, tensor.dtype, static_cast<std::int64_t>(k)));
  return values;
}

std::vector<float> as_floats(const std::optional<core::TensorView>& tensor, std::int64_t count, float absent) {
  return tensor ? as_floats(*tensor) : std::vector<float>(static_cast<std::size_t>(count), absent);
}

/// [2C, C_z] values and gates -> [4C, C_z] in groups.
std::vector<float> group_rows(const std::vector<float>& value, const std::vector<float>& gate, std::int64_t c_z, std::int64_t channels) {
  std::vector<float> grouped;
  grouped.reserve(value.size() + gate.size());
  for (std::int64_t first = 0; first < channels; first += kChannelsPerGroup) {
    const std::int64_t last = std::min(first + kChannelsPerGroup, channels);
    for (const auto* rows : {&value, &gate}) grouped.insert(grouped.end(), rows->begin() + first * c_z, rows->begin() + last * c_z);
  }
  return grouped;
}

}  // namespace

CpuPackedWeights::CpuPackedWeights(const core::Parameters& p, std::int64_t c_z, std::int64_t c)
    : norm_in_weight(as_floats(p.norm_in_weight, c_z, 1.0F)),
      norm_in_bias(as_floats(p.norm_in_bias, c_z, 0.0F)),
      in_weight(group_rows(as_floats(p.p_in_weight), as_floats(p.g_in_weight), c_z, 2 * c)),
      p_in_bias(as_floats(p.p_in_bias, 2 * c, 0.0F)),
      g_in_bias(as_floats(p.g_in_bias, 2 * c, 0.0F)),
      norm_out_weight(as_floats(p.norm_out_weight, c, 1.0F)),
      norm_out_bias(as_floats(p.norm_out_bias, c, 0.0F)),
      p_out_weight(as_floats(p.p_out_weight)),
      g_out_weight(as_floats(p.g_out_weight)),
      p_out_bias(as_floats(p.p_out_bias, c_z, 0.0F)),
      g_out_bias(as_floats(p.g_out_bias, c_z, 0.0F)) {}

std::vector<const std::vector<float>*> CpuPackedWeights::all() const {
  return {&norm_in_weight, &norm_in_bias, &in_weight,    &p_in_bias,  &g_in_bias, &norm_out_weight,
          &norm_out_bias,  &p_out_weight, &g_out_weight, &p_out_bias, &g_out_bias};
}

std::size_t CpuPackedWeights::bytes() const {
  std::size_t total = 0;
  for (const auto* values : all()) total += values->size() * sizeof(float);
  return total;
}

std::vector<core::ByteRange> CpuPackedWeights::ranges() const {
  std::vector<core::ByteRange> list;
  for (const auto* values : all()) {
    const auto begin = reinterpret_cast<std::uintptr_t>(values->data());
    list.push_back({begin, begin + values->size() * sizeof(float)});
  }
  return list;
}

}  // namespace trimul::cpu
