// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm80/triangle_contraction/config.hpp"
#include "cuda/sm80/triangle_contraction/kernel.cuh"
#include "cuda/sm80/variants.hpp"

namespace trimul::cuda::sm80 {
namespace {

using Kernel = void (*)(TriangleContractionParams);

Kernel kernel_of(Arithmetic arithmetic, bool incoming, int tile) {
  Kernel kernel = nullptr;
  with_size<128, 64>(arithmetic, tile, [&]<Arithmetic kArithmetic, int kTile>() {
    kernel =
        incoming ? sm80_triangle_contraction_kernel<kArithmetic, true, kTile> : sm80_triangle_contraction_kernel<kArithmetic, false, kTile>;
  });
  return kernel;
}

}  // namespace

void launch_triangle_contraction(const TriangleContractionParams& params, Arithmetic arithmetic, bool incoming,
                                 const ContractionConfig& config, Chain& chain) {
  chain.add(kernel_of(arithmetic, incoming, config.tile),
            {.blocks = grid_blocks(config.blocks), .threads = kContractionThreads, .smem_bytes = config.smem_bytes, .overlaps = false},
            params);
}

void prepare_triangle_contraction(Arithmetic arithmetic, bool incoming, const ContractionConfig& config, std::size_t smem_bytes) {
  allow_shared_memory(kernel_of(arithmetic, incoming, config.tile), smem_bytes);
}

}  // namespace trimul::cuda::sm80
