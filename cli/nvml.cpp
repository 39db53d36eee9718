// SPDX-License-Identifier: Apache-2.0
#include "nvml.hpp"

#include <dlfcn.h>

#include <array>

namespace trimul::cli {
namespace {

// As much of nvml.h as is called here; its numbers are fixed.
constexpr int kSuccess = 0;
constexpr unsigned kSmClock = 1;
using Init = int (*)();
using DeviceByPciBusId = int (*)(const char*, void**);
using SystemDriverVersion = int (*)(char*, unsigned);
using DeviceClock = int (*)(void*, unsigned, unsigned*);

template <typename Function>
Function find(void* library, const char* name) {
  return library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

Nvml::Nvml(const std::string& pci_bus_id) : library_(dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL)) {
  const auto init = find<Init>(library_, "nvmlInit_v2");
  if (init == nullptr || init() != kSuccess) {
    if (library_ != nullptr) dlclose(library_);
    library_ = nullptr;
    return;
  }
  const auto device_by_id = find<DeviceByPciBusId>(library_, "nvmlDeviceGetHandleByPciBusId_v2");
  if (device_by_id == nullptr || device_by_id(pci_bus_id.c_str(), &device_) != kSuccess) device_ = nullptr;
}

Nvml::~Nvml() {
  if (library_ == nullptr) return;
  if (const auto shut_down = find<Init>(library_, "nvmlShutdown")) shut_down();
  dlclose(library_);
}

std::optional<std::string> Nvml::driver_version() const {
  std::array<char, 96> text{};
  const auto read = find<SystemDriverVersion>(library_, "nvmlSystemGetDriverVersion");
  if (read == nullptr || read(text.data(), static_cast<unsigned>(text.size())) != kSuccess) return std::nullopt;
  return std::string(text.data());
}

std::optional<unsigned> Nvml::sm_clock_mhz() const {
  unsigned mhz = 0;
  const auto read = find<DeviceClock>(library_, "nvmlDeviceGetClockInfo");
  if (device_ == nullptr || read == nullptr || read(device_, kSmClock, &mhz) != kSuccess) return std::nullopt;
  return mhz;
}

}  // namespace trimul::cli
