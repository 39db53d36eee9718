// SPDX-License-Identifier: Apache-2.0
// Output that appears whole or not at all.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace trimul::cli {

/// Installs handlers for the signals that would end the process, SIGTERM, SIGINT, SIGQUIT and SIGHUP among them. They remove the temporary
/// file of an OutputFile, if there is one, and then end the process by that same signal; SIGXFSZ is ignored so that a file-size limit is
/// a write error. Call once, in main.
void remove_temporary_output_on_signals();

/// A file to be written later. The constructor finds out whether it can be (directory, permissions, read-only or missing
/// place), so that nobody waits for a result that cannot be stored; it changes nothing. Failures are kOther.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Writes `parts` to a temporary file in the same directory, flushes it to the disk and renames it over the path: at every
  /// moment the path holds the old content or all of the new. On failure the temporary file is gone and the old content intact.
  /// Devices and pipes are written to directly.
  void write(const std::vector<std::span<const std::byte>>& parts) const;

  /// Whether stdout goes to this very file, so that nothing else may be printed there: send_output_to_stderr.
  [[nodiscard]] bool is_standard_output() const { return is_standard_output_; }

 private:
  void examine();
  void write_directly(const std::vector<std::span<const std::byte>>& parts) const;

  std::string path_;         // as given, for messages
  std::string target_;       // path_ with symbolic links at its end followed, also those that lead to nothing yet
  std::string directory_;    // of target_
  unsigned mode_ = 0;        // permission bits of the new file: those of the old one, else as the umask says
  bool is_special_ = false;  // written to directly
  bool is_standard_output_ = false;
  int standard_output_ = -1;  // a descriptor of it that stays when stdout is sent elsewhere, if it is special
};

}  // namespace trimul::cli
