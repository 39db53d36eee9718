// SPDX-License-Identifier: Apache-2.0
// One line on a terminal about work that takes longer than a second.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace trimul::cli {

/// While it lives, shows "label, 3 s" on stderr from the first second on, if stderr is a terminal; erases the line at the end.
class Progress {
 public:
  explicit Progress(std::string label);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void set_label(std::string label);

 private:
  void show(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::string label_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace trimul::cli
