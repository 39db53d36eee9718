// SPDX-License-Identifier: Apache-2.0
#include "safetensors_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "failure.hpp"

namespace trimul::cli {

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  try {
    open_and_parse();
  } catch (const Failure& failure) {
    if (descriptor_ >= 0) ::close(descriptor_);
    throw Failure(failure.exit_code(), fmt::format("{}: {}", path_, failure.what()));
  } catch (...) {
    if (descriptor_ >= 0) ::close(descriptor_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() {
  ::close(descriptor_);
}

void SafetensorsFile::open_and_parse() {
  // O_NONBLOCK: a named pipe must be refused below, not waited for.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail_invalid("cannot be opened: {}", std::strerror(errno));
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) fail_invalid("cannot be examined: {}", std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail_invalid("is not a regular file");
  const auto file_bytes = static_cast<std::uint64_t>(status.st_size);
  if (file_bytes < kLengthBytes) check_header_length(0, file_bytes);
  std::array<unsigned char, kLengthBytes> length{};
  read_bytes(length.data(), kLengthBytes, 0);
  std::uint64_t header_bytes = 0;
  for (std::size_t k = kLengthBytes; k-- > 0;) header_bytes = header_bytes << 8 | length[k];
  std::string header(check_header_length(header_bytes, file_bytes), '\0');
  read_bytes(header.data(), header.size(), kLengthBytes);
  data_begin_ = kLengthBytes + header.size();
  entries_ = parse_header(header, file_bytes - data_begin_);
}

HostTensor SafetensorsFile::read(const TensorEntry& entry) const {
  HostTensor tensor = allocate_tensor(entry.dtype, entry.shape);
  try {
    read_bytes(tensor.data.get(), entry.end - entry.begin, data_begin_ + entry.begin);
  } catch (const Failure& failure) {
    throw Failure(failure.exit_code(), fmt::format("{}: tensor {}: {}", path_, in_quotes(entry.name), failure.what()));
  }
  return tensor;
}

void SafetensorsFile::read_bytes(void* destination, std::uint64_t count, std::uint64_t offset) const {
  constexpr std::uint64_t kMostPerCall = 1 << 30;  // Linux transfers at most 2 GiB a call
  auto* next = static_cast<char*>(destination);
  while (count > 0) {
    const ssize_t got = ::pread(descriptor_, next, std::min(count, kMostPerCall), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(kOther, "cannot be read at byte {}: {}", offset, std::strerror(errno));
    if (got == 0) fail_invalid("ends at byte {}, {} bytes early", offset, count);
    next += got;
    offset += static_cast<std::uint64_t>(got);
    count -= static_cast<std::uint64_t>(got);
  }
}

}  // namespace trimul::cli
