// SPDX-License-Identifier: Apache-2.0
// Choices of the portable GPU implementation for every architecture that is described, and which devices a build has code for: pure
// functions, tested without a GPU and without nvcc.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/checked.hpp"
#include "core/registry.hpp"
#include "cuda/host/code.hpp"
#include "cuda/sm80/heuristics.hpp"

namespace trimul::cuda::sm80 {
namespace {

constexpr const char* kArchitectures[] = {"sm80", "sm86", "sm89", "sm90", "sm100", "sm120"};
constexpr std::pair<std::int64_t, std::int64_t> kWidths[] = {{1, 1},     {5, 3},     {64, 64},   {128, 128}, {64, 128},   {256, 256},
                                                             {384, 384}, {384, 256}, {768, 128}, {128, 768}, {1600, 24},  {24, 1600},
                                                             {3200, 24}, {24, 3200}, {4096, 1},  {1, 4096},  {4096, 4096}};
constexpr std::pair<std::int64_t, std::int64_t> kExtents[] = {{1, 1},   {3, 9},   {1, 64},   {1, 65},    {2, 128},
                                                              {1, 300}, {5, 769}, {1, 5000}, {70'000, 3}};
struct Kind {
  core::DType x_dtype;
  core::Precision precision;
  Arithmetic arithmetic;
};
constexpr Kind kKinds[] = {
    {core::DType::kBf16, core::Precision::kDefault, Arithmetic::kBf16}, {core::DType::kBf16, core::Precision::kTf32, Arithmetic::kBf16},
    {core::DType::kBf16, core::Precision::kTf32x3, Arithmetic::kBf16},  {core::DType::kBf16, core::Precision::kBf16, Arithmetic::kBf16},
    {core::DType::kBf16, core::Precision::kIeee, Arithmetic::kIeee},    {core::DType::kF16, core::Precision::kDefault, Arithmetic::kFp16},
    {core::DType::kF16, core::Precision::kTf32, Arithmetic::kFp16},     {core::DType::kF16, core::Precision::kBf16, Arithmetic::kBf16},
    {core::DType::kF16, core::Precision::kIeee, Arithmetic::kIeee},     {core::DType::kF32, core::Precision::kDefault, Arithmetic::kPairs},
    {core::DType::kF32, core::Precision::kTf32x3, Arithmetic::kPairs},  {core::DType::kF32, core::Precision::kTf32, Arithmetic::kScaled},
    {core::DType::kF32, core::Precision::kIeee, Arithmetic::kIeee},     {core::DType::kF32, core::Precision::kBf16, Arithmetic::kBf16}};
constexpr int kGrains[] = {-1, 0, 1, 2};  // -1: the choice by size

core::Problem problem_of(const Kind& kind, const std::pair<std::int64_t, std::int64_t>& extent,
                         const std::pair<std::int64_t, std::int64_t>& widths) {
  core::Problem problem;
  problem.device.type = core::DeviceType::kCuda;
  problem.batch = extent.first;
  problem.tokens = extent.second;
  problem.c_z = widths.first;
  problem.c_hidden = widths.second;
  problem.x_dtype = kind.x_dtype;
  problem.precision = kind.precision;
  return problem;
}

/// Calls `body(problem, device)` for every architecture, kind, extent and pair of widths.
template <typename Body>
void for_each_choice(const Body& body) {
  for (const char* const name : kArchitectures) {
    const core::DeviceInfo device = core::describe_architecture(name).value();
    for (const Kind& kind : kKinds)
      for (const auto& extent : kExtents)
        for (const auto& widths : kWidths) {
          const core::Problem problem = problem_of(kind, extent, widths);
          SCOPED_TRACE(core::describe(problem) + " on " + name);
          body(problem, device);
          if (::testing::Test::HasFailure()) return;
        }
  }
}

/// What holds of a projection whose rows have `x` and `y` slabs, in a block that has `storage` bytes a position and stages of `stage`
/// bytes.
void expect_projection(const ProjectionConfig& config, const core::DeviceInfo& device, std::int64_t x, std::int64_t y, std::int64_t storage,
                       std::int64_t stage) {
  EXPECT_LE(config.smem_bytes, static_cast<std::size_t>(device.smem_per_block_bytes));
  EXPECT_EQ(config.smem_bytes % 16, 0U);
  EXPECT_GE(config.parts, 1);
  EXPECT_LT(config.feed_bytes, config.smem_bytes);
  EXPECT_EQ(config.feed_bytes % 16, 0U);
  if (config.is_resident) return;
  EXPECT_EQ(config.feed_bytes, 0U);
  EXPECT_EQ(config.parts, 1);
  EXPECT_TRUE(config.positions == 32 || config.positions == 64 || config.positions == 128);
  EXPECT_GE(config.stages, 2);
  EXPECT_GE(config.smem_bytes,
            static_cast<std::size_t>(config.positions * ((config.x_slabs + config.y_slabs) * std::int64_t{kSlabRowBytes} + storage) +
                                     config.stages * stage));
  EXPECT_TRUE(1 <= config.x_slabs && config.x_slabs <= x);
  EXPECT_TRUE(std::min<std::int64_t>(y, 1) <= config.y_slabs && config.y_slabs <= y);
  EXPECT_EQ(config.is_whole, config.x_slabs == x && config.y_slabs == y);
}

TEST(Sm80Heuristics, TheArithmeticFollowsFromDtypeAndPrecision) {
  for (const Kind& kind : kKinds)
    EXPECT_EQ(arithmetic_of(problem_of(kind, {1, 9}, {32, 32})), kind.arithmetic)
        << core::dtype_name(kind.x_dtype) << ", " << core::precision_name(kind.precision);
}

TEST(Sm80Heuristics, NarrowWidthsAreComputedInFp32UnlessTf32WasAskedFor) {
  for (const Kind& kind : kKinds) {
    const bool keeps_tf32 = kind.arithmetic == Arithmetic::kScaled;
    EXPECT_EQ(arithmetic_of(problem_of(kind, {1, 9}, {128, 31})), keeps_tf32 ? Arithmetic::kScaled : Arithmetic::kIeee)
        << core::dtype_name(kind.x_dtype) << ", " << core::precision_name(kind.precision);
  }
}

TEST(Sm80Heuristics, Fp32RowsThatALargeEpsMakesSmallAreComputedInFp32) {
  for (const Kind& kind : kKinds) {
    core::Problem problem = problem_of(kind, {1, 9}, {128, 128});
    problem.eps = 1e-2F;
    EXPECT_EQ(arithmetic_of(problem), kind.arithmetic);
    problem.eps = 1.1e-2F;
    EXPECT_EQ(arithmetic_of(problem), kind.arithmetic == Arithmetic::kPairs ? Arithmetic::kIeee : kind.arithmetic);
  }
}

TEST(Sm80Heuristics, WeightsOf16BitRowsOf64And128ChannelsStayInSharedMemory) {
  for_each_choice([](const core::Problem& problem, const core::DeviceInfo& device) {
    const bool is_native =
        problem.c_hidden >= 32 && problem.precision != core::Precision::kIeee &&
        (problem.x_dtype == core::DType::kBf16 || (problem.x_dtype == core::DType::kF16 && problem.precision != core::Precision::kBf16));
    const auto fits = [](std::int64_t width) { return width == 64 || width == 128; };
    for (const int grain : kGrains) {
      EXPECT_EQ(input_projection_config(problem, device, grain).is_resident, is_native && fits(problem.c_z));
      EXPECT_EQ(output_projection_config(problem, device, grain).is_resident, is_native && fits(problem.c_z) && fits(problem.c_hidden));
    }
  });
}

TEST(Sm80Heuristics, RowsAreFedWhereSharedMemoryHasRoom) {
  const Kind& bf16 = kKinds[0];
  ASSERT_EQ(bf16.arithmetic, Arithmetic::kBf16);
  const core::Problem problem = problem_of(bf16, {1, 512}, {128, 128});
  const auto feeds = [&](const char* architecture) {
    const core::DeviceInfo device = core::describe_architecture(architecture).value();
    return std::pair(input_projection_config(problem, device, -1).feed_bytes > 0,
                     output_projection_config(problem, device, -1).feed_bytes > 0);
  };
  EXPECT_EQ(feeds("sm80"), std::pair(false, true));
  EXPECT_EQ(feeds("sm86"), std::pair(false, false));
  EXPECT_EQ(feeds("sm90"), std::pair(true, true));
}

TEST(Sm80Heuristics, TilesThatResidentKernelsCountIn32BitsDoNotOverflow) {
  const core::Problem problem = problem_of(kKinds[0], {1, std::int64_t{1} << 18}, {128, 128});
  EXPECT_FALSE(is_input_resident(problem));
  EXPECT_FALSE(is_output_resident(problem));
  EXPECT_TRUE(is_output_resident(problem_of(kKinds[0], {1, std::int64_t{1} << 17}, {128, 128})));
}

TEST(Sm80Heuristics, SlabsHoldTheWidth) {
  for (const Kind& kind : kKinds)
    for (std::int64_t width = 1; width <= 4100; width += width < 300 ? 1 : 37) {
      const std::int64_t slabs = slabs_of(width, kind.arithmetic), elements = kSlabRowBytes / operand_bytes(kind.arithmetic);
      ASSERT_TRUE(slabs * elements >= width && (slabs - 1) * elements < width) << width;
    }
}

TEST(Sm80Heuristics, ProjectionsFitEveryArchitecture) {
  for_each_choice([](const core::Problem& problem, const core::DeviceInfo& device) {
    const Arithmetic arithmetic = arithmetic_of(problem);
    const std::int64_t x = slabs_of(problem.c_z, arithmetic), y = slabs_of(problem.c_hidden, arithmetic);
    for (const int grain : kGrains) {
      expect_projection(input_projection_config(problem, device, grain), device, x, 0, kInputStorageBytes, kInChunkRows * kSlabRowBytes);
      expect_projection(output_projection_config(problem, device, grain), device, x, y, kOutputStorageBytes, kOutChunkRows * kSlabRowBytes);
    }
  });
}

TEST(Sm80Heuristics, AGrainBoundsTheTile) {
  for_each_choice([](const core::Problem& problem, const core::DeviceInfo& device) {
    const Arithmetic arithmetic = arithmetic_of(problem);
    for (const int grain : {0, 1, 2})
      for (const ProjectionConfig& config :
           {input_projection_config(problem, device, grain), output_projection_config(problem, device, grain)}) {
        if (config.is_resident) continue;
        EXPECT_LE(config.positions, positions_of_grain(grain));
        EXPECT_LE(config.positions, most_positions(arithmetic));
        EXPECT_TRUE(config.is_whole || config.positions == 32);
      }
    // The library's own choice is one that can be named, and names itself.
    const ProjectionConfig input = input_projection_config(problem, device, -1), output = output_projection_config(problem, device, -1);
    EXPECT_TRUE(input_projection_config(problem, device, grain_of(input)) == input);
    EXPECT_TRUE(output_projection_config(problem, device, grain_of(output)) == output);
  });
}

TEST(Sm80Heuristics, OnlyRowsThatFitNowhereAreNormalisedPartByPart) {
  for_each_choice([](const core::Problem& problem, const core::DeviceInfo& device) {
    const std::int64_t x = slabs_of(problem.c_z, arithmetic_of(problem));
    const std::int64_t least = 32 * (x * kSlabRowBytes + kInputStorageBytes) + 2 * std::int64_t{kInChunkRows} * kSlabRowBytes;
    const ProjectionConfig config = input_projection_config(problem, device, -1);
    EXPECT_TRUE(config.is_resident || config.is_whole == (least <= device.smem_per_block_bytes));
  });
}

TEST(Sm80Heuristics, TheContractionFitsEveryArchitecture) {
  for_each_choice([](const core::Problem& problem, const core::DeviceInfo& device) {
    for (const int tile : {0, 64, 128}) {
      const ContractionConfig config = contraction_config(problem, device, tile);
      EXPECT_TRUE(config.tile == 64 || config.tile == 128);
      EXPECT_TRUE(tile == 0 || config.tile == tile);
      EXPECT_GE(config.stages, 2);
      EXPECT_LE(config.smem_bytes, static_cast<std::size_t>(device.smem_per_block_bytes));
      // The rows of both operands, 128 bytes of k each, in every stage.
      const ContractionTile shape = contraction_tile(arithmetic_of(problem), config.tile);
      EXPECT_EQ(shape.rows, config.tile);
      EXPECT_GE(config.smem_bytes, static_cast<std::size_t>(config.stages * (shape.rows + shape.columns) * kSlabRowBytes));
      const std::int64_t tiles =
          problem.batch * problem.c_hidden * core::ceil_div(problem.tokens, shape.rows) * core::ceil_div(problem.tokens, shape.columns);
      EXPECT_TRUE(std::min<std::int64_t>(1, tiles) <= config.blocks && config.blocks <= tiles);
    }
    EXPECT_TRUE(contraction_config(problem, device, contraction_config(problem, device, 0).tile) == contraction_config(problem, device, 0));
  });
}

TEST(Sm80Heuristics, PlanesHoldEveryPositionAndStartOnLines) {
  for (std::int64_t n = 1; n <= 1100; ++n)
    for (const std::int64_t batch : {1, 2, 3, 5}) {
      const std::int64_t row = plane_row(n), pitch = plane_pitch(batch, n);
      ASSERT_TRUE(row >= n && row - n < 64 && row % 8 == 0) << n;
      ASSERT_TRUE(pitch >= batch * n * row && pitch % 128 == 0) << n;
      ASSERT_LT(pitch - batch * n * row, 128) << n;
    }
  // Beyond 32 bits as well.
  EXPECT_GE(plane_pitch(1, 70'000), std::int64_t{70'000} * 70'000);
}

TEST(HasCodeFor, CodeOfTheSameMajorAndPtxOfAnyOlderVersion) {
  struct Row {
    const char* architectures;
    std::vector<int> has, lacks;
  };
  const Row kRows[] = {
      {"80-real", {80, 86, 87, 89}, {75, 90, 100, 120}},
      {"86-real", {86, 89}, {80, 90, 120}},
      {"90-real", {90}, {80, 89, 100, 103, 120}},
      {"100-real 120-real", {100, 103, 120, 121}, {80, 90, 110}},
      {"80-virtual", {80, 86, 89, 90, 100, 120, 130}, {75, 70}},
      {"120-virtual", {120, 121, 130}, {80, 90, 100, 103}},
      {"90-real 80-virtual", {80, 86, 89, 90, 100, 120}, {75}},
      {"90", {90, 100, 120}, {80, 89}},  // without a word: both
      {"80-real 86-real 89-real 90-real 100-real 120-real 80-virtual 120-virtual",
       {80, 86, 87, 89, 90, 100, 103, 110, 120, 121},
       {75, 70, 61}},
      {"", {}, {80, 90}},
      {"native", {}, {80, 90}},
      {"native 90-real", {90}, {80}},
  };
  for (const Row& row : kRows) {
    for (const int sm : row.has) EXPECT_TRUE(has_code_for(row.architectures, sm)) << row.architectures << ": " << sm;
    for (const int sm : row.lacks) EXPECT_FALSE(has_code_for(row.architectures, sm)) << row.architectures << ": " << sm;
  }
}

/// The list's answer for cuda:sm80 on a device of compute capability `sm` / 10; nothing where it accepts.
std::string reason_on(int sm, bool is_hypothetical, core::DType dtype = core::DType::kF32,
                      core::Precision precision = core::Precision::kDefault) {
  core::DeviceInfo device = core::describe_architecture("sm80").value();
  device.name = "Some GPU";
  device.sm = sm;
  device.is_hypothetical = is_hypothetical;
  const core::Selection selection =
      core::select_implementation(core::implementations(), problem_of({dtype, precision, {}}, {1, 9}, {32, 32}), device);
  for (const auto& [name, reason] : selection.declined)
    if (name == "cuda:sm80") return reason;
  return "";
}

TEST(Sm80Constraints, OlderDevicesAreDeclinedByName) {
  if (const std::string absent = reason_on(80, true); !absent.empty()) GTEST_SKIP() << absent;  // not in this build
  for (const bool is_hypothetical : {false, true}) {
    EXPECT_EQ(reason_on(75, is_hypothetical), "needs compute capability 8.0 or newer, Some GPU has 7.5");
    EXPECT_EQ(reason_on(61, is_hypothetical), "needs compute capability 8.0 or newer, Some GPU has 6.1");
  }
  for (const int sm : {80, 86, 89, 90, 100, 120}) EXPECT_EQ(reason_on(sm, true), "") << sm;
}

TEST(Sm80Constraints, WhatItDoesNotComputeIsDeclined) {
  if (const std::string absent = reason_on(80, true); !absent.empty()) GTEST_SKIP() << absent;
  EXPECT_NE(reason_on(80, true, core::DType::kF64).find("fp64"), std::string::npos);
  EXPECT_NE(reason_on(80, true, core::DType::kBf16, core::Precision::kMxfp8).find("mxfp8"), std::string::npos);
  for (const Kind& kind : kKinds) EXPECT_EQ(reason_on(80, true, kind.x_dtype, kind.precision), "");
}

}  // namespace
}  // namespace trimul::cuda::sm80
