// SPDX-License-Identifier: Apache-2.0
// Reading tensors from safetensors files.
#pragma once

#include <string>
#include <vector>

#include "host_tensor.hpp"
#include "safetensors_header.hpp"

namespace trimul::cli {

/// An open file whose header has been checked. Every Failure names the file.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::vector<TensorEntry>& entries() const { return entries_; }
  /// Copies one tensor into aligned memory. The file may change under us, so this reads rather than maps: a file that was
  /// cut short meanwhile is an error, not a bus fault.
  [[nodiscard]] HostTensor read(const TensorEntry& entry) const;

 private:
  void open_and_parse();
  void read_bytes(void* destination, std::uint64_t count, std::uint64_t offset) const;

  std::string path_;
  int descriptor_ = -1;
  std::uint64_t data_begin_ = 0;
  std::vector<TensorEntry> entries_;
};

}  // namespace trimul::cli
