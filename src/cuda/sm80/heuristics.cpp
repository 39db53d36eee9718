// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm80/heuristics.hpp"

#include <algorithm>

#include "core/checked.hpp"
#include "cuda/common/pair_tiling.hpp"

namespace trimul::cuda::sm80 {

using core::ceil_div;
using core::round_up;

namespace {

constexpr std::int64_t kMostPositions = 128;

/// Largest tile first: it reads the weights least often.
constexpr int kTilePositionChoices[] = {128, 64, 32};

/// Tiles of `positions` for every multiprocessor?
bool fills(const core::Problem& problem, const core::DeviceInfo& device, int positions) {
  return plane_pitch(problem.batch, problem.tokens) / positions >= device.num_sms;
}


}  // namespace

Arithmetic arithmetic_of(const core::Problem& problem) {
  using core::Precision;
  if (problem.precision == Precision::kIeee) return Arithmetic::kIeee;
  if (problem.precision == Precision::kBf16 || problem.x_dtype == core::DType::kBf16) return Arithmetic::kBf16;
  if (problem.x_dtype == core::DType::kF16) return Arithmetic::kFp16;
  return problem.precision == Precision::kTf32 ? Arithmetic::kTf32 : Arithmetic::kTf32x3;
}

std::int64_t slabs_of(std::int64_t width, Arithmetic arithmetic) {
  return ceil_div(width, slab_elements(arithmetic));
}

std::int64_t plane_row(std::int64_t tokens) {
  return padded_tokens(tokens);
}

std::int64_t plane_pitch(std::int64_t batch, std::int64_t tokens) {
  return round_up(batch * tokens * plane_row(tokens), kMostPositions);
}

namespace {

/// `wanted`: 0 or the tile that a knob names. Two blocks to a multiprocessor hide each other's phases: the largest tile of which two fit and that
/// fills the device; else of which one fits; else the smallest tile, whose rows are normalised part by part, again for every chunk of weights.
ProjectionConfig choose(const core::Problem& problem, const core::DeviceInfo& device, int wanted, std::int64_t x_slabs, std::int64_t y_slabs,
                        std::int64_t storage_bytes, std::int64_t stage_bytes) {
  const std::int64_t most = device.smem_per_block_bytes;
  const auto bytes_of = [&](std::int64_t positions, std::int64_t stages, std::int64_t slabs) {
    return positions * (slabs * kSlabRowBytes + storage_bytes) + stages * stage_bytes;
  };
  const auto config_of = [&](std::int64_t positions, std::int64_t stages, std::int64_t x, std::int64_t y) {
    return ProjectionConfig{.positions = static_cast<int>(positions),
                            .stages = static_cast<int>(stages),
                            .x_slabs = static_cast<int>(x),
                            .y_slabs = static_cast<int>(y),
                            .is_whole = x == x_slabs && y == y_slabs,
                            .smem_bytes = static_cast<std::size_t>(bytes_of(positions, stages, x + y))};
  };
  const std::int64_t slabs = x_slabs + y_slabs;
  for (const std::int64_t blocks : {2, 1})
    for (const int positions : kTilePositionChoices) {
      if (wanted != 0 ? positions != wanted : positions > 32 && !fills(problem, device, positions)) continue;
      for (const std::int64_t stages : {3, 2})
        if (bytes_of(positions, stages, slabs) <= most / blocks - 1024 * (blocks - 1)) return config_of(positions, stages, x_slabs, y_slabs);
    }
  // Not all at once, then: the rows of y first, since those of x can be needed whole (output_projection/kernel.cuh).
  constexpr std::int64_t kPositions = 32;
  const std::int64_t room = (most - bytes_of(kPositions, 2, 0)) / (kPositions * kSlabRowBytes);
  const std::int64_t y = y_slabs == 0 ? 0 : std::max<std::int64_t>(1, std::min(y_slabs, room / 2));
  const std::int64_t x = std::min(x_slabs, room - y);
  return config_of(kPositions, 2, x, std::min(y_slabs, room - x));
}

}  // namespace

ProjectionConfig input_projection_config(const core::Problem& problem, const core::DeviceInfo& device, int positions) {
  const Arithmetic arithmetic = arithmetic_of(problem);
  return choose(problem, device, positions, slabs_of(problem.c_z, arithmetic), 0, kProjectionStorageBytes, kInChunkRows * kSlabRowBytes);
}

ProjectionConfig output_projection_config(const core::Problem& problem, const core::DeviceInfo& device, int positions) {
  const Arithmetic arithmetic = arithmetic_of(problem);
  return choose(problem, device, positions, slabs_of(problem.c_z, arithmetic), slabs_of(problem.c_hidden, arithmetic), kOutputStorageBytes,
                kOutChunkRows * kSlabRowBytes);
}

ContractionConfig contraction_config(const core::Problem& problem, const core::DeviceInfo& device, int tile) {
  const std::int64_t planes = problem.batch * problem.c_hidden;
  const auto tiles = [&](std::int64_t side) { return planes * ceil_div(problem.tokens, side) * ceil_div(problem.tokens, side); };
  // Small tiles where large ones would leave multiprocessors idle or be mostly padding.
  if (tile == 0) tile = problem.tokens <= 64 || tiles(128) < device.num_sms ? 64 : 128;
  ContractionConfig config{.tile = tile};
  const auto bytes_of = [tile](int stages) { return std::int64_t{stages} * 2 * tile * kSlabRowBytes; };
  config.stages = bytes_of(3) * 2 + 2048 <= device.smem_per_block_bytes ? 3 : bytes_of(2) * 2 + 2048 <= device.smem_per_block_bytes ? 2 : 3;
  config.smem_bytes = static_cast<std::size_t>(bytes_of(config.stages));
  return config;
}

}  // namespace trimul::cuda::sm80
