// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/host/launch.hpp"
#include "cuda/sm90/input_projection/config.hpp"
#include "cuda/sm90/input_projection/kernel.cuh"

namespace trimul::cuda::sm90 {
namespace {

template <int kParts, int kStoreWarpgroups, bool kHasBias>
void launch(const InputProjectionParams& params, bool overlaps, int num_sms, void* stream) {
  using Config = InputProjectionVariant<kParts, kStoreWarpgroups, kHasBias>;
  const auto groups = static_cast<int>(params.tiling.num_tiles / Config::kCfg.store_warpgroups);
  const int blocks = std::min(groups, std::max(num_sms / kParts, 1)) * kParts;
  launch_chain_kernel(input_projection_kernel<Config>, blocks, Config::kCfg.threads(),
                      sizeof(typename InputProjection<Config>::SharedStorage), overlaps, stream, params);
}

template <int kParts, int kStoreWarpgroups>
void launch(const InputProjectionParams& params, bool overlaps, int num_sms, void* stream) {
  if (params.bias != nullptr)
    launch<kParts, kStoreWarpgroups, true>(params, overlaps, num_sms, stream);
  else
    launch<kParts, kStoreWarpgroups, false>(params, overlaps, num_sms, stream);
}

template <int kParts, int kStoreWarpgroups, bool kHasBias>
void prepare() {
  using Config = InputProjectionVariant<kParts, kStoreWarpgroups, kHasBias>;
  allow_shared_memory(input_projection_kernel<Config>, sizeof(typename InputProjection<Config>::SharedStorage));
}

template <int kParts, int kStoreWarpgroups>
void prepare_both() {
  prepare<kParts, kStoreWarpgroups, false>();
  prepare<kParts, kStoreWarpgroups, true>();
}

}  // namespace

void launch_input_projection(const InputProjectionParams& params, int parts, int store_warpgroups, bool overlaps, int num_sms,
                             void* stream) {
  if (parts == 2) return (store_warpgroups == 2 ? launch<2, 2> : launch<2, 1>)(params, overlaps, num_sms, stream);
  return (store_warpgroups == 2 ? launch<1, 2> : launch<1, 1>)(params, overlaps, num_sms, stream);
}

void prepare_input_projection() {
  prepare_both<1, 1>();
  prepare_both<1, 2>();
  prepare_both<2, 1>();
  prepare_both<2, 2>();
}

}  // namespace trimul::cuda::sm90
