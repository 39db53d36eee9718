// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/sm80/output_projection/config.hpp"
#include "cuda/sm80/output_projection/kernel.cuh"
#include "cuda/sm80/output_projection/resident_kernel.cuh"
#include "cuda/sm80/variants.hpp"

namespace trimul::cuda::sm80 {
namespace {

using Kernel = void (*)(OutputProjectionParams);

template <Arithmetic kArithmetic, int kWidth, int kHidden>
Kernel resident_kernel_of(bool has_bias, bool is_fed) {
  if (has_bias)
    return is_fed ? sm80_resident_output_projection_kernel<kArithmetic, kWidth, kHidden, true, true>
                  : sm80_resident_output_projection_kernel<kArithmetic, kWidth, kHidden, true, false>;
  return is_fed ? sm80_resident_output_projection_kernel<kArithmetic, kWidth, kHidden, false, true>
                : sm80_resident_output_projection_kernel<kArithmetic, kWidth, kHidden, false, false>;
}

Kernel kernel_of(Arithmetic arithmetic, std::int64_t c_z, std::int64_t c_hidden, bool has_bias, const ProjectionConfig& config,
                 bool is_fed) {
  Kernel kernel = nullptr;
  if (config.is_resident) {
    with_resident_width(arithmetic, c_z, [&]<Arithmetic kArithmetic, int kWidth>() {
      kernel = c_hidden == 64 ? resident_kernel_of<kArithmetic, kWidth, 64>(has_bias, is_fed)
                              : resident_kernel_of<kArithmetic, kWidth, 128>(has_bias, is_fed);
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
                              std::int64_t most_blocks, int num_sms, bool overlaps, Chain& chain) {
  const bool is_fed = config.feed_bytes > 0 && params.x.is_vectorised && params.out.is_vectorised;
  const std::int64_t blocks = std::min(params.num_tiles, config.is_resident ? std::int64_t{num_sms} : most_blocks);
  chain.add(kernel_of(arithmetic, params.x.width, params.channels, params.p_bias != nullptr, config, is_fed),
            {.blocks = grid_blocks(blocks),
             .threads = config.is_resident ? kResidentThreads : projection_threads(arithmetic, config.positions),
             .smem_bytes = config.smem_bytes,
             .overlaps = overlaps},
            params);
}

bool prepare_output_projection(Arithmetic arithmetic, std::int64_t c_z, std::int64_t c_hidden, bool has_bias,
                               const ProjectionConfig& config, std::size_t smem_bytes) {
  const Kernel kernel = kernel_of(arithmetic, c_z, c_hidden, has_bias, config, false);
  allow_shared_memory(kernel, smem_bytes);
  if (config.feed_bytes > 0) allow_shared_memory(kernel_of(arithmetic, c_z, c_hidden, has_bias, config, true), smem_bytes);
  return has_programmatic_launch(reinterpret_cast<const void*>(kernel));
}

}  // namespace trimul::cuda::sm80
