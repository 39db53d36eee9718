// SPDX-License-Identifier: Apache-2.0
#include "support/guarded_buffer.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace trimul::testing {
namespace {

constexpr std::size_t kAlignmentBytes = 256;

}  // namespace

GuardedBuffer::GuardedBuffer(std::size_t bytes, std::size_t offset_bytes, std::byte fill)
    : storage_(new std::byte[bytes + offset_bytes + 2 * kGuardBytes + kAlignmentBytes]),
      storage_size_(bytes + offset_bytes + 2 * kGuardBytes + kAlignmentBytes),
      size_(bytes) {
  const auto base = reinterpret_cast<std::uintptr_t>(storage_.get()) + kGuardBytes;
  const std::uintptr_t aligned = (base + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes + offset_bytes;
  data_ = storage_.get() + (aligned - reinterpret_cast<std::uintptr_t>(storage_.get()));
  std::fill_n(storage_.get(), storage_size_, kPoison);
  std::fill_n(data_, size_, fill);
  forbid_guards(true);
}

GuardedBuffer::~GuardedBuffer() {
  if (storage_) forbid_guards(false);
}

void GuardedBuffer::forbid_guards([[maybe_unused]] bool forbid) const {
#if defined(__SANITIZE_ADDRESS__)
  const auto band = [forbid](const std::byte* begin, const std::byte* end) {
    if (forbid)
      __asan_poison_memory_region(begin, static_cast<std::size_t>(end - begin));
    else
      __asan_unpoison_memory_region(begin, static_cast<std::size_t>(end - begin));
  };
  band(storage_.get(), data_);
  band(data_ + size_, storage_.get() + storage_size_);
#endif
}

bool GuardedBuffer::guards_are_intact() const {
  forbid_guards(false);
  const auto is_poison = [](std::byte value) { return value == kPoison; };
  const bool intact = std::all_of(static_cast<const std::byte*>(storage_.get()), static_cast<const std::byte*>(data_), is_poison) &&
                      std::all_of(data_ + size_, storage_.get() + storage_size_, is_poison);
  forbid_guards(true);
  return intact;
}

PageEdgeBuffer::PageEdgeBuffer(std::size_t bytes, Edge edge) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t inner = (bytes + page - 1) / page * page;
  mapping_bytes_ = inner + 2 * page;
  mapping_ = mmap(nullptr, mapping_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) throw std::bad_alloc();
  auto* const first = static_cast<std::byte*>(mapping_) + page;
  if (mprotect(first, inner, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  data_ = edge == Edge::kBegin ? first : first + inner - bytes;
}

PageEdgeBuffer::~PageEdgeBuffer() {
  munmap(mapping_, mapping_bytes_);
}

}  // namespace trimul::testing
