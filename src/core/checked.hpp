// SPDX-License-Identifier: Apache-2.0
// 64-bit arithmetic on sizes that may come from a hostile file.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>

namespace trimul::core {

/// Product of non-negative factors, nothing when it does not fit into 63 bits. A zero factor makes the product zero.
inline std::optional<std::int64_t> checked_product(std::initializer_list<std::int64_t> factors) {
  for (const std::int64_t factor : factors)
    if (factor == 0) return 0;
  std::int64_t product = 1;
  for (const std::int64_t factor : factors)
    if (__builtin_mul_overflow(product, factor, &product)) return std::nullopt;
  return product;
}

constexpr std::int64_t ceil_div(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit;
}
constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return ceil_div(value, unit) * unit;
}

/// Workspace buffers start at, and sub-buffers are padded to, this many bytes.
inline constexpr std::int64_t kWorkspaceAlignmentBytes = 256;

}  // namespace trimul::core
