// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/sm80/output_projection/config.hpp"
#include "cuda/sm80/output_projection/kernel.cuh"
#include "cuda/sm80/output_projection/resident_kernel.cuh"
#include "cuda/sm80/variants.hpp"

namespace trimul::cuda::sm80 {
namespace {

using Kernel = void (*)(OutputProjectionParams);

Kernel kernel_of(Arithmetic arithmetic, std::int64_t c_z, std::int64_t c_hidden, bool has_bias, const ProjectionConfig& config) {
  Kernel kernel = nullptr;
  if (config.is_resident) {
    with_resident_width(arithmetic, c_z, [&]<Arithmetic kArithmetic, int kWidth>() {
      if (c_hidden == 64)
        kernel = has_bias ? sm80_resident_output_projection_kernel<kArithmetic, kWidth, 64, true>
                          : sm80_resident_output_projection_kernel<kArithmetic, kWidth, 64, false>;
      else
        kernel = has_bias ? sm80_resident_output_projection_kernel<kArithmetic, kWidth, 128, true>
                          : sm80_resident_output_projection_kernel<kArithmetic, kWidth, 128, false>;
    });
    return kernel;
  }
  with_projection(arithmetic, config.positions, config.is_whole, [&]<Arithmetic kArithmetic, int kPositions, bool kIsWhole>() {
    if constexpr (kPositions <= most_positions(kArithmetic)) kernel = sm80_output_projection_kernel<kArithmetic, kPositions, kIsWhole>;
  });
  return kernel;
}

}  // namespace

void launch_output_projection(const OutputProjectionParams& params, Arithmetic arithmetic, const ProjectionConfig& config,
                              std::int64_t most_blocks, int num_sms, Chain& chain) {
  chain.add(kernel_of(arithmetic, params.x.width, params.channels, params.p_bias != nullptr, config),
            {.blocks = grid_blocks(std::min({params.num_tiles, most_blocks, config.is_resident ? std::int64_t{num_sms} : most_blocks})),
             .threads = config.is_resident ? kResidentThreads : kBlockThreads,
             .smem_bytes = config.smem_bytes,
             .overlaps = false},
            params);
}

void prepare_output_projection(Arithmetic arithmetic, std::int64_t c_z, std::int64_t c_hidden, bool has_bias,
                               const ProjectionConfig& config, std::size_t smem_bytes) {
  allow_shared_memory(kernel_of(arithmetic, c_z, c_hidden, has_bias, config), smem_bytes);
}

}  // namespace trimul::cuda::sm80
