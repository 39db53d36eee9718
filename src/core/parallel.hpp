// SPDX-License-Identifier: Apache-2.0
// The one way this library uses CPU threads.
#pragma once

#include <cstdint>
#include <functional>

namespace trimul::core {

/// Calls body(index, thread) once for every index in [0, count), on at most `num_threads` threads, the caller's among them;
/// thread is in [0, num_threads). Returns when all are done; rethrows the first exception. Indices are handed out as threads
/// become free, so a body must not let its result depend on which thread runs it. Threads live only inside the call: nothing
/// is left behind for fork(), and nested calls are legal.
void parallel_for(int num_threads, std::int64_t count, const std::function<void(std::int64_t index, int thread)>& body);

}  // namespace trimul::core
