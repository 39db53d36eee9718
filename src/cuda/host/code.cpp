// SPDX-License-Identifier: Apache-2.0
#include "cuda/host/code.hpp"

#include <charconv>

namespace trimul::cuda {

bool has_code_for(std::string_view architectures, int sm) {
  while (!architectures.empty()) {
    const std::string_view entry = architectures.substr(0, architectures.find(' '));
    architectures.remove_prefix(entry.size() == architectures.size() ? entry.size() : entry.size() + 1);
    int number = 0;
    const auto [rest, error] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
    if (error != std::errc{}) continue;
    const std::string_view kind(rest, static_cast<std::size_t>(entry.data() + entry.size() - rest));
    if (kind != "-virtual" && number / 10 == sm / 10 && number <= sm) return true;  // code
    if (kind != "-real" && number <= sm) return true;                               // PTX
  }
  return false;
}

}  // namespace trimul::cuda
