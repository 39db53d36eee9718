// SPDX-License-Identifier: Apache-2.0
#include "cuda/host/device_query.hpp"

#include <cuda_runtime_api.h>

#include <map>
#include <mutex>

#include "cuda/host/check.hpp"

namespace trimul::cuda {

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();  // no driver or no device is an answer, not an error
  return 0;
}

namespace {

core::DeviceInfo read_device(int index) {
  const int count = device_count();
  if (count == 0)
    throw core::Error(core::StatusCode::kUnsupported,
                      core::text("device: cuda:", index, " was asked for, but no GPU or no driver is here; expected cpu"));
  if (index >= count) core::fail_invalid("device: cuda:", index, " was asked for, expected an index below ", count);
  const auto attribute = [index](cudaDeviceAttr which) {
    int value = 0;
    TRIMUL_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, index));
    return value;
  };
  cudaDeviceProp properties{};
  TRIMUL_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  core::DeviceInfo info;
  info.device = {core::DeviceType::kCuda, index};
  info.name = properties.name;
  info.sm = 10 * attribute(cudaDevAttrComputeCapabilityMajor) + attribute(cudaDevAttrComputeCapabilityMinor);
  info.num_sms = attribute(cudaDevAttrMultiProcessorCount);
  info.smem_per_block_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  // The ceilings were measured on whole H200s; a slice of one, or another sm_90 part, has its own.
  const auto measured = core::describe_architecture("sm90");
  if (measured && info.name == "NVIDIA H200" && info.num_sms == measured->num_sms) {
    info.bytes_per_us = measured->bytes_per_us;
    info.flop_per_us = measured->flop_per_us;
  }
  return info;
}

}  // namespace

core::DeviceInfo query_device(int index) {
  // The properties do not change and take the runtime a while: asked once a device.
  static std::mutex mutex;
  static std::map<int, core::DeviceInfo> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find(index);
  return found != known.end() ? found->second : known.emplace(index, read_device(index)).first->second;
}

}  // namespace trimul::cuda
