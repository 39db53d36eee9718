// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/host/launch.hpp"
#include "cuda/sm90/triangle_contraction/config.hpp"
#include "cuda/sm90/triangle_contraction/kernel.cuh"

namespace trimul::cuda::sm90 {
namespace {

template <ContractionVariant kVariant, bool kIncoming>
constexpr std::size_t kSmemBytes = sizeof(typename TriangleContraction<kVariant, kIncoming>::SharedStorage);

template <ContractionVariant kVariant>
void launch(bool incoming, const TriangleContractionParams& params, int num_sms, void* stream) {
  constexpr TriangleContractionConfig kCfg = contraction_config(kVariant);
  const int blocks = std::min(params.total_tiles, num_sms * kCfg.blocks_per_sm);
  if (incoming)
    launch_chain_kernel(triangle_contraction_kernel<kVariant, true>, blocks, kCfg.threads(), kSmemBytes<kVariant, true>,
                        params.overlaps_projection, stream, params);
  else
    launch_chain_kernel(triangle_contraction_kernel<kVariant, false>, blocks, kCfg.threads(), kSmemBytes<kVariant, false>,
                        params.overlaps_projection, stream, params);
}

template <ContractionVariant kVariant>
void prepare() {
  allow_shared_memory(triangle_contraction_kernel<kVariant, false>, kSmemBytes<kVariant, false>);
  allow_shared_memory(triangle_contraction_kernel<kVariant, true>, kSmemBytes<kVariant, true>);
}

}  // namespace

void launch_triangle_contraction(ContractionVariant variant, bool incoming, const TriangleContractionParams& params, int num_sms,
                                 void* stream) {
  switch (variant) {
    case ContractionVariant::kSmall64x64: return launch<ContractionVariant::kSmall64x64>(incoming, params, num_sms, stream);
    case ContractionVariant::kPingPong128x128: return launch<ContractionVariant::kPingPong128x128>(incoming, params, num_sms, stream);
    case ContractionVariant::kShared192x192: return launch<ContractionVariant::kShared192x192>(incoming, params, num_sms, stream);
    case ContractionVariant::kPingPong128x192: return launch<ContractionVariant::kPingPong128x192>(incoming, params, num_sms, stream);
  }
}

void prepare_triangle_contraction() {
  prepare<ContractionVariant::kSmall64x64>();
  prepare<ContractionVariant::kPingPong128x128>();
  prepare<ContractionVariant::kShared192x192>();
  prepare<ContractionVariant::kPingPong128x192>();
}

}  // namespace trimul::cuda::sm90
