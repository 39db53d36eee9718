// SPDX-License-Identifier: Apache-2.0
// Choices of the portable implementation: pure functions of the problem and the device, compiled without nvcc and tested on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/device.hpp"
#include "core/problem.hpp"
#include "cuda/sm80/arithmetic.hpp"

namespace trimul::cuda::sm80 {

/// How a problem's products are computed. Only for what can_run accepts.
Arithmetic arithmetic_of(const core::Problem& problem);

/// Tile and shared memory of a projection. `is_resident` follows from problem and device alone; of the others none changes a result.
struct ProjectionConfig {
  bool is_resident = false;    // all weights of a block stay in shared memory (resident_kernel.cuh); stages and slabs do not count then
  int parts = 1;               // blocks that share the channels of a tile of the resident input projection
  int positions = 128;         // of a tile: 128, 64 or 32
  int stages = 3;              // of the weights' ring
  int x_slabs = 0;             // of the normalised rows of x that lie in shared memory at a time
  int y_slabs = 0;             // the same of y, in the output projection
  bool is_whole = true;        // these are all slabs of the rows
  std::size_t smem_bytes = 0;  // of a block
  std::size_t feed_bytes = 0;  // of these, resident: for the rows of every warp's next tile; 0 where there is no room
  friend bool operator==(const ProjectionConfig&, const ProjectionConfig&) = default;
};

/// Positions of the largest tile of the projections: three products hold two numbers for each of fp32's, and more accumulators would not
/// leave enough registers.
constexpr int most_positions(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::kPairs ? 64 : 128;
}

/// A block of the contraction: its tile, and the part of it that a warp has.
struct ContractionTile {
  int rows, columns;
  int warp_rows, warp_columns;
  int blocks_per_sm;
};

/// `rows`: 128 or 64. A square, but for three products, whose parts take the registers of half of the sums.
constexpr ContractionTile contraction_tile(Arithmetic arithmetic, int rows) {
  const int columns = arithmetic == Arithmetic::kPairs ? 64 : rows;
  return {rows, columns, rows / 2, columns / 2, rows == 128 ? 2 : arithmetic == Arithmetic::kPairs ? 3 : 4};
}

struct ContractionConfig {
  int tile = 128;  // rows of a tile: 128 or 64
  int stages = 3;
  std::int64_t blocks = 0;  // of the grid: one for every tile, or as many as run at a time
  std::size_t smem_bytes = 0;
  friend bool operator==(const ContractionConfig&, const ContractionConfig&) = default;
};

// Positions that a warp of the resident kernels has at a time.
inline constexpr int kResidentInputPositions = 32;
inline constexpr int kResidentOutputPositions = 16;
inline constexpr int kResidentAlignmentBytes = 1024;  // of the weights behind the norms

/// Bytes of a block for each position, beside slabs and rings: statistics and mask, or statistics and room for sums.
inline constexpr int kInputStorageBytes = 20;
inline constexpr int kOutputStorageBytes = 64;

std::int64_t slabs_of(std::int64_t width, Arithmetic arithmetic);

/// Blocks that a multiprocessor is to hold of a projection's kernel, which bounds a thread's registers at 255, 168 or 128.
constexpr int blocks_per_sm(Arithmetic arithmetic, int positions, bool is_whole) {
  if (positions > 32 || !is_whole) return 2;
  return operand_bytes(arithmetic) == 4 ? 3 : 4;
}

// Division of a projection's work, from fine to coarse: tiles of at most 32, 64 or 128 positions, the largest that fits; of the resident
// input projection 4, 2 or 1 parts, or more where those do not fit.
inline constexpr int kMostGrain = 2;
constexpr int positions_of_grain(int grain) {
  return 32 << grain;
}
/// `grain`: 0 to kMostGrain, or -1 for the choice by size.
ProjectionConfig input_projection_config(const core::Problem& problem, const core::DeviceInfo& device, int grain);
ProjectionConfig output_projection_config(const core::Problem& problem, const core::DeviceInfo& device, int grain);
/// The grain that a configuration has.
int grain_of(const ProjectionConfig& config);
/// `tile`: 128 or 64, 0 for the choice by size.
ContractionConfig contraction_config(const core::Problem& problem, const core::DeviceInfo& device, int tile);

/// Can the weights of a projection stay in shared memory, and its rows in registers?
bool is_input_resident(const core::Problem& problem);
bool is_output_resident(const core::Problem& problem);

/// Positions of a plane row, N and padding, and elements between planes.
std::int64_t plane_row(std::int64_t tokens);
std::int64_t plane_pitch(std::int64_t batch, std::int64_t tokens);

}  // namespace trimul::cuda::sm80
