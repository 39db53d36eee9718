// SPDX-License-Identifier: Apache-2.0
#include "core/env.hpp"

#if defined(__linux__)
#include <sched.h>
#endif

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "core/error.hpp"

namespace trimul::env {
namespace {

/// Processors this process may run on; std::thread::hardware_concurrency counts those of the machine.
int allowed_processors() {
#if defined(__linux__)
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) return std::max(1, CPU_COUNT(&allowed));
#endif
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace

int num_threads() {
  const char* value = std::getenv("TRIMUL_NUM_THREADS");
  if (value == nullptr || *value == '\0') return allowed_processors();
  const std::string_view digits(value);
  int threads = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), threads);
  if (error != std::errc{} || end != digits.data() + digits.size() || threads < 1 || threads > 4096)
    core::fail_invalid("TRIMUL_NUM_THREADS: is '", digits, "', expected a number from 1 to 4096");
  return threads;
}

bool log_dispatch() {
  const char* value = std::getenv("TRIMUL_LOG");
  return value != nullptr && std::string_view(value).find("dispatch") != std::string_view::npos;
}

void log_line(const std::string& line) {
  std::fprintf(stderr, "trimul: %s%s", line.c_str(), line.ends_with('\n') ? "" : "\n");
}

}  // namespace trimul::env
