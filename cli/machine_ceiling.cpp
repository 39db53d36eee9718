// SPDX-License-Identifier: Apache-2.0
#include "machine_ceiling.hpp"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "host_tensor.hpp"

namespace trimul::cli {
namespace {

using Clock = std::chrono::steady_clock;

// One vector of 64 bytes; the compiler splits it where registers are narrower.
typedef float Vector __attribute__((vector_size(64)));

/// Sixteen independent sums hide the latency of a fused multiply-add (4 cycles, 2 a cycle) on any current core and still fit the
/// 32 registers of AVX-512. Returns a value that depends on all of them, so that no loop is left out.
__attribute__((always_inline)) inline float multiply_add_loop(long iterations) {
  constexpr int kSums = 16;
  Vector sums[kSums];
  // None may start at the fixed point 1, which the compiler would see and leave out.
  for (int k = 0; k < kSums; ++k) sums[k] = Vector{} + (static_cast<float>(k) + 1.5F);
  const Vector factor = Vector{} + 0.999F;
  const Vector addend = Vector{} + 0.001F;
  for (long i = 0; i < iterations; ++i) {
#pragma GCC unroll 16
    for (Vector& sum : sums) sum = sum * factor + addend;  // contracted: CMakeLists.txt asks for it
  }
  float total = 0.0F;
  for (const Vector& sum : sums) total += sum[0] + sum[7] + sum[15];
  return total;
}
constexpr double kFlopPerIteration = 16 * 16 * 2;

#if defined(__x86_64__)
__attribute__((target("avx512f,fma"))) float multiply_adds_avx512(long iterations) {
  return multiply_add_loop(iterations);
}
__attribute__((target("avx2,fma"))) float multiply_adds_avx2(long iterations) {
  return multiply_add_loop(iterations);
}
#endif
float multiply_adds_baseline(long iterations) {
  return multiply_add_loop(iterations);
}

float (*select_multiply_adds())(long) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return multiply_adds_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return multiply_adds_avx2;
#endif
  return multiply_adds_baseline;
}

/// Runs body(thread) on all threads at once; microseconds from the moment all have started until all are done. The best of a
/// few repetitions: a ceiling is what the machine can do.
template <typename Body>
double best_time_us(int num_threads, const Body& body) {
  constexpr int kRepetitions = 15;
  double best = 0.0;
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    Clock::time_point start;
    std::barrier ready(num_threads, [&start]() noexcept { start = Clock::now(); });
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < num_threads; ++thread)
      threads.emplace_back([&, thread] {
        ready.arrive_and_wait();
        body(thread);
      });
    threads.clear();  // joins
    const double time_us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    if (repetition == 0 || time_us < best) best = time_us;
  }
  return best;
}

}  // namespace

MachineCeiling measure_ceiling(int num_threads) {
  MachineCeiling ceiling;
  ceiling.num_threads = std::max(1, num_threads);

  constexpr std::size_t kCopyBytes = std::size_t{256} << 20;
  const HostMemory source = allocate_host(kCopyBytes);
  const HostMemory target = allocate_host(kCopyBytes);
  std::memset(source.get(), 1, kCopyBytes);
  std::memset(target.get(), 2, kCopyBytes);
  const std::size_t share = kCopyBytes / static_cast<std::size_t>(ceiling.num_threads);
  const double copy_us = best_time_us(ceiling.num_threads, [&](int thread) {
    const std::size_t first = static_cast<std::size_t>(thread) * share;
    std::memcpy(target.get() + first, source.get() + first, share);
  });
  ceiling.bytes_per_us = 2.0 * static_cast<double>(share) * ceiling.num_threads / copy_us;

  constexpr long kIterations = 2'000'000;
  const auto multiply_adds = select_multiply_adds();
  std::vector<float> results(static_cast<std::size_t>(ceiling.num_threads));
  const double arithmetic_us =
      best_time_us(ceiling.num_threads, [&](int thread) { results[static_cast<std::size_t>(thread)] = multiply_adds(kIterations); });
  ceiling.flop_per_us = kFlopPerIteration * kIterations * ceiling.num_threads / arithmetic_us;
  return ceiling;
}

}  // namespace trimul::cli
