// SPDX-License-Identifier: Apache-2.0
#include "support/gpu_stream.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

#define TRIMUL_EXPECT_CUDA(call) EXPECT_EQ((call), cudaSuccess) << #call << ": " << cudaGetErrorString(cudaGetLastError())

namespace trimul::testing {
namespace {

cudaStream_t stream_of(const GpuStream& stream) {
  return static_cast<cudaStream_t>(stream.handle());
}

}  // namespace

GpuGraph::~GpuGraph() {
  if (executable_ != nullptr) (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_));
}

GpuStream::GpuStream() {
  cudaStream_t stream = nullptr;
  TRIMUL_EXPECT_CUDA(cudaSetDevice(0));
  TRIMUL_EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  handle_ = stream;
}

GpuStream::~GpuStream() {
  (void)cudaStreamDestroy(stream_of(*this));
}

void GpuStream::wait() const {
  TRIMUL_EXPECT_CUDA(cudaStreamSynchronize(stream_of(*this)));
}

bool GpuStream::is_idle() const {
  const cudaError_t state = cudaStreamQuery(stream_of(*this));
  EXPECT_TRUE(state == cudaSuccess || state == cudaErrorNotReady) << cudaGetErrorString(state);
  if (state == cudaErrorNotReady) (void)cudaGetLastError();
  return state == cudaSuccess;
}

std::unique_ptr<GpuGraph> GpuStream::capture(const std::function<void()>& launches) const {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  TRIMUL_EXPECT_CUDA(cudaStreamBeginCapture(stream_of(*this), cudaStreamCaptureModeGlobal));
  launches();
  TRIMUL_EXPECT_CUDA(cudaStreamEndCapture(stream_of(*this), &graph));
  TRIMUL_EXPECT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  TRIMUL_EXPECT_CUDA(cudaGraphDestroy(graph));
  return std::make_unique<GpuGraph>(executable);
}

void GpuStream::replay(const GpuGraph& graph) const {
  TRIMUL_EXPECT_CUDA(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph.executable()), stream_of(*this)));
}

void GpuStream::copy(void* to, const void* from, std::size_t bytes) const {
  TRIMUL_EXPECT_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(*this)));
}

/// Opened by the test, or by itself after longer than any test takes.
struct HeldStream::Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_open = false;
  bool has_opened_itself = false;

  void wait() {
    std::unique_lock lock(mutex);
    has_opened_itself = !changed.wait_for(lock, std::chrono::seconds(20), [this] { return is_open; });
  }
};

HeldStream::HeldStream(const GpuStream& stream) : stream_(stream), gate_(std::make_unique<Gate>()) {
  TRIMUL_EXPECT_CUDA(cudaLaunchHostFunc(
      stream_of(stream), [](void* gate) { static_cast<Gate*>(gate)->wait(); }, gate_.get()));
}

HeldStream::~HeldStream() {
  (void)release();
}

bool HeldStream::release() {
  {
    const std::lock_guard lock(gate_->mutex);
    gate_->is_open = true;
  }
  gate_->changed.notify_all();
  stream_.wait();
  return !gate_->has_opened_itself;
}

std::size_t free_gpu_bytes() {
  std::size_t available = 0, total = 0;
  TRIMUL_EXPECT_CUDA(cudaMemGetInfo(&available, &total));
  return available;
}

}  // namespace trimul::testing
