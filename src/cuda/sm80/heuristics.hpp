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

/// Tile and shared memory of a projection. No field changes a result.
struct ProjectionConfig {
  int positions = 128;         // of a tile: 128, 64 or 32
  int stages = 3;              // of the weights' ring
  int x_slabs = 0;             // of the normalised rows of x that lie in shared memory at a time
  int y_slabs = 0;             // the same of y, in the output projection
  bool is_whole = true;        // these are all slabs of the rows
  std::size_t smem_bytes = 0;  // of a block
  friend bool operator==(const ProjectionConfig&, const ProjectionConfig&) = default;
};

/// Tiles of the contraction: squares of this many rows and columns, one or two blocks a multiprocessor.
struct ContractionConfig {
  int tile = 128;  // 128 or 64
  int stages = 3;
  std::size_t smem_bytes = 0;
  friend bool operator==(const ContractionConfig&, const ContractionConfig&) = default;
};

/// Bytes of a block for each position, beside slabs and rings: statistics and mask, or the statistics of x and of y and room for sums.
inline constexpr int kProjectionStorageBytes = 20;
inline constexpr int kOutputStorageBytes = 40;

/// Threads that a multiprocessor is to hold of a kernel, which bounds a thread's registers at 128 or 255.
template <Arithmetic kArithmetic, bool kIsWhole = true>
inline constexpr int kProjectionThreadsPerSm =
    kArithmetic == Arithmetic::kTf32x3 || kArithmetic == Arithmetic::kIeee || !kIsWhole ? 256 : 512;

std::int64_t slabs_of(std::int64_t width, Arithmetic arithmetic);

/// `positions`: of a tile, 0 for the choice by size.
ProjectionConfig input_projection_config(const core::Problem& problem, const core::DeviceInfo& device, int positions);
ProjectionConfig output_projection_config(const core::Problem& problem, const core::DeviceInfo& device, int positions);
/// `tile`: 128 or 64, 0 for the choice by size.
ContractionConfig contraction_config(const core::Problem& problem, const core::DeviceInfo& device, int tile);

/// Positions of a plane row, N and padding, and elements between planes.
std::int64_t plane_row(std::int64_t tokens);
std::int64_t plane_pitch(std::int64_t batch, std::int64_t tokens);

}  // namespace trimul::cuda::sm80
