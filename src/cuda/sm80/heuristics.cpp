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
constexpr std::int64_t kMostStages = 3;
constexpr std::int64_t kNormPairBytes = 8;
constexpr std::int64_t kNarrowWidth = 32;
/// Normalised rows of a variance far below eps are far below the bound that pairs are scaled by, and so are a and b.
constexpr float kMostEpsOfPairs = 1e-2F;

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
  // Between few channels the second LayerNorm magnifies the rounding of y without bound; all of fp32's bits cost little there.
  const bool is_16_bit = problem.precision == Precision::kBf16 || problem.x_dtype != core::DType::kF32;
  if (problem.c_hidden < kNarrowWidth && (is_16_bit || problem.precision != Precision::kTf32)) return Arithmetic::kIeee;
  if (problem.precision == Precision::kBf16 || problem.x_dtype == core::DType::kBf16) return Arithmetic::kBf16;
  if (problem.x_dtype == core::DType::kF16) return Arithmetic::kFp16;
  if (problem.precision == Precision::kTf32) return Arithmetic::kScaled;
  return problem.eps > kMostEpsOfPairs ? Arithmetic::kIeee : Arithmetic::kPairs;
}

namespace {

/// The result's arithmetic is that of x, whose elements are operands as they stand.
bool is_native_16_bit(const core::Problem& problem) {
  const Arithmetic arithmetic = arithmetic_of(problem);
  return (arithmetic == Arithmetic::kBf16 && problem.x_dtype == core::DType::kBf16) ||
         (arithmetic == Arithmetic::kFp16 && problem.x_dtype == core::DType::kF16);
}

bool is_resident_width(std::int64_t width) {
  return width == 64 || width == 128;
}

}  // namespace

bool is_input_resident(const core::Problem& problem) {
  constexpr std::int64_t kMostTiles = std::int64_t{1} << 31;  // counted in 32 bits; their x would have more than 2^40 bytes
  return is_native_16_bit(problem) && is_resident_width(problem.c_z) &&
         plane_pitch(problem.batch, problem.tokens) / kResidentOutputPositions < kMostTiles;
}

bool is_output_resident(const core::Problem& problem) {
  return is_input_resident(problem) && is_resident_width(problem.c_hidden);
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

/// Two blocks to a multiprocessor hide each other's phases: the largest tile of which two fit and that
/// fills the device; else of which one fits; else the smallest tile, whose rows are normalised part by part, again for every chunk of
/// weights.
ProjectionConfig choose(const core::Problem& problem, const core::DeviceInfo& device, int grain, std::int64_t x_slabs, std::int64_t y_slabs,
                        std::int64_t storage_bytes, std::int64_t stage_bytes, int most) {
  const std::int64_t room_bytes = device.smem_per_block_bytes;
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
  // A deeper ring in exchange for a smaller tile loses: C_z = C = 256, 384 and (768, 128), N = 256, bf16, us: 129, 394, 497 with tiles of
  // 128 and two or three stages, 153, 480, 736 with tiles of 64 and up to six. NVIDIA H200.
  for (const std::int64_t blocks : {2, 1})
    for (const int positions : kTilePositionChoices) {
      if (positions > most || (grain >= 0 ? positions > positions_of_grain(grain) : positions > 32 && !fills(problem, device, positions)))
        continue;
      const std::int64_t room_of_block = room_bytes / blocks - 1024 * (blocks - 1);
      const std::int64_t stages = std::min(kMostStages, (room_of_block - bytes_of(positions, 0, slabs)) / stage_bytes);
      if (stages >= 2) return config_of(positions, stages, x_slabs, y_slabs);
    }
  // Not all at once, then: the rows of y first, since those of x can be needed whole (output_projection/kernel.cuh).
  constexpr std::int64_t kPositions = 32;
  const std::int64_t room = (room_bytes - bytes_of(kPositions, 2, 0)) / (kPositions * kSlabRowBytes);
  const std::int64_t y = y_slabs == 0 ? 0 : std::max<std::int64_t>(1, std::min(y_slabs, room / 2));
  const std::int64_t x = std::min(x_slabs, room - y);
  return config_of(kPositions, 2, x, std::min(y_slabs, room - x));
}

}  // namespace

namespace {

/// `config` of a resident kernel with `feed_bytes` for the rows of its warps' next tiles, where there is room.
ProjectionConfig with_feed(ProjectionConfig config, std::int64_t feed_bytes, const core::DeviceInfo& device) {
  const std::size_t bytes = config.smem_bytes + static_cast<std::size_t>(feed_bytes);
  if (bytes > static_cast<std::size_t>(device.smem_per_block_bytes)) return config;
  config.smem_bytes = bytes;
  config.feed_bytes = static_cast<std::size_t>(feed_bytes);
  return config;
}

}  // namespace

