// SPDX-License-Identifier: Apache-2.0
// What NVIDIA's management library tells about a GPU, where it is installed; nothing where it is not. Looked up at run time.
#pragma once

#include <optional>
#include <string>

namespace trimul::cli {

class Nvml {
 public:
  /// `pci_bus_id`: "0000:1b:00.0".
  explicit Nvml(const std::string& pci_bus_id);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// "580.82.07"
  [[nodiscard]] std::optional<std::string> driver_version() const;
  /// The multiprocessors' clock at this moment.
  [[nodiscard]] std::optional<unsigned> sm_clock_mhz() const;

 private:
  void* library_ = nullptr;  // null unless initialised
  void* device_ = nullptr;   // null unless found
};

}  // namespace trimul::cli
