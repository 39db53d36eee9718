// SPDX-License-Identifier: Apache-2.0
// trimul_memory_*: plain memory on a device.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "trimul/trimul.h"

namespace {

constexpr trimul_device kCpu{TRIMUL_CPU, 0};

std::string message() {
  return trimul_last_error();
}

TEST(DeviceMemory, IsAlignedAndCopiesBothWays) {
  void* memory = nullptr;
  ASSERT_EQ(trimul_memory_allocate(kCpu, 1000, &memory), TRIMUL_OK);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 256, 0U);
  const std::array<int, 3> sent{1, -2, 3};
  std::array<int, 3> received{};
  EXPECT_EQ(trimul_memory_copy(kCpu, memory, kCpu, sent.data(), sizeof(sent), nullptr), TRIMUL_OK);
  EXPECT_EQ(trimul_memory_copy(kCpu, received.data(), kCpu, memory, sizeof(received), nullptr), TRIMUL_OK);
  EXPECT_EQ(received, sent);
  trimul_memory_free(kCpu, memory);
}

TEST(DeviceMemory, OfNoBytesIsNull) {
  void* memory = &memory;
  ASSERT_EQ(trimul_memory_allocate(kCpu, 0, &memory), TRIMUL_OK);
  EXPECT_EQ(memory, nullptr);
  trimul_memory_free(kCpu, memory);
  EXPECT_EQ(trimul_memory_copy(kCpu, nullptr, kCpu, nullptr, 0, nullptr), TRIMUL_OK);
}

TEST(DeviceMemory, SaysWhatIsWrong) {
  void* memory = nullptr;
  EXPECT_EQ(trimul_memory_allocate({7, 0}, 16, &memory), TRIMUL_INVALID_ARGUMENT);
  EXPECT_NE(message().find("device type is 7, expected 1 (CPU) or 2 (CUDA)"), std::string::npos) << message();
  EXPECT_EQ(trimul_memory_allocate({TRIMUL_CPU, 1}, 16, &memory), TRIMUL_INVALID_ARGUMENT);
  EXPECT_EQ(trimul_memory_allocate(kCpu, 16, nullptr), TRIMUL_INVALID_ARGUMENT);
  EXPECT_NE(message().find("memory: is NULL"), std::string::npos) << message();
  EXPECT_EQ(trimul_memory_allocate(kCpu, SIZE_MAX, &memory), TRIMUL_OUT_OF_MEMORY);
  EXPECT_NE(message().find("bytes of host memory failed"), std::string::npos) << message();
  int value = 0;
  EXPECT_EQ(trimul_memory_copy(kCpu, nullptr, kCpu, &value, 4, nullptr), TRIMUL_INVALID_ARGUMENT);
  EXPECT_EQ(trimul_memory_copy(kCpu, &value, kCpu, nullptr, 4, nullptr), TRIMUL_INVALID_ARGUMENT);
}

TEST(DeviceMemory, OfAGpuThatIsNotThereIsRefused) {
  const trimul_device past_the_end{TRIMUL_CUDA, trimul_cuda_device_count()};
  void* memory = nullptr;
  const trimul_status expected = trimul_cuda_device_count() == 0 ? TRIMUL_UNSUPPORTED : TRIMUL_INVALID_ARGUMENT;
  EXPECT_EQ(trimul_memory_allocate(past_the_end, 16, &memory), expected);
  EXPECT_NE(message().find("cuda:" + std::to_string(past_the_end.index)), std::string::npos) << message();
  EXPECT_EQ(memory, nullptr);
}

}  // namespace
