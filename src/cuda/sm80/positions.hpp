// SPDX-License-Identifier: Apache-2.0
// Tiles of positions of the two projections. A plane row holds the n_pad >= N positions of one (sample, token); position p of a plane is
// the pair of row p / n_pad = b N + i and column p % n_pad. Columns from N on are padding. Counts of positions are 64 bits wide.
#pragma once

#include <cstdint>

#include "cuda/common/fast_division.hpp"

namespace trimul::cuda::sm80 {

struct Positions {
  std::int64_t rows = 0;      // B N
  std::int64_t tokens = 0;    // N
  std::int64_t n_pad = 0;     // a multiple of 8
  std::int64_t pitch = 0;     // elements between planes: B N n_pad, up to a multiple of 128
  FastDivisor row_positions;  // n_pad

  struct Pair {
    std::int64_t row;  // b N + i
    std::int32_t column;
    bool is_valid;
    /// Its place among the pairs of x, of which a row has `row_pairs`: N.
    [[nodiscard]] TRIMUL_HOST_DEVICE std::int64_t index(std::int64_t row_pairs) const { return row * row_pairs + column; }
  };

  /// Where a tile begins.
  struct Start {
    std::int64_t row;
    std::uint32_t column;
  };
  [[nodiscard]] TRIMUL_HOST_DEVICE Start start(std::int64_t first_position) const {
    const std::int64_t row = first_position / n_pad;
    return {row, static_cast<std::uint32_t>(first_position - row * n_pad)};
  }
  /// The pair `offset` (below 2^16) positions behind the beginning of a tile.
  [[nodiscard]] TRIMUL_HOST_DEVICE Pair pair(const Start& begin, int offset) const {
    const auto [rows_on, column] = row_positions.divide(begin.column + static_cast<std::uint32_t>(offset));
    const std::int64_t row = begin.row + rows_on;
    return {row, static_cast<std::int32_t>(column), row < rows && static_cast<std::int64_t>(column) < tokens};
  }
};

}  // namespace trimul::cuda::sm80
