// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace trimul::cuda::sm90 {

inline constexpr int kMaxSmemBytes = 232448;  // opt-in shared memory of a block, 227 KiB
inline constexpr int kRegistersPerSm = 65536;
inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kSwizzleRowBytes = 128;  // a row of a 128-byte-swizzled tile: 64 bf16
inline constexpr int kSwizzleColumns = 64;

// The widths the three kernels are built for.
inline constexpr int kPairWidth = 128;    // C_z
inline constexpr int kHiddenWidth = 128;  // C

}  // namespace trimul::cuda::sm90
