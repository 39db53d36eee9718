// SPDX-License-Identifier: Apache-2.0
// Division of 31-bit numbers by a run-time constant with one multiplication (Granlund and Montgomery 1994, round-up method). Host and
// device.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define TRIMUL_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define TRIMUL_HOST_DEVICE inline
#endif

namespace trimul::cuda {

struct FastDivisor {
  std::uint32_t divisor = 1;
  std::uint32_t multiplier = 0;  // 0 marks divisor 1
  std::uint32_t shift = 0;

  FastDivisor() = default;
  /// 1 <= value < 2^31.
  explicit FastDivisor(std::uint32_t value) : divisor(value) {
    if (value == 1) return;
    std::uint32_t log2_up = 0;
    while ((std::uint64_t{1} << log2_up) < value) ++log2_up;
    shift = log2_up - 1;
    multiplier = static_cast<std::uint32_t>(((std::uint64_t{1} << (32 + shift)) + value - 1) / value);
  }

  struct Result {
    std::uint32_t quotient, remainder;
  };
  /// number < 2^31.
  [[nodiscard]] TRIMUL_HOST_DEVICE Result divide(std::uint32_t number) const {
#if defined(__CUDA_ARCH__)
    const std::uint32_t high = __umulhi(number, multiplier);
#else
    const auto high = static_cast<std::uint32_t>((std::uint64_t{number} * multiplier) >> 32);
#endif
    const std::uint32_t quotient = multiplier == 0 ? number : high >> shift;
    return {quotient, number - quotient * divisor};
  }
};

}  // namespace trimul::cuda
