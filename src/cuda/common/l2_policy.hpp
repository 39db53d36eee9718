// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace trimul::cuda {

/// How long the L2 keeps what a bulk copy touches: the policies that createpolicy.fractional (sm_80) makes for a fraction of 1.
enum class L2Policy : std::uint64_t {
  kNormal = 0x1000000000000000,
  kEvictFirst = 0x12F0000000000000,  // for what nobody reads again
};

}  // namespace trimul::cuda
