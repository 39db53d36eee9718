// SPDX-License-Identifier: Apache-2.0
// The three stages of one sample on the CPU.
//
//   input_projection      x -> a, b: per tile of pairs, LayerNorm, one product per group of channels, gate, mask
//   triangle_contraction  a, b -> y: one product per channel; y replaces a, so that two planes a channel are all the scratch
//   output_projection     y, x -> out: per tile of pairs, both LayerNorms, two products, gate, residual
//
// The products are written W z^T, so that a and b come out channel-major and no pass transposes anything. Tiles never reach across
// samples and do not depend on the number of threads: the result is the same, bitwise, for every team size and batch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/implementation.hpp"
#include "cpu/packed_weights.hpp"
#include "cpu/row_kernels.hpp"

namespace trimul::cpu {

/// Pairs per tile of the two projections: the tile's rows, its products and one group of weights share a 1 MiB L2.
inline constexpr std::int64_t kTilePairs = 256;

/// Where things lie in the workspace, in floats from its start: a and b of one sample, then a part that the stages use in turn, cut into
/// private pieces of a thread. A channel's y takes one piece of N * N and no more threads than channels run there, so that the whole never
/// exceeds three planes and the tiles.
struct WorkspaceLayout {
  WorkspaceLayout(const core::Problem& problem, int most_threads);

  int num_threads;                     // team of the two projections: never more than there is work for
  int num_channel_threads;             // team of the contraction, at most C
  std::int64_t plane_floats;           // C * N * N, padded: one of a, b
  std::int64_t tile_thread_floats;     // a thread's piece in the two projections
  std::int64_t channel_thread_floats;  // a thread's piece in the contraction
  std::int64_t gemm_floats;            // at the end of each piece
  [[nodiscard]] std::size_t bytes() const;
};

class Stages {
 public:
  /// References are kept; `sample` picks the part of x, mask and out.
  Stages(const core::Problem& problem, const WorkspaceLayout& layout, const CpuPackedWeights& weights, const core::ExecuteArgs& args,
         std::int64_t sample);

  void input_projection() const;
  void triangle_contraction() const;
  void output_projection() const;

 private:
  void project_tile(std::int64_t first_pair, std::int64_t count, float* scratch) const;
  void contract_channel(std::int64_t channel, float* scratch) const;
  void finish_tile(std::int64_t first_pair, std::int64_t count, float* scratch) const;
  const float* load_x(std::int64_t first_pair, std::int64_t count, float* buffer) const;
  void load_mask(std::int64_t first_pair, std::int64_t count, float* out) const;

  const core::Problem& problem_;
  const WorkspaceLayout& layout_;
  const CpuPackedWeights& weights_;
  const core::ExecuteArgs& args_;
  const RowKernels& rows_;
  std::int64_t sample_;
  float* a_;        // [C, N, N]; y after the contraction
  float* b_;        // [C, N, N]
  float* scratch_;  // pieces of threads
};

}  // namespace trimul::cpu
