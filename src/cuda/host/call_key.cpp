// SPDX-License-Identifier: Apache-2.0
#include "cuda/host/call_key.hpp"

#include <atomic>

namespace trimul::cuda {
namespace {

constexpr std::int32_t kMostLeadingDims = 8;

template <typename Value>
std::uint64_t word(Value value) {
  if constexpr (std::is_pointer_v<Value>)
    return reinterpret_cast<std::uintptr_t>(value);
  else
    return static_cast<std::uint64_t>(value);
}

ChainKey key_of_tensors(std::uint64_t plan, const core::ExecuteArgs& args) {
  ChainKey key;
  for (const std::uint64_t entry : {plan, word(args.x), word(args.out), word(args.workspace)}) key.push_back(entry);
  if (!args.mask) return key;
  const core::MaskView& mask = *args.mask;
  if (mask.num_leading > kMostLeadingDims) return {};
  for (const std::uint64_t entry : {word(mask.data), word(mask.dtype), word(mask.stride_i), word(mask.stride_j), word(mask.num_leading)})
    key.push_back(entry);
  for (std::size_t d = 0; d < static_cast<std::size_t>(mask.num_leading); ++d) {
    key.push_back(word(mask.leading_sizes[d]));
    key.push_back(word(mask.leading_strides[d]));
  }
  return key;
}

}  // namespace

std::uint64_t next_plan_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

ChainKey call_key(std::uint64_t plan, const core::ExecuteArgs& args, const void* packed) {
  ChainKey key = key_of_tensors(plan, args);
  if (!key.empty()) key.push_back(word(packed));
  return key;
}

ChainKey call_key(std::uint64_t plan, const core::ExecuteArgs& args, const core::Parameters& parameters) {
  ChainKey key = key_of_tensors(plan, args);
  if (key.empty()) return key;
  // Which parameters are there follows from their places: an absent one leaves a zero.
  std::uint64_t dtypes = 0;
  const auto add = [&](const core::TensorView* parameter) {
    key.push_back(parameter == nullptr ? 0 : word(parameter->data));
    dtypes = dtypes * 16 + (parameter == nullptr ? 0 : word(parameter->dtype));
  };
  const auto add_optional = [&add](const std::optional<core::TensorView>& parameter) { add(parameter ? &*parameter : nullptr); };
  add(&parameters.p_in_weight);
  add(&parameters.g_in_weight);
  add(&parameters.p_out_weight);
  add(&parameters.g_out_weight);
  for (const auto* parameter : {&parameters.norm_in_weight, &parameters.norm_in_bias, &parameters.p_in_bias, &parameters.g_in_bias,
                                &parameters.norm_out_weight, &parameters.norm_out_bias, &parameters.p_out_bias, &parameters.g_out_bias})
    add_optional(*parameter);
  key.push_back(dtypes);
  return key;
}

}  // namespace trimul::cuda
