// SPDX-License-Identifier: Apache-2.0
// What every function of the C ABI does at its boundary: exceptions become a status and this thread's message, sized structs become this
// library's.
#pragma once

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "core/error.hpp"
#include "trimul/trimul.h"

namespace trimul::core {

/// Text of this thread's last failure.
inline thread_local std::string last_error;

inline trimul_status keep_failure(trimul_status status, const char* message) noexcept {
  try {
    last_error = message;
  } catch (...) {
    last_error.clear();
  }
  return status;
}

/// Runs `body` and turns what it throws into a status and this thread's message.
template <typename Body>
trimul_status guarded(const Body& body) noexcept {
  try {
    body();
    return TRIMUL_OK;
  } catch (const Error& error) {
    return keep_failure(static_cast<trimul_status>(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return keep_failure(TRIMUL_OUT_OF_MEMORY, "host memory: an allocation failed");
  } catch (const std::exception& error) {
    return keep_failure(TRIMUL_INTERNAL, error.what());
  } catch (...) {
    return keep_failure(TRIMUL_INTERNAL, "an exception of unknown type");
  }
}

/// Copies a caller's sized struct into one of this library's size. Fields the caller's header does not have become zero; fields this
/// library does not have must be zero.
template <typename Struct>
Struct read_struct(const char* name, const Struct* given) {
  if (given == nullptr) fail_invalid(name, ": is NULL, expected a struct");
  const std::size_t size = given->struct_size;
  if (size < sizeof(std::size_t)) fail_invalid(name, ": struct_size is ", size, ", expected ", sizeof(Struct));
  // A size beyond any future struct is garbage: nothing behind the known fields is read then.
  if (size > 16 * sizeof(Struct)) fail_invalid(name, ": struct_size is ", size, ", expected ", sizeof(Struct));
  Struct result{};
  std::memcpy(&result, given, std::min(size, sizeof(Struct)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t k = sizeof(Struct); k < size; ++k)
    if (bytes[k] != 0)
      fail_invalid(name, ": struct_size is ", size, ", this library knows ", sizeof(Struct), " bytes and the rest is not zero");
  return result;
}

/// Copies this library's result into a caller's sized struct: the fields that the caller's header has, its struct_size untouched.
template <typename Struct>
void write_struct(const char* name, Struct result, Struct* place) {
  result.struct_size = read_struct(name, place).struct_size;
  std::memcpy(place, &result, std::min(result.struct_size, sizeof(Struct)));
}

}  // namespace trimul::core
