// SPDX-License-Identifier: Apache-2.0
#include "progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <new>
#include <system_error>

#include "standard_streams.hpp"

namespace trimul::cli {

Progress::Progress(std::string label) : label_(std::move(label)) {
  if (::isatty(STDERR_FILENO) != 1) return;
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) {
      try {
        show(stop);
      } catch (const std::bad_alloc&) {
        // The work may need less than the line, or says so itself.
      }
    });
  } catch (const std::system_error&) {
    // No thread to be had: the work goes on without the line.
  }
}

Progress::~Progress() = default;  // the thread is asked to stop and joined

void Progress::set_label(std::string label) {
  const std::lock_guard lock(mutex_);
  label_ = std::move(label);
}

void Progress::show(const std::stop_token& stop) {
  using namespace std::chrono_literals;
  constexpr const char* kEraseLine = "\r\x1b[K";
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  auto pause = 1000ms;
  while (!wake_.wait_for(lock, stop, pause, [&] { return stop.stop_requested(); })) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - start).count();
    print_error(fmt::format("{}{}, {} s", kEraseLine, label_, seconds));
    pause = 250ms;
  }
  if (pause != 1000ms) print_error(kEraseLine);
}

}  // namespace trimul::cli
