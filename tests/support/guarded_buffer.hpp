// SPDX-License-Identifier: Apache-2.0
// Memory whose surroundings are watched: bytes filled with a poison, between two guard bands that must survive. Under
// AddressSanitizer the bands cannot even be read.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace trimul::testing {

/// NaN in every float dtype, -1 in every integer.
inline constexpr std::byte kPoison{0xff};

class GuardedBuffer {
 public:
  static constexpr std::size_t kGuardBytes = 512;

  GuardedBuffer() = default;
  /// data() lies `offset_bytes` behind a 256-byte boundary.
  explicit GuardedBuffer(std::size_t bytes, std::size_t offset_bytes = 0, std::byte fill = kPoison);
  GuardedBuffer(GuardedBuffer&& other) noexcept = default;
  GuardedBuffer& operator=(GuardedBuffer&& other) noexcept = default;
  ~GuardedBuffer();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::vector<std::byte> copy() const { return {data_, data_ + size_}; }
  /// No byte of the bands was written.
  [[nodiscard]] bool guards_are_intact() const;
  /// The bytes with both bands, for copies to a device (not under AddressSanitizer, which forbids reading the bands).
  [[nodiscard]] std::span<std::byte> storage() const { return {storage_.get(), storage_size_}; }

 private:
  void forbid_guards(bool forbid) const;

  std::unique_ptr<std::byte[]> storage_;
  std::size_t storage_size_ = 0;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Memory that ends (or begins) exactly at a page without access: one byte further is a fault, also from generated code.
class PageEdgeBuffer {
 public:
  enum class Edge { kEnd, kBegin };
  PageEdgeBuffer(std::size_t bytes, Edge edge);
  PageEdgeBuffer(const PageEdgeBuffer&) = delete;
  PageEdgeBuffer& operator=(const PageEdgeBuffer&) = delete;
  ~PageEdgeBuffer();
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  void* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace trimul::testing
