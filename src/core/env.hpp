// SPDX-License-Identifier: Apache-2.0
// The only place that reads environment variables.
//
//   TRIMUL_NUM_THREADS   most threads the CPU implementations use, >= 1; default: the processors this process may run on
//   TRIMUL_LOG           "dispatch": every plan's explanation goes to stderr
#pragma once

#include <string>

namespace trimul::env {

/// TRIMUL_NUM_THREADS, read at every call. INVALID_ARGUMENT when it is set to anything but a number from 1 to 4096.
int num_threads();

/// TRIMUL_LOG contains "dispatch".
bool log_dispatch();

/// Writes to stderr; called only when a log variable asks for it.
void log_line(const std::string& line);

}  // namespace trimul::env
