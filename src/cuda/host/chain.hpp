// SPDX-License-Identifier: Apache-2.0
// Kernels that follow one another on a stream, submitted for as little of the host's time as there is: one by one, or as a graph that is
// kept and whose kernels get their parameters anew at every call. Four kernels cost 2 us as a graph and 10 us one by one (H200, driver
// 580).
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <type_traits>

#include "core/inline_vector.hpp"
#include "cuda/host/check.hpp"

namespace trimul::cuda {

/// Lets `kernel` use `bytes` of dynamic shared memory on the current device.
template <typename Kernel>
void allow_shared_memory(Kernel* kernel, std::size_t bytes) {
  TRIMUL_CUDA_CHECK(
      cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
}

/// Whether the code that the current device runs of `kernel` was compiled for compute capability 9.0 or newer, where griddepcontrol.wait
/// is.
bool has_programmatic_launch(const void* kernel);

/// Launch of one kernel of a chain, all but its parameters. `overlaps`: it may start before the kernel before it has finished (programmatic
/// stream serialization), and waits for that by griddepcontrol.wait before its first access of memory that others write.
struct ChainLaunch {
  int blocks;
  int threads;
  std::size_t smem_bytes;
  bool overlaps;
  friend bool operator==(const ChainLaunch&, const ChainLaunch&) = default;
};

/// A kernel with all that a launch of it takes.
struct KernelCall {
  static constexpr std::size_t kMostParamBytes = 1024;

  const void* kernel = nullptr;
  ChainLaunch launch{};
  std::size_t param_bytes = 0;
  alignas(64) std::array<std::byte, kMostParamBytes> params;
};

/// What a submission depends on, in words: equal keys, equal kernels and parameters. Empty: nothing is known.
using ChainKey = core::InlineVector<std::uint64_t, 64>;

/// Instantiated graphs of a chain with given overlaps on one device, whatever its kernels are. They live as long as the process.
class ChainGraphs {
 public:
  static constexpr std::size_t kMostKernels = 5;

  /// Those of the current device, made at the first call. Null where the driver cannot make them; Chain launches one by one then.
  static ChainGraphs* of_current_device(std::span<const bool> overlaps);

  /// A graph that one caller at a time fills and submits. The driver runs submissions of one graph after the other.
  struct Graph {
    std::mutex mutex;
    cudaGraph_t description = nullptr;  // the kernels below are named through it, so it stays
    cudaGraphExec_t executable = nullptr;
    std::array<cudaGraphNode_t, kMostKernels> kernels{};
    std::array<KernelCall, kMostKernels> last{};  // what each kernel was set to
    ChainKey key;                                 // what they all were set for
  };

  ChainGraphs() = default;
  ChainGraphs(const ChainGraphs&) = delete;
  ChainGraphs& operator=(const ChainGraphs&) = delete;

  /// One that nobody else holds; for one stream the same again and again, so that streams do not wait for each other.
  std::unique_lock<std::mutex> acquire(cudaStream_t stream, Graph** graph);

 private:
  static void instantiate(std::span<const bool> overlaps, Graph& graph);

  // More streams than this that run updates at the same time take turns.
  std::array<Graph, 4> graphs_;
};

/// One submission: the kernels in their order, then submit().
class Chain {
 public:
  /// Every kernel is launched as it is added.
  explicit Chain(void* stream) : stream_(static_cast<cudaStream_t>(stream)) {}
  /// The kernels go as one graph of `graphs`; one by one where that is null, while the stream is being captured, or where it has a priority
  /// of its own, which the graph's kernels would not inherit.
  Chain(ChainGraphs* graphs, void* stream);

  /// Whether the graph holds what `key` stands for already: nothing needs to be added then, not even computed.
  [[nodiscard]] bool holds(const ChainKey& key) const;
  template <typename Params>
  void add(void (*kernel)(Params), const ChainLaunch& launch, const Params& params) {
    static_assert(sizeof(Params) <= KernelCall::kMostParamBytes && std::is_trivially_copyable_v<Params>);
    add_kernel(reinterpret_cast<const void*>(kernel), launch, &params, sizeof(Params));
  }
  /// Nothing of a graph runs before this. `key`: of what was added.
  void submit(const ChainKey& key);

 private:
  void add_kernel(const void* kernel, const ChainLaunch& launch, const void* params, std::size_t param_bytes);

  cudaStream_t stream_;
  ChainGraphs::Graph* graph_ = nullptr;
  std::unique_lock<std::mutex> lock_;
  std::size_t num_added_ = 0;
};

}  // namespace trimul::cuda
