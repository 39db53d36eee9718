// SPDX-License-Identifier: Apache-2.0
#include "core/device.hpp"

#include <array>

#include "core/error.hpp"
#if defined(TRIMUL_HAVE_CUDA)
#include "cuda/host/device_query.hpp"
#endif

namespace trimul::core {
namespace {

struct Architecture {
  std::string_view name;
  int sm;
  int num_sms;               // of the part that is most common in data centres or desks
  int smem_per_block_bytes;  // CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"
  double bytes_per_us;
  double flop_per_us;
};

// Ceilings: H200, copy kernel read + write and 8192^3 bf16 product, November 2026; the others have not been measured.
constexpr std::array kArchitectures{
    Architecture{"sm80", 80, 108, 166'912, 0, 0},   Architecture{"sm86", 86, 84, 101'376, 0, 0},
    Architecture{"sm89", 89, 128, 101'376, 0, 0},   Architecture{"sm90", 90, 132, 232'448, 4.3e6, 790e6},
    Architecture{"sm100", 100, 148, 232'448, 0, 0}, Architecture{"sm120", 120, 170, 101'376, 0, 0},
};

}  // namespace

std::optional<DeviceInfo> describe_architecture(std::string_view name) {
  for (const Architecture& arch : kArchitectures)
    if (arch.name == name)
      return DeviceInfo{.device = {DeviceType::kCuda, 0},
                        .name = std::string(arch.name),
                        .sm = arch.sm,
                        .num_sms = arch.num_sms,
                        .smem_per_block_bytes = arch.smem_per_block_bytes,
                        .bytes_per_us = arch.bytes_per_us,
                        .flop_per_us = arch.flop_per_us,
                        .is_hypothetical = true};
  return std::nullopt;
}

std::string architecture_names() {
  std::string names;
  for (const Architecture& arch : kArchitectures) names += (names.empty() ? "" : ", ") + std::string(arch.name);
  return names;
}

DeviceInfo describe_device(const Device& device) {
  if (device.type == DeviceType::kCpu) return DeviceInfo{.device = device, .name = "CPU"};
#if defined(TRIMUL_HAVE_CUDA)
  return cuda::query_device(device.index);
#else
  throw Error(StatusCode::kUnsupported,
              text("device: cuda:", device.index, " was asked for, but this build has no CUDA support; expected cpu"));
#endif
}

int cuda_device_count() {
#if defined(TRIMUL_HAVE_CUDA)
  return cuda::device_count();
#else
  return 0;
#endif
}

}  // namespace trimul::core
