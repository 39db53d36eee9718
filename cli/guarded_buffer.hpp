// SPDX-License-Identifier: Apache-2.0
// Memory that shows who touched it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "host_tensor.hpp"

namespace trimul::cli {

/// `bytes` of 256-byte aligned memory between two guard bands. All of it is 0xff, which is NaN in every float dtype, so that what
/// an implementation reads before it has written, and what it forgets to write, spreads; a write beyond either end leaves a
/// mark in a band.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(std::size_t bytes) : bytes_(bytes), memory_(allocate_host(bytes + 2 * kBandBytes)) {
    std::fill_n(memory_.get(), bytes + 2 * kBandBytes, kPoison);
  }

  [[nodiscard]] std::byte* data() const { return memory_.get() + kBandBytes; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] bool bands_are_intact() const {
    const auto is_poison = [](std::byte value) { return value == kPoison; };
    const std::span before(memory_.get(), kBandBytes);
    const std::span after(memory_.get() + kBandBytes + bytes_, kBandBytes);
    return std::all_of(before.begin(), before.end(), is_poison) && std::all_of(after.begin(), after.end(), is_poison);
  }

 private:
  static constexpr std::size_t kBandBytes = 16 * kAlignmentBytes;
  static constexpr std::byte kPoison{0xff};
  std::size_t bytes_;
  HostMemory memory_;
};

}  // namespace trimul::cli
