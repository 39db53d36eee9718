// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace trimul::cuda::sm90 {

inline constexpr int kMaxSmemBytes = 232448;  // opt-in shared memory of a block, 227 KiB
inline constexpr int kRegistersPerSm = 65536;
inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kSwizzleRowBytes = 128;  // a row of a 128-byte-swizzled tile: 64 bf16
inline constexpr int kSwizzleColumns = 64;

// The widths the projections are built for: at these all weights of a projection stay in shared memory,
inline constexpr int kPairWidth = 128;    // C_z
inline constexpr int kHiddenWidth = 128;  // C
// at this one, of both C_z and C, they stream through it.
inline constexpr int kWideWidth = 256;

}  // namespace trimul::cuda::sm90
