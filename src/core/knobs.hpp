// SPDX-License-Identifier: Apache-2.0
// From the knobs that a caller gives to a value for each that the implementation has.
#pragma once

#include <algorithm>
#include <vector>

#include "core/env.hpp"
#include "core/error.hpp"
#include "core/implementation.hpp"

namespace trimul::core {

/// What the implementation would choose by itself.
inline std::vector<Knob> recommended_knobs(const Implementation& implementation, const Problem& problem, const DeviceInfo& device) {
  std::vector<Knob> knobs;
  if (implementation.recommend == nullptr) return knobs;
  for (const std::int64_t value : implementation.recommend(problem, device))
    knobs.push_back({implementation.knobs[knobs.size()].name, value});
  return knobs;
}

/// The only knob of the CPU implementations; by default TRIMUL_NUM_THREADS or all processors.
inline constexpr KnobRange kThreadsKnob[] = {{"threads", 1, 4096}};
inline std::vector<std::int64_t> recommend_threads(const Problem&, const DeviceInfo&) {
  return {env::num_threads()};
}

/// Lowers what the implementation would take by itself to `max_threads`; 0: leaves it.
inline void bound_threads(std::vector<Knob>& knobs, std::int64_t max_threads) {
  for (Knob& knob : knobs)
    if (max_threads > 0 && knob.name == kThreadsKnob->name) knob.value = std::min(knob.value, max_threads);
}

/// The same with the caller's overrides; the last of one name decides. INVALID_ARGUMENT for an unknown name, UNSUPPORTED for a value
/// outside its range.
inline std::vector<Knob> complete_knobs(const Implementation& implementation, const Problem& problem, const DeviceInfo& device,
                                        const std::vector<Knob>& given, std::int64_t max_threads = 0) {
  std::vector<Knob> knobs = recommended_knobs(implementation, problem, device);
  bound_threads(knobs, max_threads);
  for (const Knob& knob : given) {
    std::size_t k = 0;
    std::string known;
    for (; k < knobs.size() && knobs[k].name != knob.name; ++k) known += (known.empty() ? "" : ", ") + knobs[k].name;
    if (k == knobs.size()) fail_invalid("knob: '", knob.name, "' is unknown here, expected ", known.empty() ? "none" : known);
    const KnobRange& range = implementation.knobs[k];
    if (knob.value < range.least || knob.value > range.most)
      throw Error(StatusCode::kUnsupported, text("knob ", knob.name, ": is ", knob.value, ", expected ", range.least, " to ", range.most));
    knobs[k].value = knob.value;
  }
  return knobs;
}

}  // namespace trimul::core
