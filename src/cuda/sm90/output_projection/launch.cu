// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/host/launch.hpp"
#include "cuda/sm90/output_projection/config.hpp"
#include "cuda/sm90/output_projection/kernel.cuh"

namespace trimul::cuda::sm90 {
namespace {

template <typename Config>
void launch(const OutputProjectionParams& params, bool overlaps, int num_sms, void* stream) {
  const int blocks = std::min(static_cast<int>(params.tiling.num_tiles), num_sms);
  launch_chain_kernel(output_projection_kernel<Config>, blocks, Config::kCfg.threads(),
                      sizeof(typename OutputProjection<Config>::SharedStorage), overlaps, stream, params);
}

}  // namespace

void launch_output_projection(const OutputProjectionParams& params, bool residual, bool overlaps, int num_sms, void* stream) {
  if (residual)
    launch<OutputProjectionResidual>(params, overlaps, num_sms, stream);
  else
    launch<OutputProjectionPlain>(params, overlaps, num_sms, stream);
}

void prepare_output_projection() {
  allow_shared_memory(output_projection_kernel<OutputProjectionPlain>, sizeof(OutputProjection<OutputProjectionPlain>::SharedStorage));
  allow_shared_memory(output_projection_kernel<OutputProjectionResidual>,
                      sizeof(OutputProjection<OutputProjectionResidual>::SharedStorage));
}

}  // namespace trimul::cuda::sm90
