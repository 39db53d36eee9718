// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/sm80/input_projection/config.hpp"
#include "cuda/sm80/input_projection/kernel.cuh"
#include "cuda/sm80/input_projection/resident_kernel.cuh"
#include "cuda/sm80/variants.hpp"

namespace trimul::cuda::sm80 {
namespace {

using Kernel = void (*)(InputProjectionParams);

Kernel kernel_of(Arithmetic arithmetic, std::int64_t c_z, bool has_bias, const ProjectionConfig& config) {
  Kernel kernel = nullptr;
  if (config.is_resident) {
    with_resident_width(arithmetic, c_z, [&]<Arithmetic kArithmetic, int kWidth>() {
      kernel = has_bias ? sm80_resident_input_projection_kernel<kArithmetic, kWidth, true>
                        : sm80_resident_input_projection_kernel<kArithmetic, kWidth, false>;
    });
    return kernel;
  }
  with_projection(arithmetic, config.positions, config.is_whole, [&]<Arithmetic kArithmetic, int kPositions, bool kIsWhole>() {
    if constexpr (kPositions <= most_positions(kArithmetic)) kernel = sm80_input_projection_kernel<kArithmetic, kPositions, kIsWhole>;
  });
  return kernel;
}

}  // namespace

void launch_input_projection(const InputProjectionParams& params, Arithmetic arithmetic, const ProjectionConfig& config, int num_sms,
                             Chain& chain) {
  const std::int64_t groups = std::max<std::int64_t>(1, std::min<std::int64_t>(num_sms / config.parts, params.num_tiles));
  InputProjectionParams launched = params;
  launched.groups = static_cast<std::int32_t>(groups);
  chain.add(kernel_of(arithmetic, params.x.width, params.bias != nullptr, config),
            {.blocks = config.is_resident ? static_cast<int>(groups * config.parts) : grid_blocks(params.num_tiles),
             .threads = config.is_resident ? kResidentThreads : projection_threads(arithmetic, config.positions),
             .smem_bytes = config.smem_bytes,
             .overlaps = false},
            launched);
}

void prepare_input_projection(Arithmetic arithmetic, std::int64_t c_z, bool has_bias, const ProjectionConfig& config,
                              std::size_t smem_bytes) {
  allow_shared_memory(kernel_of(arithmetic, c_z, has_bias, config), smem_bytes);
}

}  // namespace trimul::cuda::sm80
