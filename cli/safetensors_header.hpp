// SPDX-License-Identifier: Apache-2.0
// The JSON header of a safetensors file, read by hostile-input rules. No file access: this is what the fuzzer drives.
//
// File: 8 bytes little-endian header length, the header, the data. The header is one JSON object that maps a tensor's name to
// {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}, offsets counted from the start of the data, and optionally
// "__metadata__" to an object of strings.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trimul/trimul.h"

namespace trimul::cli {

struct TensorEntry {
  std::string name;
  trimul_dtype dtype = TRIMUL_F32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // bytes from the start of the data
  std::uint64_t end = 0;
};

inline constexpr std::uint64_t kLengthBytes = 8;
/// The limit of the format's own library. A header of this size would describe half a million tensors.
inline constexpr std::uint64_t kMostHeaderBytes = 100'000'000;

/// Checks the length field against the file's size; returns it.
std::uint64_t check_header_length(std::uint64_t header_bytes, std::uint64_t file_bytes);

/// Entries in the header's order. Throws Failure (kInvalid) unless the header is well formed, every dtype known, every size a
/// non-negative integer whose product fits 64 bits, every tensor as long as its shape says, and the tensors together cover the
/// `data_bytes` of data without hole or overlap.
std::vector<TensorEntry> parse_header(std::string_view json, std::uint64_t data_bytes);

/// The header of a file that holds `entries`, padded with spaces so that the data starts at a multiple of 8.
std::string format_header(const std::vector<TensorEntry>& entries);

/// "F32"; the dtypes of trimul.h all have one.
std::string_view safetensors_dtype_name(trimul_dtype dtype);

}  // namespace trimul::cli
