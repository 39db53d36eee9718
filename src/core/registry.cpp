// SPDX-License-Identifier: Apache-2.0
#include "core/registry.hpp"

#include <array>

#include "core/error.hpp"
#include "cpu/implementation.hpp"
#if defined(TRIMUL_HAVE_CUDA)
#include "cuda/sm80/implementation.hpp"
#endif
#if defined(TRIMUL_HAVE_SM90)
#include "cuda/sm90/implementation.hpp"
#endif
#include "reference/implementation.hpp"

namespace trimul::core {
namespace {

/// An implementation whose name is fixed but which this build does not contain.
template <const char* kReason>
Implementation absent(std::string_view name) {
  return {.name = name,
          .describe = [] { return std::string(kReason); },
          .can_run = [](const Problem&, const DeviceInfo&) -> std::optional<Rejection> { return Rejection{kReason}; },
          .make_plan = nullptr};
}

#if !defined(TRIMUL_HAVE_CUDA)
constexpr char kNoCuda[] = "not in this build: it has no CUDA implementation";
#elif !defined(TRIMUL_HAVE_SM90)
constexpr char kNoSm90[] = "not in this build: its kernels were not compiled for sm_90a";
#endif

}  // namespace

std::span<const Implementation> implementations() {
  static const std::array kImplementations {
#if !defined(TRIMUL_HAVE_CUDA)
    absent<kNoCuda>("cuda:sm90"), absent<kNoCuda>("cuda:sm80"),
#elif !defined(TRIMUL_HAVE_SM90)
    absent<kNoSm90>("cuda:sm90"), cuda::sm80::implementation(),
#else
    cuda::sm90::implementation(), cuda::sm80::implementation(),
#endif
        cpu::implementation(), reference::implementation(),
  };
  return kImplementations;
}

const Implementation* find_implementation_or_null(std::string_view name) {
  for (const Implementation& implementation : implementations())
    if (implementation.name == name) return &implementation;
  return nullptr;
}

const Implementation& find_implementation(std::string_view name) {
  if (const Implementation* const found = find_implementation_or_null(name)) return *found;
  std::string known;
  for (const Implementation& implementation : implementations()) known += (known.empty() ? "" : ", ") + std::string(implementation.name);
  fail_invalid("implementation: '", name, "' is unknown, expected one of ", known);
}

Selection select_implementation(std::span<const Implementation> list, const Problem& problem, const DeviceInfo& device) {
  Selection selection;
  for (const Implementation& implementation : list) {
    const auto rejection = implementation.can_run(problem, device);
    if (!rejection) {
      selection.chosen = &implementation;
      break;
    }
    selection.declined.push_back({implementation.name, rejection->reason});
  }
  return selection;
}

}  // namespace trimul::core
