// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/env.hpp"
#include "core/error.hpp"
#include "core/implementation.hpp"

namespace trimul::core {

/// The only knob of the CPU implementations, "threads": at least 1; default TRIMUL_NUM_THREADS or all processors.
inline int threads_knob(const std::vector<Knob>& knobs) {
  std::int64_t threads = env::num_threads();
  for (const Knob& knob : knobs) {
    if (knob.name != "threads") fail_invalid("knob: '", knob.name, "' is unknown here, expected threads");
    if (knob.value < 1 || knob.value > 4096)
      throw Error(StatusCode::kUnsupported, text("knob threads: is ", knob.value, ", expected 1 to 4096"));
    threads = knob.value;
  }
  return static_cast<int>(threads);
}

}  // namespace trimul::core
