// SPDX-License-Identifier: Apache-2.0
#include "core/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace trimul::core {

void parallel_for(int num_threads, std::int64_t count, const std::function<void(std::int64_t, int)>& body) {
  const int team = static_cast<int>(std::clamp<std::int64_t>(count, 1, std::max(num_threads, 1)));
  std::atomic<std::int64_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const auto work = [&](int thread) {
    try {
      for (std::int64_t index = next.fetch_add(1); index < count; index = next.fetch_add(1)) body(index, thread);
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
      next.store(count);  // the others stop at their next index
    }
  };
  std::vector<std::thread> helpers;
  helpers.reserve(static_cast<std::size_t>(team - 1));
  try {
    for (int thread = 1; thread < team; ++thread) helpers.emplace_back(work, thread);
  } catch (const std::exception&) {
    // The system has no more threads (std::system_error) or memory (std::bad_alloc) to give: those that started and the caller share
    // the work.
  }
  work(0);
  for (std::thread& helper : helpers) helper.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace trimul::core
