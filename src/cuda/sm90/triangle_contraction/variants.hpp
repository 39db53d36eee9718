// SPDX-License-Identifier: Apache-2.0
// The contraction's tile variants: plain data, so that heuristics and their tests compile without nvcc.
#pragma once

#include "cuda/sm90/limits.hpp"

namespace trimul::cuda::sm90 {

struct TriangleContractionConfig {
  int consumer_warpgroups = 2;
  int row_blocks = 2;     // blocks of 64 rows a warpgroup multiplies at a time
  int tile_n = 128;       // columns
  int narrow_tile_n = 0;  // a second width for the columns that are left; 0: none
  int stages = 6;         // of 64 along k
  int store_buffers = 2;  // of 64 x 64 results, per warpgroup
  int blocks_per_sm = 1;
  bool ping_pong = true;  // each warpgroup has its own tile and they take turns on the tensor cores; else they share one

  constexpr int tile_m() const { return (ping_pong ? 1 : consumer_warpgroups) * row_blocks * 64; }
  constexpr int a_bytes() const { return tile_m() * kSwizzleRowBytes; }
  constexpr int b_bytes() const { return tile_n * kSwizzleRowBytes; }
  constexpr int store_buffer_bytes() const { return 64 * kSwizzleRowBytes; }
  constexpr int smem_bytes() const {
    const int barriers = 2 * stages + consumer_warpgroups;
    const int bytes = stages * (a_bytes() + b_bytes()) + consumer_warpgroups * store_buffers * store_buffer_bytes() + 8 * barriers;
    return (bytes + 1023) / 1024 * 1024;  // swizzled tiles are 1024-byte aligned
  }
  constexpr int producer_threads() const { return blocks_per_sm > 1 ? 32 : kWarpgroupThreads; }
  constexpr int threads() const { return kWarpgroupThreads * consumer_warpgroups + producer_threads(); }
  // Registers: the launch bound gives every thread the same; setmaxnreg moves the producer warpgroup's to the consumers.
  constexpr bool reallocates_registers() const { return producer_threads() == kWarpgroupThreads; }
  constexpr int launch_registers() const { return kRegistersPerSm / blocks_per_sm / threads() / 8 * 8; }
  constexpr int producer_registers() const { return 40; }
  constexpr int consumer_registers() const {
    const int share = (launch_registers() * (consumer_warpgroups + 1) - producer_registers()) / consumer_warpgroups / 8 * 8;
    return share > 240 ? 240 : share;
  }
};

/// Names say tile_m x tile_n and how the warpgroups divide the work.
enum class ContractionVariant : int {
  kSmall64x64 = 0,   // two blocks a multiprocessor, for planes of one tile
  kPingPong128x128,  // the work horse
  kShared192x192,    // one tile for three warpgroups: N of 129 to 192 in one tile
  kPingPong128x192,  // with narrow tiles of 128: large N, and N that 128 divides badly
};
inline constexpr int kNumContractionVariants = 4;

constexpr TriangleContractionConfig contraction_config(ContractionVariant variant) {
  switch (variant) {
    case ContractionVariant::kSmall64x64: return {.row_blocks = 1, .tile_n = 64, .stages = 5, .store_buffers = 1, .blocks_per_sm = 2};
    case ContractionVariant::kPingPong128x128: return {};
    case ContractionVariant::kShared192x192:
      return {.consumer_warpgroups = 3, .row_blocks = 1, .tile_n = 192, .stages = 3, .store_buffers = 3, .ping_pong = false};
    case ContractionVariant::kPingPong128x192: return {.tile_n = 192, .narrow_tile_n = 128, .stages = 5, .store_buffers = 1};
  }
  return {};
}

constexpr const char* contraction_variant_name(ContractionVariant variant) {
  switch (variant) {
    case ContractionVariant::kSmall64x64: return "small_64x64";
    case ContractionVariant::kPingPong128x128: return "ping_pong_128x128";
    case ContractionVariant::kShared192x192: return "shared_192x192";
    case ContractionVariant::kPingPong128x192: return "ping_pong_128x192";
  }
  return "unknown";
}

}  // namespace trimul::cuda::sm90
