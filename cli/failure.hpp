// SPDX-License-Identifier: Apache-2.0
// How a command ends when it cannot do what was asked: one exit code, one line of text.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace trimul::cli {

enum ExitCode : int {
  kOk = 0,
  kOther = 1,        // a failed check, output that could not be written, a bug
  kInvalid = 2,      // invalid input or usage
  kUnsupported = 3,  // legal, but nothing here serves it
  kDevice = 4        // device error or out of memory
};

class Failure : public std::exception {
 public:
  Failure(ExitCode exit_code, std::string message) : exit_code_(exit_code), message_(std::move(message)) {}
  [[nodiscard]] ExitCode exit_code() const { return exit_code_; }
  [[nodiscard]] const char* what() const noexcept override { return message_.c_str(); }

 private:
  ExitCode exit_code_;
  std::string message_;
};

template <typename... Args>
[[noreturn]] void fail(ExitCode exit_code, fmt::format_string<Args...> format, Args&&... args) {
  throw Failure(exit_code, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void fail_invalid(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure(kInvalid, fmt::format(format, std::forward<Args>(args)...));
}

/// Runs `body`; its failures get `what`, a file or an option, in front.
template <typename Body>
void naming(std::string_view what, const Body& body) {
  try {
    body();
  } catch (const Failure& failure) {
    throw Failure(failure.exit_code(), fmt::format("{}: {}", what, failure.what()));
  }
}

/// `text` as one printable line: line breaks become "; ", other control bytes \xNN. File and tensor names are other people's
/// text, and the library's messages may have several lines.
inline std::string one_line(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n')
      line += "; ";
    else if (byte < 0x20 || byte == 0x7f)
      line += fmt::format("\\x{:02x}", byte);
    else
      line += c;
  }
  return line;
}

/// A name in quotes, cut to a length that leaves the message readable.
inline std::string in_quotes(std::string_view name) {
  constexpr std::size_t kMostBytes = 80;
  if (name.size() <= kMostBytes) return fmt::format("'{}'", one_line(name));
  std::size_t cut = kMostBytes;
  while (cut > 0 && (static_cast<unsigned char>(name[cut]) & 0xC0) == 0x80) --cut;  // not inside a UTF-8 character
  return fmt::format("'{}...'", one_line(name.substr(0, cut)));
}

}  // namespace trimul::cli
