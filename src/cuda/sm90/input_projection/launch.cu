// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/sm90/input_projection/config.hpp"
#include "cuda/sm90/input_projection/kernel.cuh"

namespace trimul::cuda::sm90 {
namespace {

template <int kParts, bool kHasBias>
void add(const InputProjectionParams& params, bool overlaps, int num_sms, Chain& chain) {
  using Config = InputProjectionVariant<kParts, kHasBias>;
  const int blocks = std::min(static_cast<int>(params.tiling.num_tiles), std::max(num_sms / kParts, 1)) * kParts;
  chain.add(input_projection_kernel<Config>,
            {.blocks = blocks,
             .threads = Config::kCfg.threads(),
             .smem_bytes = sizeof(typename InputProjection<Config>::SharedStorage),
             .overlaps = overlaps},
            params);
}

template <int kParts, bool kHasBias>
void prepare() {
  using Config = InputProjectionVariant<kParts, kHasBias>;
  allow_shared_memory(input_projection_kernel<Config>, sizeof(typename InputProjection<Config>::SharedStorage));
}

}  // namespace

void launch_input_projection(const InputProjectionParams& params, int width, bool overlaps, int num_sms, Chain& chain) {
  if (width == kWideWidth) return launch_streaming_input_projection(params, overlaps, num_sms, chain);
  if (params.bias != nullptr) return (params.parts == 2 ? add<2, true> : add<1, true>)(params, overlaps, num_sms, chain);
  return (params.parts == 2 ? add<2, false> : add<1, false>)(params, overlaps, num_sms, chain);
}

void prepare_input_projection(int width) {
  if (width == kWideWidth) return prepare_streaming_input_projection();
  prepare<1, false>();
  prepare<1, true>();
  prepare<2, false>();
  prepare<2, true>();
}

}  // namespace trimul::cuda::sm90
