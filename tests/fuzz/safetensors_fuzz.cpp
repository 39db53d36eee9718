// SPDX-License-Identifier: Apache-2.0
// Feeds arbitrary bytes to the reader of safetensors headers. It may refuse them with a Failure of exit code 2; what it accepts
// must be consistent and must survive being written and read again.
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string_view>

#include "failure.hpp"
#include "safetensors_header.hpp"

namespace {

using namespace trimul::cli;

/// Ends the process, which is how libFuzzer is told.
void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "safetensors_fuzz: %s\n", what);
  std::abort();
}

bool is_same(const TensorEntry& left, const TensorEntry& right) {
  return left.name == right.name && left.dtype == right.dtype && left.shape == right.shape && left.begin == right.begin &&
         left.end == right.end;
}

std::uint64_t element_bytes(trimul_dtype dtype) {
  switch (dtype) {
    case TRIMUL_F64:
    case TRIMUL_I64: return 8;
    case TRIMUL_F32:
    case TRIMUL_I32: return 4;
    case TRIMUL_F16:
    case TRIMUL_BF16:
    case TRIMUL_I16: return 2;
    case TRIMUL_BOOL:
    case TRIMUL_U8:
    case TRIMUL_I8: return 1;
  }
  return 0;
}

void check_accepted(const std::vector<TensorEntry>& entries, std::uint64_t data_bytes) {
  std::set<std::string> names;
  unsigned __int128 total = 0;
  for (const TensorEntry& entry : entries) {
    require(names.insert(entry.name).second, "a name stands twice");
    require(entry.name != "__metadata__", "the metadata became a tensor");
    require(entry.begin <= entry.end && entry.end <= data_bytes, "offsets leave the data");
    require(entry.shape.size() <= TRIMUL_MAX_NDIM, "too many dimensions");
    unsigned __int128 bytes = element_bytes(entry.dtype);
    for (const std::int64_t size : entry.shape) {
      require(size >= 0, "a size is negative");
      bytes *= static_cast<std::uint64_t>(size);  // the reader has bounded the product of sizes other than 0
    }
    require(bytes == entry.end - entry.begin, "offsets and shape disagree");
    total += bytes;
  }
  require(total == data_bytes, "the tensors do not cover the data");
  const std::string written = format_header(entries);
  const std::vector<TensorEntry> again = parse_header(written, data_bytes);
  require(again.size() == entries.size(), "writing and reading again changes the number of tensors");
  for (std::size_t k = 0; k < entries.size(); ++k) require(is_same(entries[k], again[k]), "writing and reading again changes a tensor");
}

void parse(std::string_view json, std::uint64_t data_bytes) {
  std::vector<TensorEntry> entries;
  try {
    entries = parse_header(json, data_bytes);
  } catch (const Failure& failure) {
    require(failure.exit_code() == kInvalid, "the exit code is not 2");
    const std::string line = one_line(failure.what());
    require(!line.empty() && line.size() < 1000 && line.find('\n') == std::string::npos, "the message is not one short line");
    return;
  }
  check_accepted(entries, data_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  std::uint64_t first = 0;
  for (std::size_t k = 8; k-- > 0;) first = first << 8 | (k < size ? data[k] : 0U);
  // The bytes as a file ...
  try {
    const std::uint64_t header_bytes = check_header_length(first, size);
    parse(bytes.substr(kLengthBytes, header_bytes), size - kLengthBytes - header_bytes);
  } catch (const Failure& failure) {
    require(failure.exit_code() == kInvalid, "the exit code is not 2");
  }
  // ... and as a header in front of as much data as the first eight bytes say, for offsets that no test file reaches.
  if (size > kLengthBytes) parse(bytes.substr(kLengthBytes), first);
  return 0;
}