ProjectionConfig input_projection_config(const core::Problem& problem, const core::DeviceInfo& device, int grain) {
  const Arithmetic arithmetic = arithmetic_of(problem);
  const std::int64_t x_slabs = slabs_of(problem.c_z, arithmetic);
  if (!is_input_resident(problem))
    return choose(problem, device, grain, x_slabs, 0, kInputStorageBytes, kInChunkRows * kSlabRowBytes, most_positions(arithmetic));
  const std::int64_t chunks = ceil_div(2 * problem.c_hidden, kInChunkChannels);
  const auto bytes_of = [&](std::int64_t parts) {
    return ceil_div(chunks, parts) * x_slabs * kInChunkRows * kSlabRowBytes + problem.c_z * kNormPairBytes;
  };
  // More parts while there are warps without a tile; each repeats the tile's LayerNorm.
  const std::int64_t tiles = plane_pitch(problem.batch, problem.tokens) / kResidentInputPositions;
  const std::int64_t warps = std::int64_t{device.num_sms} * kResidentThreads / 32;
  std::int64_t parts = grain >= 0 ? std::int64_t{1} << (kMostGrain - grain) : 4 * tiles <= warps ? 4 : 2 * tiles <= warps ? 2 : 1;
  parts = std::min(parts, chunks);
  while (bytes_of(parts) > device.smem_per_block_bytes) ++parts;
  return with_feed({.is_resident = true,
                    .parts = static_cast<int>(parts),
                    .positions = kResidentInputPositions,
                    .smem_bytes = static_cast<std::size_t>(bytes_of(parts))},
                   kResidentThreads / 32 * kResidentInputPositions * problem.c_z * operand_bytes(arithmetic), device);
}

ProjectionConfig output_projection_config(const core::Problem& problem, const core::DeviceInfo& device, int grain) {
  const Arithmetic arithmetic = arithmetic_of(problem);
  const std::int64_t x_slabs = slabs_of(problem.c_z, arithmetic);
  const std::int64_t y_slabs = slabs_of(problem.c_hidden, arithmetic);
  if (!is_output_resident(problem))
    return choose(problem, device, grain, x_slabs, y_slabs, kOutputStorageBytes, kOutChunkRows * kSlabRowBytes, most_positions(arithmetic));
  const std::int64_t weight_bytes = problem.c_z * (x_slabs + y_slabs) * kSlabRowBytes;
  const std::int64_t bytes = weight_bytes + core::round_up((problem.c_z + problem.c_hidden) * kNormPairBytes, kResidentAlignmentBytes);
  return with_feed(
      {.is_resident = true, .positions = kResidentOutputPositions, .smem_bytes = static_cast<std::size_t>(bytes)},
      kResidentThreads / 32 * kResidentOutputPositions * (problem.c_z * operand_bytes(arithmetic) + problem.c_hidden * y_bytes(arithmetic)),
      device);
}

int grain_of(const ProjectionConfig& config) {
  const int value = config.is_resident ? 4 / config.parts : config.positions / 32;
  return value >= 4 ? 2 : value >= 2 ? 1 : 0;
}

ContractionConfig contraction_config(const core::Problem& problem, const core::DeviceInfo& device, int tile) {
  const Arithmetic arithmetic = arithmetic_of(problem);
  const auto tiles = [&](int rows) {
    return problem.batch * problem.c_hidden * ceil_div(problem.tokens, rows) *
           ceil_div(problem.tokens, contraction_tile(arithmetic, rows).columns);
  };
  // Small tiles where large ones would leave multiprocessors idle or be mostly padding.
  if (tile == 0) tile = problem.tokens <= 64 || tiles(128) < device.num_sms ? 64 : 128;
  const ContractionTile shape = contraction_tile(arithmetic, tile);
  ContractionConfig config{.tile = tile};
  const auto bytes_of = [&](std::int64_t stages) { return stages * (shape.rows + shape.columns) * kSlabRowBytes; };
  const auto fits = [&](std::int64_t stages) {
    return (bytes_of(stages) + 1024) * shape.blocks_per_sm <= device.smem_per_block_bytes + 1024;
  };
  config.stages = fits(4) ? 4 : fits(3) ? 3 : fits(2) ? 2 : 3;
  config.smem_bytes = static_cast<std::size_t>(bytes_of(config.stages));
  // Blocks that stay copy the first slabs of their next tile while they finish one; those of a tile each share the tiles out more evenly.
  // Three products of a slab take so long that only the latter counts. us, NVIDIA H200, C = 128: bf16, N = 256, 512 and 1024: 18.8, 101,
  // 730 and 21.3, 105, 720; three products, N = 512: 588 and 541.
  constexpr std::int64_t kMostRounds = 8;
  const std::int64_t slots = std::int64_t{device.num_sms} * shape.blocks_per_sm;
  config.blocks = arithmetic != Arithmetic::kPairs && tiles(tile) <= kMostRounds * slots ? std::min(slots, tiles(tile)) : tiles(tile);
  return config;
}

}  // namespace trimul::cuda::sm80
