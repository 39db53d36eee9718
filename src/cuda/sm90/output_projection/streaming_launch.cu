// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/sm90/output_projection/config.hpp"
#include "cuda/sm90/output_projection/streaming_kernel.cuh"

namespace trimul::cuda::sm90 {
namespace {

template <bool kHasResidual, bool kHasBias>
void add(const OutputProjectionParams& params, bool overlaps, int num_sms, Chain& chain) {
  chain.add(streaming_output_projection_kernel<kHasResidual, kHasBias>,
            {.blocks = std::min(static_cast<int>(params.tiling.num_tiles), num_sms),
             .threads = (kStreamingOutputWarpgroups + 1) * kWarpgroupThreads,
             .smem_bytes = sizeof(typename StreamingOutputProjection<kHasResidual, kHasBias>::SharedStorage),
             .overlaps = overlaps},
            params);
}

template <bool kHasResidual, bool kHasBias>
void prepare() {
  allow_shared_memory(streaming_output_projection_kernel<kHasResidual, kHasBias>,
                      sizeof(typename StreamingOutputProjection<kHasResidual, kHasBias>::SharedStorage));
}

}  // namespace

void launch_streaming_output_projection(const OutputProjectionParams& params, const OutputProjectionForm& form, bool overlaps, int num_sms,
                                        Chain& chain) {
  if (form.has_bias) return (form.has_residual ? add<true, true> : add<false, true>)(params, overlaps, num_sms, chain);
  return (form.has_residual ? add<true, false> : add<false, false>)(params, overlaps, num_sms, chain);
}

void prepare_streaming_output_projection() {
  prepare<false, false>();
  prepare<false, true>();
  prepare<true, false>();
  prepare<true, true>();
}

}  // namespace trimul::cuda::sm90
