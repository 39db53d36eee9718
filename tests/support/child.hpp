// SPDX-License-Identifier: Apache-2.0
// A child process for what cannot be undone: resource limits, affinity, a process that may die.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace trimul::testing {

/// Runs `body` in a forked child and returns the text it returns, or "child died: ..." when it did not come to that.
template <typename Body>
std::string in_child(const Body& body) {
  int ends[2];
  if (pipe(ends) != 0) return "pipe failed";
  const pid_t child = fork();
  if (child < 0) return "fork failed";
  if (child == 0) {
    close(ends[0]);
    const std::string text = body();
    const bool written = write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[512];
  for (ssize_t count = read(ends[0], buffer, sizeof(buffer)); count > 0; count = read(ends[0], buffer, sizeof(buffer)))
    text.append(buffer, static_cast<std::size_t>(count));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return "child died: signal " + std::to_string(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? text : "child died: exit " + std::to_string(WEXITSTATUS(status));
}

}  // namespace trimul::testing
