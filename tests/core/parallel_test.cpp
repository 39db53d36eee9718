// SPDX-License-Identifier: Apache-2.0
#include "core/parallel.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace trimul::core {
namespace {

TEST(ParallelFor, CallsEveryIndexOnceOnThreadsInRange) {
  for (const int threads : {-1, 0, 1, 2, 3, 8, 33})
    for (const std::int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
      std::atomic<bool> in_range{true};
      parallel_for(threads, count, [&](std::int64_t index, int thread) {
        ++calls[static_cast<std::size_t>(index)];
        if (thread < 0 || thread >= std::max(threads, 1)) in_range = false;
      });
      for (const auto& number : calls) EXPECT_EQ(number, 1);
      EXPECT_TRUE(in_range);
    }
}

TEST(ParallelFor, ThreadNumbersAreNotSharedAtOneTime) {
  std::vector<std::atomic<int>> busy(8);
  std::atomic<bool> shared{false};
  parallel_for(8, 2000, [&](std::int64_t, int thread) {
    if (busy[static_cast<std::size_t>(thread)].fetch_add(1) != 0) shared = true;
    std::this_thread::yield();
    busy[static_cast<std::size_t>(thread)].fetch_sub(1);
  });
  EXPECT_FALSE(shared);
}

TEST(ParallelFor, OneThreadIsTheCallersOwnInOrder) {
  std::vector<std::int64_t> order;
  const auto caller = std::this_thread::get_id();
  parallel_for(1, 5, [&](std::int64_t index, int thread) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(thread, 0);
    order.push_back(index);
  });
  EXPECT_EQ(order, (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
}

TEST(ParallelFor, RethrowsTheFirstExceptionAfterAllThreadsStopped) {
  for (const int threads : {1, 4}) {
    std::atomic<int> running{0};
    try {
      parallel_for(threads, 10000, [&](std::int64_t index, int) {
        ++running;
        std::this_thread::yield();
        --running;
        if (index == 3) throw std::runtime_error("index 3");
      });
      ADD_FAILURE() << "no exception";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "index 3");
    }
    EXPECT_EQ(running, 0);
  }
}

TEST(ParallelFor, ExceptionsOfEveryIndexAreSurvived) {
  for (int repeat = 0; repeat < 50; ++repeat)
    EXPECT_THROW(parallel_for(8, 100, [](std::int64_t, int) { throw std::bad_alloc(); }), std::bad_alloc);
}

TEST(ParallelFor, NestsAndRunsFromManyThreads) {
  std::atomic<int> calls{0};
  parallel_for(3, 5, [&](std::int64_t, int) { parallel_for(3, 7, [&](std::int64_t, int) { ++calls; }); });
  EXPECT_EQ(calls, 35);
}

}  // namespace
}  // namespace trimul::core
