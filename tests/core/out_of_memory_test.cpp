// SPDX-License-Identifier: Apache-2.0
// When memory ends: a typed refusal, nothing written, and the next smaller call works.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <new>

#include "core/parallel.hpp"
#include "support/call.hpp"
#include "support/child.hpp"
#include "support/comparison.hpp"
#include "support/sanitizers.hpp"
#include "support/scoped_env.hpp"

namespace trimul::testing {
namespace {

/// Limits this process to what it uses now and `spare` bytes more.
bool limit_address_space(std::size_t spare) {
  std::size_t pages = 0;
  std::FILE* const statm = std::fopen("/proc/self/statm", "r");
  if (statm == nullptr) return false;
  const bool read = std::fscanf(statm, "%zu", &pages) == 1;
  std::fclose(statm);
  const rlim_t bytes = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + spare;
  const rlimit limit{bytes, bytes};
  return read && setrlimit(RLIMIT_AS, &limit) == 0;
}

#if TRIMUL_UNDER_ASAN
#define TRIMUL_NEEDS_ADDRESS_SPACE_LIMIT() GTEST_SKIP() << "AddressSanitizer's shadow memory does not fit under RLIMIT_AS"
#else
#define TRIMUL_NEEDS_ADDRESS_SPACE_LIMIT() static_cast<void>(0)
#endif

std::string update(const Case& data, const HostTensor& out, int threads, const char* implementation) {
  const Bound bound(data);
  const trimul_knob knob{"threads", threads};
  trimul_plan_options options = TRIMUL_PLAN_OPTIONS_INIT;
  options.knobs = &knob;
  options.num_knobs = 1;
  options.implementation = implementation;
  const trimul_tensor out_view = out.view();
  trimul_update_args args = bound.update_args(data);
  args.out = &out_view;
  args.options = &options;
  return outcome(trimul_update(&args));
}

TEST(OutOfMemory, AnUpdateReportsItWritesNothingAndTheNextSmallerCallWorks) {
  TRIMUL_NEEDS_ADDRESS_SPACE_LIMIT();
  for (const char* implementation : {"cpu", "reference"}) {
    const Case large({.n = 512, .c_z = 2, .c = 64});  // 2 MiB of x, 135 MiB of workspace and more
    const Case small({.n = 9});
    const HostTensor large_out(DType::kF32, large.x.sizes());
    const HostTensor small_out(DType::kF32, small.x.sizes());
    const std::string text = in_child([&]() -> std::string {
      if (!limit_address_space(100U << 20)) return "no limit";
      const auto before = large_out.buffer().copy();
      std::string report = update(large, large_out, 2, implementation);
      if (before != large_out.buffer().copy()) report += " (wrote)";
      report += "; then " + update(small, small_out, 2, implementation);
      const auto verdict = meets_contract(small, implementation, decode(small_out.buffer().copy(), DType::kF32));
      return report + (verdict ? ", right" : verdict.message());
    });
    EXPECT_TRUE(contains(text, "OUT_OF_MEMORY: allocating ")) << text;
    EXPECT_TRUE(contains(text, " bytes of host memory failed; then OK, right")) << text;
  }
}

TEST(OutOfMemory, EveryAmountOfMemoryGivesAResultOrTheTypedRefusal) {
  TRIMUL_NEEDS_ADDRESS_SPACE_LIMIT();
  const Case data({.n = 48, .c_z = 32, .c = 32});
  const HostTensor out(DType::kF32, data.x.sizes());
  int refused = 0;
  for (std::size_t spare = 0; spare <= 20U << 20; spare += 1U << 20)
    for (const char* implementation : {"cpu", "reference"}) {
      const std::string text = in_child([&]() -> std::string {
        if (!limit_address_space(spare)) return "no limit";
        return update(data, out, 4, implementation);
      });
      EXPECT_TRUE(text == "OK" || contains(text, "OUT_OF_MEMORY: ")) << implementation << " with " << spare << " bytes: " << text;
      if (text != "OK") ++refused;
    }
  EXPECT_GT(refused, 0);
}

TEST(OutOfMemory, ParallelForDoesWithTheThreadsItGets) {
  TRIMUL_NEEDS_ADDRESS_SPACE_LIMIT();
  const std::string text = in_child([]() -> std::string {
    if (!limit_address_space(20U << 20)) return "no limit";  // two stacks of 8 MiB
    std::vector<int> calls(1000, 0);
    core::parallel_for(64, 1000, [&](std::int64_t index, int) { ++calls[static_cast<std::size_t>(index)]; });
    return std::count(calls.begin(), calls.end(), 1) == 1000 ? "all" : "some missing";
  });
  EXPECT_EQ(text, "all");
}

TEST(OutOfMemory, AnImpossibleWorkspaceIsARefusalNotACrash) {
  // 2^45 bytes and more are asked for; the tensors themselves are lies that are never touched.
  const Case small({.n = 2, .c_z = 2, .c = 2, .mask = MaskKind::kNone});
  Bound bound(small);
  const std::int64_t n = std::int64_t{1} << 20;
  const Sizes sizes{n, n, 2};
  bound.x.sizes = sizes.data();
  bound.x.strides = nullptr;
  bound.x.data = reinterpret_cast<void*>(std::uintptr_t{1} << 44);
  trimul_tensor out = bound.x;
  out.data = reinterpret_cast<void*>(std::uintptr_t{1} << 45);
  trimul_update_args args = bound.update_args(small);
  args.out = &out;
#if TRIMUL_UNDER_ASAN
  GTEST_SKIP() << "AddressSanitizer ends the process on such sizes unless told otherwise";
#endif
  EXPECT_TRUE(contains(outcome(trimul_update(&args)), "OUT_OF_MEMORY: allocating ")) << trimul_last_error();
}

TEST(OutOfMemory, WhatIsWrongIsFoundBeforeAnythingIsAllocated) {
  // Of 2^20 tokens; the tensors are lies that are never touched, and no workspace or scratch of theirs could be had.
  const Case small({.lead = {2}, .n = 2, .c_z = 2, .c = 2});
  Bound bound(small);
  const std::int64_t n = std::int64_t{1} << 20;
  const Sizes sizes{n, n, 2}, not_square{n, 1, 2}, square{n, n}, other{5, 5};
  const auto at = [](int power, std::int32_t dtype, const Sizes& shape) {
    return trimul_tensor{reinterpret_cast<void*>(std::uintptr_t{1} << power),
                         {TRIMUL_CPU, 0},
                         static_cast<std::int32_t>(shape.size()),
                         dtype,
                         shape.data(),
                         nullptr};
  };
  const trimul_tensor x = at(44, TRIMUL_F32, sizes), mask = at(43, TRIMUL_U8, square), out = at(45, TRIMUL_F32, sizes);
  const auto refused = [&](const trimul_tensor& with_x, const trimul_tensor* with_mask, const trimul_tensor& with_out) {
    trimul_update_args args = bound.update_args(small);
    args.x = &with_x;
    args.mask = with_mask;
    args.out = &with_out;
    return outcome(trimul_update(&args));
  };
  EXPECT_EQ(refused(at(44, TRIMUL_F32, not_square), nullptr, at(45, TRIMUL_F32, not_square)),
            "INVALID_ARGUMENT: x: dimension N (1 of [1048576, 1, 2]) is 1, expected 1048576 (from the plan)");
  EXPECT_EQ(refused(x, nullptr, at(45, TRIMUL_F16, sizes)), "INVALID_ARGUMENT: out: dtype is fp16, expected fp32");
  EXPECT_EQ(refused(x, nullptr, at(45, TRIMUL_F32, not_square)),
            "INVALID_ARGUMENT: out: dimension N (1 of [1048576, 1, 2]) is 1, expected 1048576 (from x)");
  EXPECT_EQ(refused(x, &mask, x), "INVALID_ARGUMENT: out: its memory intersects that of x, expected no common byte");
  const trimul_tensor small_mask = at(43, TRIMUL_U8, other);
  EXPECT_EQ(refused(x, &small_mask, out), "INVALID_ARGUMENT: mask: dimension N (0 of [5, 5]) is 5, expected 1048576 (from x)");
  trimul_tensor far_away = out;
  far_away.device = {TRIMUL_CUDA, 0};
  EXPECT_EQ(refused(x, &mask, far_away), "INVALID_ARGUMENT: out: device is cuda:0, expected cpu");

  trimul_update_args args = bound.update_args(small);
  args.x = &x;
  args.mask = &mask;
  const std::int64_t outside[] = {0, 0, 0, 0, n, 0};
  double value = 0;
  EXPECT_EQ(outcome(trimul_reference(&args, TRIMUL_ROUNDING_NONE, outside, 2, &value)),
            "INVALID_ARGUMENT: cells: entry 1 is (0, 1048576, 0), expected inside B = 1, N = 1048576");
  EXPECT_EQ(outcome(trimul_reference(&args, TRIMUL_ROUNDING_NONE, nullptr, 0, nullptr)),
            "INVALID_ARGUMENT: result: is NULL, expected a place for the values");
  args.mask = &small_mask;
  EXPECT_EQ(outcome(trimul_reference(&args, TRIMUL_ROUNDING_NONE, outside, 0, nullptr)),
            "INVALID_ARGUMENT: mask: dimension N (0 of [5, 5]) is 5, expected 1048576 (from x)")
      << "without a cell it is a check of the arguments";
  args.mask = &mask;
  EXPECT_EQ(outcome(trimul_reference(&args, TRIMUL_ROUNDING_NONE, outside, 0, nullptr)), "OK");
}

}  // namespace
}  // namespace trimul::testing
