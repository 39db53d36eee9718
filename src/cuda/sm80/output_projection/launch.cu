// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/sm80/output_projection/config.hpp"
#include "cuda/sm80/output_projection/kernel.cuh"
#include "cuda/sm80/variants.hpp"

namespace trimul::cuda::sm80 {

void launch_output_projection(const OutputProjectionParams& params, Arithmetic arithmetic, const ProjectionConfig& config,
                              std::int64_t most_blocks, Chain& chain) {
  with_projection(arithmetic, config.positions, config.is_whole, [&]<Arithmetic kArithmetic, int kPositions, bool kIsWhole>() {
    chain.add(sm80_output_projection_kernel<kArithmetic, kPositions, kIsWhole>,
              {.blocks = grid_blocks(std::min(params.num_tiles, most_blocks)),
               .threads = 2 * kPositions,
               .smem_bytes = config.smem_bytes,
               .overlaps = false},
              params);
  });
}

void prepare_output_projection(Arithmetic arithmetic, const ProjectionConfig& config) {
  with_projection(arithmetic, config.positions, config.is_whole, [&]<Arithmetic kArithmetic, int kPositions, bool kIsWhole>() {
    allow_shared_memory(sm80_output_projection_kernel<kArithmetic, kPositions, kIsWhole>, config.smem_bytes);
  });
}

}  // namespace trimul::cuda::sm80
