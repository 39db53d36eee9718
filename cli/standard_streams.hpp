// SPDX-License-Identifier: Apache-2.0
// Standard output and error, any of which may be closed, full or gone.
#pragma once

#include <sys/stat.h>

#include <string_view>

namespace trimul::cli {

/// Call once, first in main. Closed streams become ones that cannot be used, so that no file takes their number; a reader that has gone
/// away is a write error (EPIPE), not a signal.
void prepare_standard_streams();

/// Writes to stderr. A job does not end because nobody can be told about it: errors are ignored.
void print_error(std::string_view text) noexcept;

/// Writes to stdout; errors show when it is flushed.
void print_output(std::string_view text) noexcept;

/// Flushes stdout. Failures are kOther, so that no long work goes on whose output is lost.
void flush_output();

/// The error number of the first failed write to stdout, flushed here; 0 when all has been written.
[[nodiscard]] int output_error() noexcept;

/// Whether `status` is that of the file that stdout is, where the order of what is written there matters.
[[nodiscard]] bool is_standard_output(const struct stat& status);

/// What is printed on stdout from here on goes to stderr, and whether it can be written no longer matters.
void send_output_to_stderr();

}  // namespace trimul::cli
