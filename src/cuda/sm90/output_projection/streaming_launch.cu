// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/sm90/output_projection/config.hpp"
#include "cuda/sm90/output_projection/streaming_kernel.cuh"

namespace trimul::cuda::sm90 {
namespace {

template <bool kHasResidual>
void add(const OutputProjectionParams& params, bool overlaps, int num_sms, Chain& chain) {
  chain.add(streaming_output_projection_kernel<kHasResidual>,
            {.blocks = std::min(static_cast<int>(params.tiling.num_tiles), num_sms),
             .threads = (kStreamingOutputWarpgroups + 1) * kWarpgroupThreads,
             .smem_bytes = sizeof(typename StreamingOutputProjection<kHasResidual>::SharedStorage),
             .overlaps = overlaps},
            params);
}

}  // namespace

void launch_streaming_output_projection(const OutputProjectionParams& params, bool residual, bool overlaps, int num_sms, Chain& chain) {
  (residual ? add<true> : add<false>)(params, overlaps, num_sms, chain);
}

void prepare_streaming_output_projection() {
  allow_shared_memory(streaming_output_projection_kernel<false>, sizeof(StreamingOutputProjection<false>::SharedStorage));
  allow_shared_memory(streaming_output_projection_kernel<true>, sizeof(StreamingOutputProjection<true>::SharedStorage));
}

}  // namespace trimul::cuda::sm90
