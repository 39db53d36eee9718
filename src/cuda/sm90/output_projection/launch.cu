// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/sm90/output_projection/config.hpp"
#include "cuda/sm90/output_projection/kernel.cuh"

namespace trimul::cuda::sm90 {
namespace {

template <typename Config>
void add(const OutputProjectionParams& params, bool overlaps, int num_sms, Chain& chain) {
  const int blocks = std::min(static_cast<int>(params.tiling.num_tiles), num_sms);
  chain.add(output_projection_kernel<Config>,
            {.blocks = blocks,
             .threads = Config::kCfg.threads(),
             .smem_bytes = sizeof(typename OutputProjection<Config>::SharedStorage),
             .overlaps = overlaps},
            params);
}

}  // namespace

void launch_output_projection(const OutputProjectionParams& params, const OutputProjectionForm& form, bool overlaps, int num_sms,
                              Chain& chain) {
  if (form.width == kWideWidth) return launch_streaming_output_projection(params, form, overlaps, num_sms, chain);
  if (form.has_residual)
    add<OutputProjectionResidual>(params, overlaps, num_sms, chain);
  else
    add<OutputProjectionPlain>(params, overlaps, num_sms, chain);
}

void prepare_output_projection(int width) {
  if (width == kWideWidth) return prepare_streaming_output_projection();
  allow_shared_memory(output_projection_kernel<OutputProjectionPlain>, sizeof(OutputProjection<OutputProjectionPlain>::SharedStorage));
  allow_shared_memory(output_projection_kernel<OutputProjectionResidual>,
                      sizeof(OutputProjection<OutputProjectionResidual>::SharedStorage));
}

}  // namespace trimul::cuda::sm90
