// SPDX-License-Identifier: Apache-2.0
// The ordered implementation list. Its order is the policy: tried top to bottom, the first that accepts serves the problem.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/implementation.hpp"

namespace trimul::core {

/// All implementations, best first, those this build lacks included (they decline everything and say so).
std::span<const Implementation> implementations();

/// By name; null for an unknown one.
const Implementation* find_implementation_or_null(std::string_view name);
/// By name; throws INVALID_ARGUMENT listing the known names.
const Implementation& find_implementation(std::string_view name);

struct Declined {
  std::string_view name;
  std::string reason;
};

struct Selection {
  const Implementation* chosen = nullptr;  // null when nothing serves
  std::vector<Declined> declined;          // those tried before it, in order
};

/// First acceptor of `list`.
Selection select_implementation(std::span<const Implementation> list, const Problem& problem, const DeviceInfo& device);

}  // namespace trimul::core
