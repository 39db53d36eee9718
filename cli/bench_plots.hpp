// SPDX-License-Identifier: Apache-2.0
// Plots of a BenchReport as inline SVG with their legends, for the HTML page.
#pragma once

#include <string>
#include <string_view>

#include "bench_report.hpp"

namespace trimul::cli {

/// Median time over N, a line for each set of rows that differ in N alone, and the floor of those that have one. Empty for a report in
/// which nothing was timed.
std::string time_plot(const BenchReport& report);
/// FLOP/s over FLOP per byte of calls and their stages, under the measured ceilings of bandwidth and arithmetic; one plot for the CPU and
/// one for the GPU, where there are rows and ceilings.
std::string roofline_plot(const BenchReport& report);

/// With &, <, > and " as entities.
std::string escaped(std::string_view text);

}  // namespace trimul::cli
