// SPDX-License-Identifier: Apache-2.0
#include "standard_streams.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "failure.hpp"

namespace trimul::cli {
namespace {

int first_error = 0;
bool goes_to_stderr = false;

void remember_error() noexcept {
  if (first_error == 0) first_error = errno != 0 ? errno : EIO;
}

}  // namespace

void prepare_standard_streams() {
  std::signal(SIGPIPE, SIG_IGN);
  // Open for the other direction: every use still fails, as it does on a closed descriptor.
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(descriptor, F_GETFD) < 0 && ::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
}

void print_error(std::string_view text) noexcept {
  // Unbuffered, so that nothing is left for the end of the process.
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void print_output(std::string_view text) noexcept {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) < text.size()) remember_error();
}

int output_error() noexcept {
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) remember_error();
  return goes_to_stderr ? 0 : first_error;
}

void flush_output() {
  if (const int error = output_error(); error != 0) fail(kOther, "standard output cannot be written: {}", std::strerror(error));
}

bool is_standard_output(const struct stat& status) {
  if (S_ISCHR(status.st_mode) && ::isatty(STDOUT_FILENO) != 1) return false;  // /dev/null takes everything in any order
  struct stat output {};
  return ::fstat(STDOUT_FILENO, &output) == 0 && output.st_dev == status.st_dev && output.st_ino == status.st_ino;
}

void send_output_to_stderr() {
  flush_output();
  goes_to_stderr = true;
  const int mode = ::fcntl(STDERR_FILENO, F_GETFL);
  const bool is_writable = mode >= 0 && (mode & O_ACCMODE) != O_RDONLY;
  const int target = is_writable ? STDERR_FILENO : ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (target >= 0) ::dup2(target, STDOUT_FILENO);
}

}  // namespace trimul::cli
