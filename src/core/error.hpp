// SPDX-License-Identifier: Apache-2.0
// The one exception type of the library. The C ABI catches it at the boundary (c_api.cpp) and keeps its text per thread.
#pragma once

#include <locale>
#include <sstream>
#include <stdexcept>
#include <string>

#include "trimul/trimul.h"

namespace trimul::core {

/// Codes and their meaning: trimul_status.
enum class StatusCode : int {
  kInvalidArgument = TRIMUL_INVALID_ARGUMENT,
  kUnsupported = TRIMUL_UNSUPPORTED,
  kOutOfMemory = TRIMUL_OUT_OF_MEMORY,
  kDeviceError = TRIMUL_DEVICE_ERROR,
  kInternal = TRIMUL_INTERNAL,
};

class Error : public std::runtime_error {
 public:
  Error(StatusCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] StatusCode code() const noexcept { return code_; }

 private:
  StatusCode code_;
};

/// Concatenates anything that streams: text("mask: dimension N is ", got, ", expected ", n). Numbers look the same in every locale.
template <typename... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream stream;
  stream.imbue(std::locale::classic());
  stream.exceptions(std::ios::badbit);  // out of memory is reported, not a shorter text
  (stream << ... << parts);
  return stream.str();
}

template <typename... Parts>
[[noreturn]] void fail_invalid(const Parts&... parts) {
  throw Error(StatusCode::kInvalidArgument, text(parts...));
}

}  // namespace trimul::core
