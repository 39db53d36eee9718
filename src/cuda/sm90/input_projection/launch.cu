// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/host/launch.hpp"
#include "cuda/sm90/input_projection/config.hpp"
#include "cuda/sm90/input_projection/kernel.cuh"

namespace trimul::cuda::sm90 {
namespace {

template <typename Config>
void launch(const InputProjectionParams& params, int blocks, void* stream) {
  launch_chain_kernel(input_projection_kernel<Config>, blocks, Config::kCfg.threads(),
                      sizeof(typename InputProjection<Config>::SharedStorage), true, stream, params);
}

}  // namespace

int input_projection_blocks(const InputProjectionParams& params, int num_sms) {
  const auto groups = static_cast<int>(params.tiling.num_tiles / InputProjectionPlain::kCfg.store_warpgroups);
  return std::min(groups, num_sms);
}

void launch_input_projection(const InputProjectionParams& params, int num_sms, void* stream) {
  const int blocks = input_projection_blocks(params, num_sms);
  if (params.bias != nullptr)
    launch<InputProjectionBiased>(params, blocks, stream);
  else
    launch<InputProjectionPlain>(params, blocks, stream);
}

void prepare_input_projection() {
  allow_shared_memory(input_projection_kernel<InputProjectionPlain>, sizeof(InputProjection<InputProjectionPlain>::SharedStorage));
  allow_shared_memory(input_projection_kernel<InputProjectionBiased>, sizeof(InputProjection<InputProjectionBiased>::SharedStorage));
}

}  // namespace trimul::cuda::sm90
