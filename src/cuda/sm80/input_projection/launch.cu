// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/sm80/input_projection/config.hpp"
#include "cuda/sm80/input_projection/kernel.cuh"
#include "cuda/sm80/variants.hpp"

namespace trimul::cuda::sm80 {

void launch_input_projection(const InputProjectionParams& params, Arithmetic arithmetic, const ProjectionConfig& config, Chain& chain) {
  with_projection(arithmetic, config.positions, config.is_whole, [&]<Arithmetic kArithmetic, int kPositions, bool kIsWhole>() {
    chain.add(sm80_input_projection_kernel<kArithmetic, kPositions, kIsWhole>,
              {.blocks = grid_blocks(params.num_tiles), .threads = 2 * kPositions, .smem_bytes = config.smem_bytes, .overlaps = false}, params);
  });
}

void prepare_input_projection(Arithmetic arithmetic, const ProjectionConfig& config) {
  with_projection(arithmetic, config.positions, config.is_whole, [&]<Arithmetic kArithmetic, int kPositions, bool kIsWhole>() {
    allow_shared_memory(sm80_input_projection_kernel<kArithmetic, kPositions, kIsWhole>, config.smem_bytes);
  });
}

}  // namespace trimul::cuda::sm80
