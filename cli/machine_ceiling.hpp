// SPDX-License-Identifier: Apache-2.0
// What this machine's CPU can do at best, measured: the yardstick of `trimul bench`.
#pragma once

namespace trimul::cli {

struct MachineCeiling {
  double bytes_per_us = 0.0;  // copying arrays larger than the caches, bytes read + bytes written
  double flop_per_us = 0.0;   // fp32 fused multiply-adds on registers, two operations each
  int num_threads = 1;
};

/// Takes about a second. The threads are the library's: TRIMUL_NUM_THREADS, else all.
MachineCeiling measure_ceiling(int num_threads);

/// The time in microseconds that no implementation beats: the larger of traffic / bandwidth and operations / rate.
inline double floor_us(const MachineCeiling& ceiling, double traffic_bytes, double flop) {
  const double memory_us = traffic_bytes / ceiling.bytes_per_us;
  const double arithmetic_us = flop / ceiling.flop_per_us;
  return memory_us > arithmetic_us ? memory_us : arithmetic_us;
}

}  // namespace trimul::cli
