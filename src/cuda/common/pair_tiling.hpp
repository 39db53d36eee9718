// SPDX-License-Identifier: Apache-2.0
// How the pairs of a problem lie in channel-major planes and in tiles of 64 positions. Host and device.
//
// A plane row holds the n_pad >= N positions of one (sample, token); position p of a plane is pair (row p / n_pad, column p % n_pad),
// row = b N + i, and columns from N on are padding that nobody reads. n_pad is a multiple of 8, so that a unit of 8 positions never
// crosses a row. Where n_pad = N, positions and pairs coincide and the pair tensor is one flat run of rows.
#pragma once

#include <cstdint>

#include "cuda/common/fast_division.hpp"

namespace trimul::cuda {

inline constexpr int kTilePositions = 64;
inline constexpr int kUnitPositions = 8;

/// Padded row length. Rows start on 128-byte lines above N = 256 (elsewhere they cost the contraction 7 to 20 %). Below, a multiple of 8
/// needs no padding; where there must be some, it is up to 64 as well, so that a tile stays in one row: one copy instead of 16, whole
/// lines. Up to 64 the few positions are what counts.
constexpr std::int64_t padded_tokens(std::int64_t tokens) {
  const bool fills_lines = tokens > 256 || (tokens > 64 && tokens % 8 != 0);
  const std::int64_t unit = fills_lines ? 64 : 8;
  return (tokens + unit - 1) / unit * unit;
}

/// How a tile of x or out is copied between its 64 (or fewer) rows in memory and 64 rows of shared memory.
enum class TileCopy : std::int32_t {
  kFlat,   // n_pad = N: 64 consecutive rows of [B N N, C_z]
  kRow,    // n_pad % 64 = 0: 64 consecutive columns of one (b, i); those past N are clipped
  kUnits,  // else: 8 units of 8 columns, each in its own (b, i)
};

struct PairTiling {
  std::uint32_t tokens = 0;       // N
  std::uint32_t rows = 0;         // B * N
  std::uint32_t num_tiles = 0;    // of 64 positions
  FastDivisor units_per_row;      // n_pad / 8
  FastDivisor tokens_per_sample;  // N
  TileCopy copy = TileCopy::kFlat;

  struct Unit {
    std::uint32_t row, column;
  };
  /// Row and first column of the k-th unit of 8 positions of a tile.
  [[nodiscard]] TRIMUL_HOST_DEVICE Unit unit(std::uint32_t tile, std::uint32_t k) const {
    const auto [row, column] = units_per_row.divide(tile * (kTilePositions / kUnitPositions) + k);
    return {row, column * kUnitPositions};
  }
};

}  // namespace trimul::cuda
