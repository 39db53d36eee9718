// SPDX-License-Identifier: Apache-2.0
// From run-time choices to compiled kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/error.hpp"
#include "cuda/sm80/arithmetic.hpp"

namespace trimul::cuda::sm80 {

/// Calls visit.operator()<kArithmetic, kSize>(): `size` is one of kSizes.
template <int... kSizes, typename Visit>
void with_size(Arithmetic arithmetic, int size, Visit&& visit) {
  const auto with_arithmetic = [&]<int kSize>() {
    switch (arithmetic) {
      case Arithmetic::kBf16: return visit.template operator()<Arithmetic::kBf16, kSize>();
      case Arithmetic::kFp16: return visit.template operator()<Arithmetic::kFp16, kSize>();
      case Arithmetic::kScaled: return visit.template operator()<Arithmetic::kScaled, kSize>();
      case Arithmetic::kPairs: return visit.template operator()<Arithmetic::kPairs, kSize>();
      case Arithmetic::kIeee: return visit.template operator()<Arithmetic::kIeee, kSize>();
    }
  };
  const bool found = ((size == kSizes ? (with_arithmetic.template operator()<kSizes>(), true) : false) || ...);
  if (!found) throw core::Error(core::StatusCode::kInternal, core::text("no kernel was compiled for tiles of ", size));
}

/// The same for the projections: visit.operator()<kArithmetic, kPositions, kIsWhole>(). `is_whole`: all slabs of a tile's rows lie in
/// shared memory at once.
template <typename Visit>
void with_projection(Arithmetic arithmetic, int positions, bool is_whole, Visit&& visit) {
  if (is_whole)
    with_size<128, 64, 32>(arithmetic, positions,
                           [&]<Arithmetic kArithmetic, int kPositions>() { visit.template operator()<kArithmetic, kPositions, true>(); });
  else
    with_size<32>(arithmetic, positions,
                  [&]<Arithmetic kArithmetic, int kPositions>() { visit.template operator()<kArithmetic, kPositions, false>(); });
}

/// For the resident projections: visit.operator()<kArithmetic, kWidth>().
template <typename Visit>
void with_resident_width(Arithmetic arithmetic, std::int64_t width, Visit&& visit) {
  const auto with_width = [&]<Arithmetic kArithmetic>() {
    if (width == 64) return visit.template operator()<kArithmetic, 64>();
    if (width == 128) return visit.template operator()<kArithmetic, 128>();
    throw core::Error(core::StatusCode::kInternal, core::text("no resident kernel was compiled for a width of ", width));
  };
  if (arithmetic == Arithmetic::kBf16) return with_width.template operator()<Arithmetic::kBf16>();
  if (arithmetic == Arithmetic::kFp16) return with_width.template operator()<Arithmetic::kFp16>();
  throw core::Error(core::StatusCode::kInternal, "resident kernels are for 16-bit operands");
}

/// Blocks of a grid that strides over `tiles`.
inline int grid_blocks(std::int64_t tiles) {
  return static_cast<int>(std::min<std::int64_t>(tiles, std::numeric_limits<std::int32_t>::max()));
}

}  // namespace trimul::cuda::sm80
