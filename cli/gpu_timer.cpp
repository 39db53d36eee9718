// SPDX-License-Identifier: Apache-2.0
#include "gpu_timer.hpp"

#if defined(TRIMUL_HAVE_CUDA)
#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "empty_kernel.hpp"
#include "failure.hpp"
#endif

namespace trimul::cli {

#if defined(TRIMUL_HAVE_CUDA)
namespace {

void check_cuda(cudaError_t error, const char* call) {
  if (error != cudaSuccess) fail(kDevice, "{} failed: {}, {}", call, cudaGetErrorName(error), cudaGetErrorString(error));
}
#define TRIMUL_CLI_CUDA(call) check_cuda((call), #call)

struct GraphDeleter {
  void operator()(cudaGraphExec_t graph) const { (void)cudaGraphExecDestroy(graph); }
};

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

int attribute_of(int device, cudaDeviceAttr which) {
  int value = 0;
  TRIMUL_CLI_CUDA(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

class CudaTimer final : public GpuTimer {
 public:
  explicit CudaTimer(int device) : device_(device) {
    TRIMUL_CLI_CUDA(cudaSetDevice(device));
    TRIMUL_CLI_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    TRIMUL_CLI_CUDA(cudaEventCreate(&start_));
    TRIMUL_CLI_CUDA(cudaEventCreate(&end_));
  }
  ~CudaTimer() override {
    (void)cudaEventDestroy(start_);
    (void)cudaEventDestroy(end_);
    (void)cudaStreamDestroy(stream_);
  }
  CudaTimer(const CudaTimer&) = delete;
  CudaTimer& operator=(const CudaTimer&) = delete;

  [[nodiscard]] void* stream() const override { return stream_; }

  [[nodiscard]] Launches capture(const Launches& launches) const override {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    TRIMUL_CLI_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    launches();
    TRIMUL_CLI_CUDA(cudaStreamEndCapture(stream_, &graph));
    const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
    (void)cudaGraphDestroy(graph);
    TRIMUL_CLI_CUDA(error);
    return [this, owner = std::shared_ptr<CUgraphExec_st>(executable, GraphDeleter{})] {
      TRIMUL_CLI_CUDA(cudaGraphLaunch(owner.get(), stream_));
    };
  }

  [[nodiscard]] double window_us(const Launches& launches, int repeats, const std::function<void()>& meanwhile) const override {
    launches();
    TRIMUL_CLI_CUDA(cudaEventRecord(start_, stream_));
    for (int k = 0; k < repeats; ++k) launches();
    TRIMUL_CLI_CUDA(cudaEventRecord(end_, stream_));
    if (meanwhile) meanwhile();
    return elapsed_us() / repeats;
  }

  [[nodiscard]] double rested_us(const Launches& launches) const override {
    TRIMUL_CLI_CUDA(cudaStreamSynchronize(stream_));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<bool> is_queued = false;
    TRIMUL_CLI_CUDA(cudaLaunchHostFunc(
        stream_,
        [](void* flag) {
          while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
        },
        &is_queued));
    TRIMUL_CLI_CUDA(cudaEventRecord(start_, stream_));
    try {
      launches();
    } catch (...) {
      is_queued = true;
      (void)cudaStreamSynchronize(stream_);
      throw;
    }
    TRIMUL_CLI_CUDA(cudaEventRecord(end_, stream_));
    is_queued = true;
    return elapsed_us();
  }

  [[nodiscard]] double host_us(const Launches& launches) const override {
    TRIMUL_CLI_CUDA(cudaStreamSynchronize(stream_));
    const auto start = std::chrono::steady_clock::now();
    launches();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  }

  void launch_empty_kernels(int count) const override {
    const int blocks = attribute_of(device_, cudaDevAttrMultiProcessorCount);
    for (int k = 0; k < count; ++k) TRIMUL_CLI_CUDA(static_cast<cudaError_t>(launch_empty_kernel(blocks, stream_)));
  }

  void wait() const override { TRIMUL_CLI_CUDA(cudaDeviceSynchronize()); }

  [[nodiscard]] std::size_t l2_bytes() const override { return static_cast<std::size_t>(attribute_of(device_, cudaDevAttrL2CacheSize)); }

  [[nodiscard]] std::string runtime_version() const override {
    int version = 0;
    TRIMUL_CLI_CUDA(cudaRuntimeGetVersion(&version));
    return version_text(version);
  }
  [[nodiscard]] std::string driver_api_version() const override {
    int version = 0;
    TRIMUL_CLI_CUDA(cudaDriverGetVersion(&version));
    return version_text(version);
  }
  [[nodiscard]] std::string pci_bus_id() const override {
    std::array<char, 32> text{};
    TRIMUL_CLI_CUDA(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), device_));
    return text.data();
  }

 private:
  [[nodiscard]] double elapsed_us() const {
    float milliseconds = 0;
    TRIMUL_CLI_CUDA(cudaEventSynchronize(end_));
    TRIMUL_CLI_CUDA(cudaEventElapsedTime(&milliseconds, start_, end_));
    return 1e3 * static_cast<double>(milliseconds);
  }

  int device_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace

std::unique_ptr<GpuTimer> GpuTimer::make(const trimul_device& device) {
  int count = 0;
  if (device.type != TRIMUL_CUDA || cudaGetDeviceCount(&count) != cudaSuccess || device.index >= count) return nullptr;
  return std::make_unique<CudaTimer>(device.index);
}

#else

std::unique_ptr<GpuTimer> GpuTimer::make(const trimul_device&) {
  return nullptr;
}

#endif

}  // namespace trimul::cli
