// SPDX-License-Identifier: Apache-2.0
#include "output_file.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <random>

#include "failure.hpp"
#include "standard_streams.hpp"

namespace trimul::cli {
namespace {

// Path of the temporary file for the signal handler. Filled before the file is created and marked unused after it is renamed or
// removed, so that no moment exists in which a signal would leave the file behind.
char temporary_path[PATH_MAX];
std::atomic<bool> has_temporary{false};

extern "C" void on_terminating_signal(int signal) {
  if (has_temporary.load()) ::unlink(temporary_path);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// A file descriptor with its temporary path; gone with this object unless renamed.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& directory, unsigned mode) {
    // The name is ours alone (process id and 64 random bits), so the handler may remove it even if it was never created.
    std::random_device random;
    const std::string path = fmt::format("{}/.trimul-{}-{:08x}{:08x}.tmp", directory, ::getpid(), random(), random());
    if (path.size() >= sizeof temporary_path) throw_errno(ENAMETOOLONG, "cannot be created");
    std::memcpy(temporary_path, path.c_str(), path.size() + 1);
    has_temporary = true;
    descriptor_ = ::open(temporary_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (descriptor_ < 0) {
      const int error = errno;
      has_temporary = false;
      throw_errno(error, "cannot be created");
    }
  }
  ~TemporaryFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (has_temporary) ::unlink(temporary_path);
    has_temporary = false;
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  [[noreturn]] static void throw_errno(int error, const char* what) { fail(kOther, "{}: {}", what, std::strerror(error)); }

  [[nodiscard]] int descriptor() const { return descriptor_; }

  void set_mode(unsigned mode) const {
    if (::fchmod(descriptor_, mode) != 0) throw_errno(errno, "its permissions cannot be set");
  }

  void rename_to(const std::string& target) {
    if (::fsync(descriptor_) != 0) throw_errno(errno, "cannot be written");
    const int descriptor = std::exchange(descriptor_, -1);
    if (::close(descriptor) != 0) throw_errno(errno, "cannot be written");  // network file systems report late
    if (::rename(temporary_path, target.c_str()) != 0) throw_errno(errno, "cannot be replaced");
    has_temporary = false;
  }

 private:
  int descriptor_ = -1;
};

/// For a pipe that whoever made it has set to not wait.
bool wait_until_writable(int descriptor) {
  pollfd entry{descriptor, POLLOUT, 0};
  return ::poll(&entry, 1, -1) == 1 || errno == EINTR;
}

void write_all(int descriptor, std::span<const std::byte> bytes) {
  constexpr std::size_t kMostPerCall = 64 << 20;
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), std::min(bytes.size(), kMostPerCall));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN && wait_until_writable(descriptor)) continue;
    if (written < 0) TemporaryFile::throw_errno(errno, "cannot be written");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

bool is_link(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode);
}

/// The file that a chain of symbolic links at `path` ends in, whether or not it exists; `path` itself when it is none. Links of /proc may
/// lead to what has no name, and stay.
std::string follow_links(const std::string& path) {
  constexpr int kMostLinks = 40;  // as the kernel follows
  struct stat ignored {};
  std::string target = path;
  for (int k = 0; k < kMostLinks && is_link(target); ++k) {
    std::array<char, PATH_MAX> text{};
    const ssize_t length = ::readlink(target.c_str(), text.data(), text.size());
    if (length <= 0) return target;
    const std::string next(text.data(), static_cast<std::size_t>(length));
    const std::string path_of_next = next.starts_with('/') ? next : directory_of(target) + "/" + next;
    if (::stat(target.c_str(), &ignored) == 0 && ::stat(path_of_next.c_str(), &ignored) != 0) return target;
    target = path_of_next;
  }
  return target;
}

}  // namespace

void remove_temporary_output_on_signals() {
  for (const int signal : {SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU}) {
    struct sigaction previous {};
    ::sigaction(signal, nullptr, &previous);
    if (previous.sa_handler == SIG_IGN) continue;  // as under nohup
    struct sigaction action {};
    action.sa_handler = on_terminating_signal;
    action.sa_flags = SA_NODEFER;  // so that the raise inside the handler is delivered at once
    sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
  }
  std::signal(SIGXFSZ, SIG_IGN);
}

OutputFile::OutputFile(const std::string& path) : path_(path), target_(follow_links(path)), directory_(directory_of(target_)) {
  naming(path_, [this] { examine(); });
}

OutputFile::~OutputFile() {
  if (standard_output_ >= 0) ::close(standard_output_);
}

void OutputFile::examine() {
  if (path_.ends_with('/') || target_.ends_with('/')) fail(kOther, "is a directory, expected a file");
  const mode_t mask = ::umask(0);
  ::umask(mask);
  mode_ = 0666U & ~mask;
  struct stat status {};
  if (::stat(target_.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) fail(kOther, "is a directory, expected a file");
    is_special_ = !S_ISREG(status.st_mode) || is_link(target_);  // a link that cannot be followed is one of /proc
    if (::access(target_.c_str(), W_OK) != 0) TemporaryFile::throw_errno(errno, "cannot be written");
    mode_ = status.st_mode & 0777U;
    is_standard_output_ = cli::is_standard_output(status);
    if (is_standard_output_ && is_special_) standard_output_ = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  } else if (errno != ENOENT) {
    TemporaryFile::throw_errno(errno, "cannot be written");
  }
  if (!is_special_) const TemporaryFile probe(directory_, 0600);
}

void OutputFile::write(const std::vector<std::span<const std::byte>>& parts) const {
  naming(path_, [&] {
    if (is_special_) return write_directly(parts);
    TemporaryFile file(directory_, 0600);
    for (const auto& part : parts) write_all(file.descriptor(), part);
    file.set_mode(mode_);
    file.rename_to(target_);
    // The rename itself reaches the disk with its directory. The file is complete either way, so a file system that cannot
    // flush directories is no error.
    const int directory = ::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) return;
    if (::fsync(directory) != 0) errno = 0;
    ::close(directory);
  });
}

void OutputFile::write_directly(const std::vector<std::span<const std::byte>>& parts) const {
  const int descriptor =
      standard_output_ >= 0 ? ::fcntl(standard_output_, F_DUPFD_CLOEXEC, 0) : ::open(target_.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  if (descriptor < 0) TemporaryFile::throw_errno(errno, "cannot be opened");
  try {
    for (const auto& part : parts) write_all(descriptor, part);
  } catch (...) {
    ::close(descriptor);
    throw;
  }
  if (::close(descriptor) != 0) TemporaryFile::throw_errno(errno, "cannot be written");
}

}  // namespace trimul::cli
