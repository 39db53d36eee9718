// SPDX-License-Identifier: Apache-2.0
#include "cpu/stages.hpp"

#include <algorithm>
#include <cstring>

#include "core/checked.hpp"
#include "core/error.hpp"
#include "core/parallel.hpp"
#include "cpu/gemm.hpp"

namespace trimul::cpu {
namespace {

using core::ceil_div;

/// Work per thread below which starting another one costs more than it brings (about 30 us a thread).
constexpr double kFlopPerThread = 4e6;

constexpr std::int64_t pad_floats(std::int64_t floats) {
  return core::round_up(floats, core::kWorkspaceAlignmentBytes / static_cast<std::int64_t>(sizeof(float)));
}

Storage storage_of(core::DType dtype) {
  switch (dtype) {
    case core::DType::kF16: return Storage::kF16;
    case core::DType::kBf16: return Storage::kBf16;
    case core::DType::kF32: return Storage::kF32;
    default: throw core::Error(core::StatusCode::kInternal, core::text("cpu: no storage for ", core::dtype_name(dtype)));
  }
}

/// Private parts of a thread's scratch, in floats.
struct InputTile {
  std::int64_t x, z, products, mask;
  explicit InputTile(const core::Problem& p)
      : x(pad_floats(kTilePairs * p.c_z)), z(x), products(pad_floats(2 * kChannelsPerGroup * kTilePairs)), mask(pad_floats(kTilePairs)) {}
  [[nodiscard]] std::int64_t total() const { return x + z + products + mask; }
};

struct OutputTile {
  std::int64_t x, z, u, value, gate, norm;
  explicit OutputTile(const core::Problem& p)
      : x(pad_floats(kTilePairs * p.c_z)),
        z(x),
        u(pad_floats(kTilePairs * p.c_hidden)),
        value(x),
        gate(x),
        norm(pad_floats(4 * kTilePairs)) {}
  [[nodiscard]] std::int64_t total() const { return x + z + u + value + gate + norm; }
};

int team_size(const core::Problem& problem, int most_threads) {
  const auto pairs = static_cast<double>(problem.pairs());
  const auto c = static_cast<double>(problem.c_hidden);
  const auto c_z = static_cast<double>(problem.c_z);
  const double flop = pairs * (8 * c_z * c + 2 * c * static_cast<double>(problem.tokens) + 2 * c_z * (c + c_z));
  const std::int64_t tasks = std::max(ceil_div(problem.pairs(), kTilePairs), problem.c_hidden);
  const auto worthwhile = static_cast<std::int64_t>(std::min(flop / kFlopPerThread, 4096.0));
  return static_cast<int>(std::clamp<std::int64_t>(std::min(worthwhile, tasks), 1, most_threads));
}

}  // namespace

WorkspaceLayout::WorkspaceLayout(const core::Problem& problem, int most_threads)
    : num_threads(team_size(problem, most_threads)),
      num_channel_threads(static_cast<int>(std::min<std::int64_t>(num_threads, problem.c_hidden))),
      plane_floats(pad_floats(problem.c_hidden * problem.pairs())),
      tile_thread_floats(std::max(InputTile(problem).total(), OutputTile(problem).total()) + pad_floats(gemm_scratch_floats())),
      channel_thread_floats(pad_floats(problem.pairs()) + pad_floats(gemm_scratch_floats())),
      gemm_floats(pad_floats(gemm_scratch_floats())) {}

std::size_t WorkspaceLayout::bytes() const {
  const std::int64_t pieces = std::max(num_threads * tile_thread_floats, num_channel_threads * channel_thread_floats);
  return static_cast<std::size_t>(2 * plane_floats + pieces) * sizeof(float);
}

Stages::Stages(const core::Problem& problem, const WorkspaceLayout& layout, const CpuPackedWeights& weights, const core::ExecuteArgs& args,
               std::int64_t sample)
    : problem_(problem), layout_(layout), weights_(weights), args_(args), rows_(row_kernels()), sample_(sample) {
  a_ = static_cast<float*>(args.workspace);
  b_ = a_ + layout.plane_floats;
  scratch_ = b_ + layout.plane_floats;
}

void Stages::input_projection() const {
  const std::int64_t tiles = ceil_div(problem_.pairs(), kTilePairs);
  core::parallel_for(layout_.num_threads, tiles, [this](std::int64_t tile, int thread) {
    const SingleThreadScope one_thread;
    const std::int64_t first = tile * kTilePairs;
    project_tile(first, std::min(kTilePairs, problem_.pairs() - first), scratch_ + thread * layout_.tile_thread_floats);
  });
}

void Stages::triangle_contraction() const {
  core::parallel_for(layout_.num_channel_threads, problem_.c_hidden, [this](std::int64_t channel, int thread) {
    const SingleThreadScope one_thread;
    contract_channel(channel, scratch_ + thread * layout_.channel_thread_floats);
  });
}

void Stages::output_projection() const {
  const std::int64_t tiles = ceil_div(problem_.pairs(), kTilePairs);
  core::parallel_for(layout_.num_threads, tiles, [this](std::int64_t tile, int thread) {
    const SingleThreadScope one_thread;
    const std::int64_t first = tile * kTilePairs;
    finish_tile(first, std::min(kTilePairs, problem_.pairs() - first), scratch_ + thread * layout_.tile_thread_floats);
  });
}

/// fp32 rows of x: the caller's memory when it is fp32 already, else `buffer`.
const float* Stages::load_x(std::int64_t first_pair, std::int64_t count, float* buffer) const {
  const std::int64_t first = (sample_ * problem_.pairs() + first_pair) * problem_.c_z;
  const auto* bytes = static_cast<const std::byte*>(args_.x) + first * static_cast<std::int64_t>(core::dtype_bytes(problem_.x_dtype));
  if (problem_.x_dtype == core::DType::kF32 && !problem_.rounds_x_to_bf16()) return reinterpret_cast<const float*>(bytes);
  rows_.load(bytes, storage_of(problem_.x_dtype), problem_.rounds_x_to_bf16(), count * problem_.c_z, buffer);
  return buffer;
}

void Stages::load_mask(std::int64_t first_pair, std::int64_t count, float* out) const {
  const core::MaskView& mask = *args_.mask;
  const std::int64_t sample_offset = mask.batch_offset(sample_);
  std::int64_t i = first_pair / problem_.tokens;
  std::int64_t j = first_pair % problem_.tokens;
  for (std::int64_t r = 0; r < count; ++r) {
    out[r] = static_cast<float>(core::load_as_double(mask.data, mask.dtype, sample_offset + i * mask.stride_i + j * mask.stride_j));
    if (++j == problem_.tokens) {
      j = 0;
      ++i;
    }
  }
}

void Stages::project_tile(std::int64_t first_pair, std::int64_t count, float* scratch) const {
  const InputTile part(problem_);
  float* const z = scratch + part.x;
  float* const products = z + part.z;  // [2 * group, count]: values, then gates
  float* const mask = products + part.products;
  float* const gemm_scratch = mask + part.mask;
  const std::int64_t c = problem_.c_hidden;
  const float* x = load_x(first_pair, count, scratch);
  rows_.layer_norm_rows(x, count, problem_.c_z, {weights_.norm_in_weight.data(), weights_.norm_in_bias.data(), problem_.eps}, z);
  if (args_.mask) load_mask(first_pair, count, mask);

  for (std::int64_t group = 0; group < 2 * c; group += kChannelsPerGroup) {
    const std::int64_t channels = std::min(kChannelsPerGroup, 2 * c - group);
    const Matrix rows{weights_.in_weight.data() + 2 * group * problem_.c_z, problem_.c_z};
    gemm(2 * channels, count, problem_.c_z, rows, {z, problem_.c_z, Transpose::kYes}, products, count, gemm_scratch);
    for (std::int64_t k = 0; k < channels; ++k) {
      const std::int64_t channel = group + k;
      float* const plane = channel < c ? a_ + channel * problem_.pairs() : b_ + (channel - c) * problem_.pairs();
      const auto index = static_cast<std::size_t>(channel);
      rows_.gate_channel(products + k * count, products + (channels + k) * count, weights_.p_in_bias[index], weights_.g_in_bias[index],
                         args_.mask ? mask : nullptr, count, plane + first_pair);
    }
  }
}

void Stages::contract_channel(std::int64_t channel, float* scratch) const {
  const std::int64_t n = problem_.tokens;
  float* const a = a_ + channel * problem_.pairs();
  const float* const b = b_ + channel * problem_.pairs();
  float* const gemm_scratch = scratch + layout_.channel_thread_floats - layout_.gemm_floats;
  const bool outgoing = problem_.direction == core::Direction::kOutgoing;
  const Matrix left{a, n, outgoing ? Transpose::kNo : Transpose::kYes};
  const Matrix right{b, n, outgoing ? Transpose::kYes : Transpose::kNo};
  gemm(n, n, n, left, right, scratch, n, gemm_scratch);
  std::memcpy(a, scratch, static_cast<std::size_t>(problem_.pairs()) * sizeof(float));
}

void Stages::finish_tile(std::int64_t first_pair, std::int64_t count, float* scratch) const {
  const OutputTile part(problem_);
  float* const z = scratch + part.x;
  float* const u = z + part.z;  // [C, count]
  float* const value = u + part.u;
  float* const gate = value + part.value;
  float* const norm = gate + part.gate;
  float* const gemm_scratch = norm + part.norm;
  const std::int64_t c = problem_.c_hidden;
  const std::int64_t c_z = problem_.c_z;
  const float* x = load_x(first_pair, count, scratch);
  rows_.layer_norm_rows(x, count, c_z, {weights_.norm_in_weight.data(), weights_.norm_in_bias.data(), problem_.eps}, z);
  rows_.layer_norm_columns(a_ + first_pair, problem_.pairs(), c, count,
                           {weights_.norm_out_weight.data(), weights_.norm_out_bias.data(), problem_.eps}, u, norm);
  gemm(count, c_z, c, {u, count, Transpose::kYes}, {weights_.p_out_weight.data(), c, Transpose::kYes}, value, c_z, gemm_scratch);
  gemm(count, c_z, c_z, {z, c_z}, {weights_.g_out_weight.data(), c_z, Transpose::kYes}, gate, c_z, gemm_scratch);
  const std::int64_t first = (sample_ * problem_.pairs() + first_pair) * c_z;
  auto* const out = static_cast<std::byte*>(args_.out) + first * static_cast<std::int64_t>(core::dtype_bytes(problem_.out_dtype()));
  rows_.gate_output(value, gate, weights_.p_out_bias.data(), weights_.g_out_bias.data(), problem_.residual ? x : nullptr, count, c_z, out,
                    storage_of(problem_.out_dtype()));
}

}  // namespace trimul::cpu
