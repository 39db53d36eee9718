// SPDX-License-Identifier: Apache-2.0
#include "progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace trimul::cli {

Progress::Progress(std::string label) : label_(std::move(label)) {
  if (::isatty(STDERR_FILENO) == 1) thread_ = std::jthread([this](const std::stop_token& stop) { show(stop); });
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
    fmt::print(stderr, "{}{}, {} s", kEraseLine, label_, seconds);
    std::fflush(stderr);
    pause = 250ms;
  }
  if (pause != 1000ms) fmt::print(stderr, "{}", kEraseLine);
  std::fflush(stderr);
}

}  // namespace trimul::cli
