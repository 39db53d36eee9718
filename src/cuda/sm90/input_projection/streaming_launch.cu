// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/sm90/input_projection/config.hpp"
#include "cuda/sm90/input_projection/streaming_kernel.cuh"

namespace trimul::cuda::sm90 {
namespace {

template <bool kHasBias>
void add(InputProjectionParams params, bool overlaps, int num_sms, Chain& chain) {
  using Kernel = StreamingInputProjection<kHasBias>;
  params.part_blocks = std::min(params.tiling.num_tiles, static_cast<std::uint32_t>(std::max(num_sms / params.parts, 1)));
  params.part_chunks = Kernel::kChunks / params.parts;
  chain.add(streaming_input_projection_kernel<kHasBias>,
            {.blocks = static_cast<int>(params.part_blocks) * params.parts,
             .threads = (kStreamingInputWarpgroups + 1) * kWarpgroupThreads,
             .smem_bytes = sizeof(typename Kernel::SharedStorage),
             .overlaps = overlaps},
            params);
}

}  // namespace

void launch_streaming_input_projection(const InputProjectionParams& params, bool overlaps, int num_sms, Chain& chain) {
  (params.bias != nullptr ? add<true> : add<false>)(params, overlaps, num_sms, chain);
}

void prepare_streaming_input_projection() {
  allow_shared_memory(streaming_input_projection_kernel<false>, sizeof(StreamingInputProjection<false>::SharedStorage));
  allow_shared_memory(streaming_input_projection_kernel<true>, sizeof(StreamingInputProjection<true>::SharedStorage));
}

}  // namespace trimul::cuda::sm90
