// SPDX-License-Identifier: Apache-2.0
// Expectations about failures: status and message together, as "INVALID_ARGUMENT: mask: ...".
#pragma once

#include <string>

#include "core/error.hpp"
#include "trimul/trimul.h"

namespace trimul::testing {

/// What a C call reported; "OK" when it succeeded.
inline std::string outcome(trimul_status status) {
  if (status == TRIMUL_OK) return "OK";
  return std::string(trimul_status_name(status)) + ": " + trimul_last_error();
}

/// What `call` throws; "OK" when it returns.
template <typename Call>
std::string outcome_of(const Call& call) {
  try {
    call();
  } catch (const core::Error& error) {
    return std::string(trimul_status_name(static_cast<trimul_status>(error.code()))) + ": " + error.what();
  }
  return "OK";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace trimul::testing
