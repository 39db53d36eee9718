// SPDX-License-Identifier: Apache-2.0
// Output that appears whole or not at all.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace trimul::cli {

/// Installs handlers for SIGTERM, SIGINT and SIGHUP that remove the temporary file of an OutputFile, if there is one, and then
/// end the process by that same signal; SIGXFSZ is ignored so that a file-size limit is a write error. Call once, in main.
void remove_temporary_output_on_signals();

/// A file to be written later. The constructor finds out whether it can be (directory, permissions, read-only or missing
/// place), so that nobody waits for a result that cannot be stored; it changes nothing. Failures are kOther.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);

  /// Writes `parts` to a temporary file in the same directory, flushes it to the disk and renames it over the path: at every
  /// moment the path holds the old content or all of the new. On failure the temporary file is gone and the old content intact.
  /// Devices and pipes are written to directly.
  void write(const std::vector<std::span<const std::byte>>& parts) const;

 private:
  void write_directly(const std::vector<std::span<const std::byte>>& parts) const;

  std::string path_;       // as given, for messages
  std::string target_;     // path_ with a final symbolic link followed
  std::string directory_;  // of target_
  unsigned mode_ = 0;      // permission bits of the new file: those of the old one, else as the umask says
  bool is_special_ = false;
};

}  // namespace trimul::cli
