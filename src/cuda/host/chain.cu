// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "cuda/host/chain.hpp"

namespace trimul::cuda {
namespace {

/// Stands in a graph until the first call puts a kernel in its place.
__global__ void placeholder_kernel() {}

cudaLaunchConfig_t make_config(const ChainLaunch& launch, cudaStream_t stream, cudaLaunchAttribute& attribute) {
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(launch.blocks));
  config.blockDim = dim3(static_cast<unsigned>(launch.threads));
  config.dynamicSmemBytes = launch.smem_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = launch.overlaps ? 1 : 0;
  return config;
}

/// Another thread's, or another library's, capture in the global mode does not forbid this thread the calls that make a graph.
class RelaxedCapture {
 public:
  RelaxedCapture() { TRIMUL_CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

class OwnStream {
 public:
  OwnStream() { TRIMUL_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~OwnStream() { (void)cudaStreamDestroy(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// A capture's nodes from first to last; they form a chain.
std::array<cudaGraphNode_t, ChainGraphs::kMostKernels> nodes_in_order(cudaGraph_t graph, std::size_t count) {
  std::array<cudaGraphNode_t, ChainGraphs::kMostKernels> nodes{};
  std::size_t found = 1;
  TRIMUL_CUDA_CHECK(cudaGraphGetRootNodes(graph, nodes.data(), &found));
  for (std::size_t k = 1; k < count && found == 1; ++k) {
    cudaGraphEdgeData edge{};
#if CUDART_VERSION >= 13000
    TRIMUL_CUDA_CHECK(cudaGraphNodeGetDependentNodes(nodes[k - 1], &nodes[k], &edge, &found));
#else
    TRIMUL_CUDA_CHECK(cudaGraphNodeGetDependentNodes_v2(nodes[k - 1], &nodes[k], &edge, &found));
#endif
  }
  if (found != 1) throw core::Error(core::StatusCode::kInternal, "a captured chain of kernels is no chain");
  return nodes;
}

}  // namespace

bool has_programmatic_launch(const void* kernel) {
  cudaFuncAttributes attributes{};
  TRIMUL_CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
  return attributes.ptxVersion >= 90;
}

void ChainGraphs::instantiate(std::span<const bool> overlaps, Graph& result) {
  const OwnStream stream;
  TRIMUL_CUDA_CHECK(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed));
  for (const bool overlap : overlaps) {
    cudaLaunchAttribute attribute{};
    const cudaLaunchConfig_t config =
        make_config({.blocks = 1, .threads = 32, .smem_bytes = 0, .overlaps = overlap}, stream.get(), attribute);
    (void)cudaLaunchKernelEx(&config, placeholder_kernel);  // a failure ends the capture, which is looked at next
  }
  TRIMUL_CUDA_CHECK(cudaStreamEndCapture(stream.get(), &result.description));
  result.kernels = nodes_in_order(result.description, overlaps.size());
  TRIMUL_CUDA_CHECK(cudaGraphInstantiate(&result.executable, result.description, 0));
  // So that the first submission allocates nothing.
  TRIMUL_CUDA_CHECK(cudaGraphUpload(result.executable, stream.get()));
  TRIMUL_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
}

ChainGraphs* ChainGraphs::of_current_device(std::span<const bool> overlaps) {
  static std::mutex mutex;
  static auto& made = *new std::map<std::pair<int, std::vector<bool>>, std::unique_ptr<ChainGraphs>>;
  int device = 0;
  TRIMUL_CUDA_CHECK(cudaGetDevice(&device));
  const std::lock_guard lock(mutex);
  const auto [place, is_new] = made.try_emplace({device, {overlaps.begin(), overlaps.end()}});
  if (!is_new) return place->second.get();
  try {
    const RelaxedCapture relaxed;
    auto graphs = std::make_unique<ChainGraphs>();
    for (Graph& graph : graphs->graphs_) instantiate(overlaps, graph);
    place->second = std::move(graphs);
  } catch (const core::Error&) {
    // A driver that cannot make them: null stays, and kernels are launched one by one.
  }
  return place->second.get();
}

std::unique_lock<std::mutex> ChainGraphs::acquire(cudaStream_t stream, Graph** graph) {
  // Streams are handles of some alignment or small numbers.
  const auto bits = reinterpret_cast<std::uintptr_t>(stream);
  const std::size_t first = (bits ^ (bits >> 6) ^ (bits >> 12)) % graphs_.size();
  for (std::size_t k = 0; k < graphs_.size(); ++k) {
    Graph& candidate = graphs_[(first + k) % graphs_.size()];
    std::unique_lock lock(candidate.mutex, std::try_to_lock);
    if (!lock.owns_lock()) continue;
    *graph = &candidate;
    return lock;
  }
  *graph = &graphs_[first];
  return std::unique_lock(graphs_[first].mutex);
}

Chain::Chain(ChainGraphs* graphs, void* stream) : Chain(stream) {
  if (graphs == nullptr) return;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  int priority = 0;
  if (cudaStreamIsCapturing(stream_, &capture) != cudaSuccess || capture != cudaStreamCaptureStatusNone ||
      cudaStreamGetPriority(stream_, &priority) != cudaSuccess || priority != 0) {
    (void)cudaGetLastError();
    return;
  }
  lock_ = graphs->acquire(stream_, &graph_);
}

bool Chain::holds(const ChainKey& key) const {
  return graph_ != nullptr && !key.empty() && std::equal(key.begin(), key.end(), graph_->key.begin(), graph_->key.end());
}

void Chain::add_kernel(const void* kernel, const ChainLaunch& launch, const void* params, std::size_t param_bytes) {
  void* arguments[] = {const_cast<void*>(params)};
  if (graph_ == nullptr) {
    cudaLaunchAttribute attribute{};
    const cudaLaunchConfig_t config = make_config(launch, stream_, attribute);
    TRIMUL_CUDA_CHECK(cudaLaunchKernelExC(&config, kernel, arguments));
    return;
  }
  graph_->key = {};
  KernelCall& last = graph_->last[num_added_];
  const cudaGraphNode_t place = graph_->kernels[num_added_++];
  // A graph in which nothing was set is submitted in a quarter of the time. (Padding may differ between equal parameters, which costs
  // that.)
  if (last.kernel == kernel && last.launch == launch && last.param_bytes == param_bytes &&
      std::memcmp(last.params.data(), params, param_bytes) == 0)
    return;
  last.kernel = nullptr;  // until it is known to be set
  cudaKernelNodeParams node{};
  node.func = const_cast<void*>(kernel);
  node.gridDim = dim3(static_cast<unsigned>(launch.blocks));
  node.blockDim = dim3(static_cast<unsigned>(launch.threads));
  node.sharedMemBytes = static_cast<unsigned>(launch.smem_bytes);
  node.kernelParams = arguments;
  TRIMUL_CUDA_CHECK(cudaGraphExecKernelNodeSetParams(graph_->executable, place, &node));
  std::memcpy(last.params.data(), params, param_bytes);
  last.param_bytes = param_bytes;
  last.launch = launch;
  last.kernel = kernel;
}

void Chain::submit(const ChainKey& key) {
  if (graph_ == nullptr) return;
  graph_->key = key;
  TRIMUL_CUDA_CHECK(cudaGraphLaunch(graph_->executable, stream_));
  lock_.unlock();
  graph_ = nullptr;
}

}  // namespace trimul::cuda
