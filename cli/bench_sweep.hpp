// SPDX-License-Identifier: Apache-2.0
// `trimul bench --sweep`: times every combination of a GPU implementation's knobs and says which table of choices follows.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench_gpu.hpp"
#include "problem_set.hpp"

namespace trimul::cli {

/// Prints a line for each problem and the table of each batch and direction; returns all of it with every combination's times under
/// "sweep" and "tables". `implementation`: a name, or "all" for the one that serves the first problem on the device. kUnsupported when that
/// one declines a problem or has no knobs.
nlohmann::ordered_json sweep_knobs(const GpuBench& gpu, const trimul_device& device, const std::string& implementation,
                                   const std::vector<ProblemLine>& lines);

}  // namespace trimul::cli
