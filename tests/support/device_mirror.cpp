// SPDX-License-Identifier: Apache-2.0
#include "support/device_mirror.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace trimul::testing {
namespace {

constexpr std::size_t kAlignmentBytes = 256;

}  // namespace

DeviceMemory::DeviceMemory(trimul_device device, std::size_t bytes) : device_(device) {
  void* memory = nullptr;
  EXPECT_EQ(trimul_memory_allocate(device, bytes, &memory), TRIMUL_OK) << trimul_last_error();
  data_ = static_cast<std::byte*>(memory);
}

void DeviceMemory::upload(std::size_t offset, const void* from, std::size_t bytes) const {
  EXPECT_EQ(trimul_memory_copy(device_, data_ + offset, kCpuDevice, from, bytes, nullptr), TRIMUL_OK) << trimul_last_error();
}

void DeviceMemory::download(void* to, std::size_t offset, std::size_t bytes) const {
  EXPECT_EQ(trimul_memory_copy(kCpuDevice, to, device_, data_ + offset, bytes, nullptr), TRIMUL_OK) << trimul_last_error();
}

DeviceMirror::DeviceMirror(const GuardedBuffer& buffer, trimul_device device)
    : buffer_(buffer),
      skew_(reinterpret_cast<std::uintptr_t>(buffer.storage().data()) % kAlignmentBytes),
      memory_(std::make_unique<DeviceMemory>(device, buffer.storage().size() + kAlignmentBytes)) {
  upload();
}

void DeviceMirror::upload() const {
  memory_->upload(skew_, buffer_.storage().data(), buffer_.storage().size());
}

std::byte* DeviceMirror::data() const {
  return memory_->data() + skew_ + (buffer_.data() - buffer_.storage().data());
}

bool DeviceMirror::is_unchanged() const {
  std::vector<std::byte> now(buffer_.storage().size());
  memory_->download(now.data(), skew_, now.size());
  return std::ranges::equal(now, buffer_.storage());
}

void DeviceMirror::download() const {
  memory_->download(buffer_.storage().data(), skew_, buffer_.storage().size());
}

trimul_tensor view_in(const DeviceMirror& mirror, const GuardedBuffer& buffer, trimul_tensor tensor, trimul_device device) {
  tensor.data = mirror.data() + (static_cast<std::byte*>(tensor.data) - buffer.data());
  tensor.device = device;
  return tensor;
}

DeviceBound::DeviceBound(const Case& data, trimul_device device) : bound(data), device_(device) {
  if (device.type == TRIMUL_CPU) return;
  const auto move = [&](trimul_tensor& tensor, const HostTensor& owner) {
    mirrors_.push_back(std::make_unique<DeviceMirror>(owner.buffer(), device));
    tensor = view_in(*mirrors_.back(), owner.buffer(), tensor, device);
  };
  move(bound.x, data.x);
  if (data.mask) move(bound.mask, *data.mask);
  for (unsigned k = 0; k < kNumParameters; ++k)
    if (data.parameters[k]) move(bound.tensors[k], *data.parameters[k]);
}

bool DeviceBound::inputs_are_unchanged(bool except_x) const {
  return std::all_of(mirrors_.begin() + (except_x && !mirrors_.empty() ? 1 : 0), mirrors_.end(),
                     [](const auto& mirror) { return mirror->is_unchanged(); });
}

void DeviceBound::upload() const {
  for (const auto& mirror : mirrors_) mirror->upload();
}

void DeviceBound::download_x() const {
  if (!mirrors_.empty()) mirrors_.front()->download();
}

}  // namespace trimul::testing
