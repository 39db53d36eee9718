// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/sm90/triangle_contraction/config.hpp"
#include "cuda/sm90/triangle_contraction/kernel.cuh"

namespace trimul::cuda::sm90 {
namespace {

template <ContractionVariant kVariant, bool kIncoming>
constexpr std::size_t kSmemBytes = sizeof(typename TriangleContraction<kVariant, kIncoming>::SharedStorage);

template <ContractionVariant kVariant>
void add(bool incoming, const TriangleContractionParams& params, int num_sms, Chain& chain) {
  constexpr TriangleContractionConfig kCfg = contraction_config(kVariant);
  ChainLaunch launch{.blocks = std::min(params.total_tiles, num_sms * kCfg.blocks_per_sm),
                     .threads = kCfg.threads(),
                     .smem_bytes = kSmemBytes<kVariant, false>,
                     .overlaps = params.overlaps_projection};
  if (!incoming) return chain.add(triangle_contraction_kernel<kVariant, false>, launch, params);
  launch.smem_bytes = kSmemBytes<kVariant, true>;
  chain.add(triangle_contraction_kernel<kVariant, true>, launch, params);
}

template <ContractionVariant kVariant>
void prepare() {
  allow_shared_memory(triangle_contraction_kernel<kVariant, false>, kSmemBytes<kVariant, false>);
  allow_shared_memory(triangle_contraction_kernel<kVariant, true>, kSmemBytes<kVariant, true>);
}

}  // namespace

void launch_triangle_contraction(ContractionVariant variant, bool incoming, const TriangleContractionParams& params, int num_sms,
                                 Chain& chain) {
  switch (variant) {
    case ContractionVariant::kSmall64x64: return add<ContractionVariant::kSmall64x64>(incoming, params, num_sms, chain);
    case ContractionVariant::kPingPong128x128: return add<ContractionVariant::kPingPong128x128>(incoming, params, num_sms, chain);
    case ContractionVariant::kShared192x192: return add<ContractionVariant::kShared192x192>(incoming, params, num_sms, chain);
    case ContractionVariant::kPingPong128x192: return add<ContractionVariant::kPingPong128x192>(incoming, params, num_sms, chain);
  }
}

void prepare_triangle_contraction() {
  prepare<ContractionVariant::kSmall64x64>();
  prepare<ContractionVariant::kPingPong128x128>();
  prepare<ContractionVariant::kShared192x192>();
  prepare<ContractionVariant::kPingPong128x192>();
}

}  // namespace trimul::cuda::sm90
