// SPDX-License-Identifier: Apache-2.0
// Memory that shows who touched it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "device_memory.hpp"
#include "host_tensor.hpp"

namespace trimul::cli {

/// `bytes` of 256-byte aligned memory between two guard bands. All of it is 0xff, which is NaN in every float dtype, so that what
/// an implementation reads before it has written, and what it forgets to write, spreads; a write beyond either end leaves a
/// mark in a band.
class GuardedBuffer {
 public:
  GuardedBuffer(const trimul_device& device, std::size_t bytes) : bytes_(bytes), memory_(device, bytes + 2 * kBandBytes) {
    const std::vector<std::byte> poison(std::min(bytes + 2 * kBandBytes, kMostPoisonBytes), kPoison);
    for (std::size_t at = 0; at < bytes + 2 * kBandBytes; at += poison.size())
      memory_.upload(at, poison.data(), std::min(poison.size(), bytes + 2 * kBandBytes - at));
  }

  [[nodiscard]] std::byte* data() const { return memory_.data() + kBandBytes; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

  /// The contents where the host can read them: in place, or copied. Valid until the next call.
  [[nodiscard]] const std::byte* on_host() {
    if (is_host(memory_.device())) return data();
    if (copy_ == nullptr) copy_ = allocate_host(bytes_);
    memory_.download(copy_.get(), kBandBytes, bytes_);
    return copy_.get();
  }

  [[nodiscard]] bool bands_are_intact() const { return is_poison(0) && is_poison(kBandBytes + bytes_); }

 private:
  static constexpr std::size_t kBandBytes = 16 * kAlignmentBytes;
  static constexpr std::size_t kMostPoisonBytes = std::size_t{16} << 20;
  static constexpr std::byte kPoison{0xff};

  [[nodiscard]] bool is_poison(std::size_t band_begin) const {
    std::vector<std::byte> band(kBandBytes);
    memory_.download(band.data(), band_begin, kBandBytes);
    return std::all_of(band.begin(), band.end(), [](std::byte value) { return value == kPoison; });
  }

  std::size_t bytes_;
  DeviceMemory memory_;
  HostMemory copy_;
};

}  // namespace trimul::cli
