// SPDX-License-Identifier: Apache-2.0
// Streams and graphs of GPU 0, for tests of how an execute behaves between other work. Only in builds with CUDA, whose headers stay behind
// this one. A call of the runtime that fails fails the test.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace trimul::testing {

/// Launches that were captured, ready to be replayed.
class GpuGraph {
 public:
  explicit GpuGraph(void* executable) : executable_(executable) {}
  GpuGraph(const GpuGraph&) = delete;
  GpuGraph& operator=(const GpuGraph&) = delete;
  ~GpuGraph();
  [[nodiscard]] void* executable() const { return executable_; }

 private:
  void* executable_;
};

/// A stream that waits for no other, the default stream included.
class GpuStream {
 public:
  GpuStream();
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  ~GpuStream();

  [[nodiscard]] void* handle() const { return handle_; }
  void wait() const;
  /// Nothing is waiting or running.
  [[nodiscard]] bool is_idle() const;
  /// What `launches` puts on this stream, which runs nothing of it. Captured in the mode in which a call that allocates or waits, anywhere
  /// in the process, is an error.
  [[nodiscard]] std::unique_ptr<GpuGraph> capture(const std::function<void()>& launches) const;
  void replay(const GpuGraph& graph) const;
  void copy(void* to, const void* from, std::size_t bytes) const;

 private:
  void* handle_ = nullptr;
};

/// While it lives, work that is put on the stream after its construction does not start.
class HeldStream {
 public:
  explicit HeldStream(const GpuStream& stream);
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;
  ~HeldStream();
  /// Lets the work go and waits for it. False when it had gone by itself: somebody waited for the stream while it was held, and would have
  /// waited forever.
  bool release();

 private:
  struct Gate;
  const GpuStream& stream_;
  std::unique_ptr<Gate> gate_;
};

/// Bytes of GPU 0 that nobody has allocated.
std::size_t free_gpu_bytes();

}  // namespace trimul::testing
