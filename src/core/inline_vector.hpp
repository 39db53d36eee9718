// SPDX-License-Identifier: Apache-2.0
// A list of few elements without an allocation: what every call builds and drops again (C++26 has it as std::inplace_vector).
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <span>
#include <type_traits>

namespace trimul::core {

/// At most `kCapacity` elements of a trivial type; callers know that theirs fit.
template <typename T, std::size_t kCapacity>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  // The elements stay as they are: zeroing them would cost more than a call's checks.
  InlineVector() {}  // NOLINT(modernize-use-equals-default)
  explicit InlineVector(std::span<const T> list) { append(list.data(), list.data() + list.size()); }
  InlineVector(const InlineVector& other) { append(other.begin(), other.end()); }
  InlineVector& operator=(const InlineVector& other) {
    if (this == &other) return *this;
    size_ = 0;
    append(other.begin(), other.end());
    return *this;
  }
  ~InlineVector() = default;

  void push_back(const T& element) {
    assert(size_ < kCapacity);
    elements_[size_++] = element;
  }
  void assign(std::size_t count, const T& element) {
    assert(count <= kCapacity);
    size_ = count;
    std::fill_n(begin(), count, element);
  }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] T& operator[](std::size_t index) { return elements_[index]; }
  [[nodiscard]] const T& operator[](std::size_t index) const { return elements_[index]; }
  [[nodiscard]] const T& back() const { return elements_[size_ - 1]; }
  [[nodiscard]] T* begin() { return elements_.data(); }
  [[nodiscard]] T* end() { return elements_.data() + size_; }
  [[nodiscard]] const T* begin() const { return elements_.data(); }
  [[nodiscard]] const T* end() const { return elements_.data() + size_; }

 private:
  void append(const T* first, const T* last) {
    for (; first != last; ++first) push_back(*first);
  }

  std::array<T, kCapacity> elements_;
  std::size_t size_ = 0;
};

}  // namespace trimul::core
