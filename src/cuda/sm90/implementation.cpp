// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/implementation.hpp"

#include <array>
#include <limits>
#include <span>

#include "core/checked.hpp"
#include "core/error.hpp"
#include "cuda/host/call_key.hpp"
#include "cuda/host/guard.hpp"
#include "cuda/host/mask_params.hpp"
#include "cuda/host/tensor_map.hpp"
#include "cuda/sm90/heuristics.hpp"
#include "cuda/sm90/input_projection/config.hpp"
#include "cuda/sm90/output_projection/config.hpp"
#include "cuda/sm90/packed_weights.hpp"
#include "cuda/sm90/triangle_contraction/config.hpp"

namespace trimul::cuda::sm90 {
namespace {

constexpr std::size_t kTmaAlignmentBytes = 16;
constexpr std::uint64_t kElementBytes = 2;

/// Blocks of 64 channels of a row.
std::uint32_t blocks_of(std::int64_t width) {
  return static_cast<std::uint32_t>(width / kSwizzleColumns);
}

/// The boxes in which x or out travels (tile_copy.cuh): [blocks of a row, rows, columns, 64 channels].
CUtensorMap encode_pairs(const void* data, const core::Problem& problem, TileCopy copy, std::uint32_t box_columns,
                         std::uint32_t box_blocks) {
  const std::uint64_t row_bytes = static_cast<std::uint64_t>(problem.c_z) * kElementBytes;
  const auto rows = static_cast<std::uint64_t>(problem.batch * problem.tokens);
  const auto tokens = static_cast<std::uint64_t>(problem.tokens);
  const bool flat = copy == TileCopy::kFlat;
  return encode_tensor_map(data, {{.size = kSwizzleColumns, .stride_bytes = 0, .box = kSwizzleColumns},
                                  {.size = flat ? rows * tokens : tokens, .stride_bytes = row_bytes, .box = box_columns},
                                  {.size = flat ? 1 : rows, .stride_bytes = flat ? row_bytes : tokens * row_bytes, .box = 1},
                                  {.size = blocks_of(problem.c_z), .stride_bytes = kSwizzleRowBytes, .box = box_blocks}});
}

CUtensorMap encode_x(const void* x, const core::Problem& problem, TileCopy copy) {
  return copy == TileCopy::kUnits ? encode_pairs(x, problem, copy, kUnitPositions, 1)
                                  : encode_pairs(x, problem, copy, kTilePositions, blocks_of(problem.c_z));
}

CUtensorMap encode_out(const void* out, const core::Problem& problem, TileCopy copy) {
  constexpr std::uint32_t kWarpColumns = 16;  // a warp stores its own rows
  return encode_pairs(out, problem, copy, copy == TileCopy::kUnits ? kUnitPositions : kWarpColumns, 1);
}

bool is_aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % kTmaAlignmentBytes == 0;
}

class Sm90Plan final : public core::StagedPlanBody {
 public:
  Sm90Plan(const core::Problem& problem, const core::DeviceInfo& device, const Knobs& knobs)
      : problem_(problem),
        width_(static_cast<int>(problem.c_z)),
        device_(device),
        knobs_(knobs),
        pitch_(channel_pitch(problem.batch, problem.tokens)),
        plane_bytes_(static_cast<std::size_t>(
            core::round_up(pitch_ * problem.c_hidden * static_cast<std::int64_t>(kElementBytes), core::kWorkspaceAlignmentBytes))) {
    if (device.is_hypothetical || problem.is_empty()) return;
    const DeviceGuard guard(device.device.index);
    prepare_input_projection(width_);
    prepare_triangle_contraction();
    prepare_output_projection(width_);
    const auto overlaps = [this](Overlap kernel) { return (knobs_.overlap & kernel) != 0; };
    const std::array chain{false, overlaps(kOverlapInputProjection), overlaps(kOverlapTriangleContraction),
                           overlaps(kOverlapOutputProjection)};
    graphs_ = ChainGraphs::of_current_device(std::span(chain).subspan(1));
    packing_graphs_ = ChainGraphs::of_current_device(chain);
  }

  [[nodiscard]] std::size_t workspace_bytes() const override {
    return 3 * plane_bytes_ + static_cast<std::size_t>(pitch_) * sizeof(float2);
  }

  [[nodiscard]] std::string explain() const override {
    return core::text(
        "arithmetic: bf16 operands, fp32 sums\nrounding: normalised rows, a and b, y, out\nn_pad: ", padded_tokens(problem_.tokens),
        "\nk1_parts: ", knobs_.k1_parts, "\nk2_tile: ", static_cast<int>(knobs_.k2_tile), " (", contraction_variant_name(knobs_.k2_tile),
        ")\noverlap: ", knobs_.overlap, "\nalignment: x and out on 16 bytes, else one internal copy\n");
  }

  [[nodiscard]] std::string_view weights_layout() const override {
    return width_ == kWideWidth ? "sm90 bf16 256x256" : "sm90 bf16 128x128";
  }

  [[nodiscard]] std::size_t packed_bytes() const override { return PackedLayout(static_cast<std::size_t>(width_)).bytes; }

  [[nodiscard]] std::unique_ptr<core::PackedWeights> pack_weights(const core::Parameters& parameters, void* memory,
                                                                  void* stream) const override {
    const DeviceGuard guard(device_.device.index);
    Chain chain(stream);
    return std::make_unique<Sm90PackedWeights>(parameters, width_, device_.device, memory, chain);
  }

  void execute(const core::ExecuteArgs& args) const override;
  void execute_parameters(core::ExecuteArgs args, const core::Parameters& parameters, void* memory) const override;
  void execute_stage(core::Stage stage, const core::ExecuteArgs& args) const override;

 private:
  /// Null where copies go between the kernels, which the graphs have no place for.
  [[nodiscard]] ChainGraphs* usable(ChainGraphs* graphs, const core::ExecuteArgs& args) const {
    return is_aligned(args.x) && is_aligned(args.out) ? graphs : nullptr;
  }
  void run_stages(const core::ExecuteArgs& args, Chain& chain) const;
  /// `overlap`: of the knobs, or 0 for a stage by itself.
  void run_stage(core::Stage stage, const core::ExecuteArgs& args, unsigned overlap, Chain& chain) const;
  /// Scale and shift of every position's row of x, behind the planes: 8 bytes beside 768 or more.
  [[nodiscard]] float2* statistics(const core::ExecuteArgs& args) const {
    return reinterpret_cast<float2*>(static_cast<std::byte*>(args.workspace) + 3 * plane_bytes_);
  }
  void project_input(const void* x, std::byte* planes, bool overlaps, const core::ExecuteArgs& args, Chain& chain) const;
  void contract(std::byte* a, std::byte* b, std::byte* y, bool overlaps, Chain& chain) const;
  void project_output(const void* x, const std::byte* y, void* out, bool overlaps, const core::ExecuteArgs& args, Chain& chain) const;
  void copy_pairs(void* to, const void* from, void* stream) const {
    const auto bytes = static_cast<std::size_t>(problem_.x_elements()) * kElementBytes;
    TRIMUL_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(stream)));
  }

  std::uint64_t id_ = next_plan_id();
  core::Problem problem_;
  int width_;  // C_z = C
  core::DeviceInfo device_;
  Knobs knobs_;
  std::int64_t pitch_;                     // elements between channels of a, b and y
  std::size_t plane_bytes_;                // of a, of b, of y
  ChainGraphs* graphs_ = nullptr;          // of the three kernels
  ChainGraphs* packing_graphs_ = nullptr;  // of the packing kernel and the three
};

void Sm90Plan::run_stages(const core::ExecuteArgs& args, Chain& chain) const {
  for (const auto stage : {core::Stage::kInputProjection, core::Stage::kTriangleContraction, core::Stage::kOutputProjection})
    run_stage(stage, args, knobs_.overlap, chain);
}

void Sm90Plan::execute(const core::ExecuteArgs& args) const {
  const DeviceGuard guard(device_.device.index);
  Chain chain(usable(graphs_, args), args.stream);
  const ChainKey key = call_key(id_, args, static_cast<const Sm90PackedWeights&>(*args.weights).at(0));
  if (!chain.holds(key)) run_stages(args, chain);
  chain.submit(key);
}

void Sm90Plan::execute_parameters(core::ExecuteArgs args, const core::Parameters& parameters, void* memory) const {
  const DeviceGuard guard(device_.device.index);
  Chain chain(usable(packing_graphs_, args), args.stream);
  const ChainKey key = call_key(id_, args, parameters);
  if (!chain.holds(key)) {
    const Sm90PackedWeights packed(parameters, width_, device_.device, memory, chain);
    args.weights = &packed;
    run_stages(args, chain);
  }
  chain.submit(key);
}

void Sm90Plan::execute_stage(core::Stage stage, const core::ExecuteArgs& args) const {
  const DeviceGuard guard(device_.device.index);
  Chain chain(args.stream);
  run_stage(stage, args, 0, chain);
}

/// Bulk copies need 16-byte aligned tensors. A misaligned x or out passes through a plane of the workspace that is free at that moment: y's
/// before the contraction, then b's for x and a's for out.
void Sm90Plan::run_stage(core::Stage stage, const core::ExecuteArgs& args, unsigned overlap, Chain& chain) const {
  auto* const a = static_cast<std::byte*>(args.workspace);
  std::byte* const b = a + plane_bytes_;
  std::byte* const y = b + plane_bytes_;
  const bool copies_x = !is_aligned(args.x);
  switch (stage) {
    case core::Stage::kInputProjection: {
      if (copies_x) copy_pairs(y, args.x, args.stream);
      return project_input(copies_x ? y : args.x, a, (overlap & kOverlapInputProjection) != 0, args, chain);
    }
    case core::Stage::kTriangleContraction: return contract(a, b, y, (overlap & kOverlapTriangleContraction) != 0, chain);
    case core::Stage::kOutputProjection: {
      const bool copies_out = !is_aligned(args.out);
      if (copies_x) copy_pairs(b, args.x, args.stream);
      // The output projection reads x before it waits for the kernel before it: not while a copy is still writing it.
      project_output(copies_x ? b : args.x, y, copies_out ? a : args.out, (overlap & kOverlapOutputProjection) != 0 && !copies_x, args,
                     chain);
      if (copies_out) copy_pairs(args.out, a, args.stream);
    }
  }
}

void Sm90Plan::project_input(const void* x, std::byte* planes, bool overlaps, const core::ExecuteArgs& args, Chain& chain) const {
  const auto& weights = static_cast<const Sm90PackedWeights&>(*args.weights);
  const auto width = static_cast<std::uint64_t>(width_);
  InputProjectionParams params{};
  params.tiling = tile_pairs(problem_.batch, problem_.tokens);
  params.x = encode_x(x, problem_, params.tiling.copy);
  params.weights = encode_tensor_map(
      weights.at(weights.layout().in_weight),
      {{.size = width, .stride_bytes = 0, .box = kSwizzleColumns}, {.size = 4 * width, .stride_bytes = width * kElementBytes, .box = 128}});
  params.planes =
      encode_tensor_map(planes, {{.size = static_cast<std::uint64_t>(pitch_), .stride_bytes = 0, .box = kTilePositions},
                                 {.size = 2 * width, .stride_bytes = static_cast<std::uint64_t>(pitch_) * kElementBytes, .box = 64}});
  params.norm = reinterpret_cast<const float2*>(weights.at(weights.layout().norm_in));
  params.bias = problem_.has_in_bias ? reinterpret_cast<const float*>(weights.at(weights.layout().in_bias)) : nullptr;
  params.statistics = statistics(args);
  if (args.mask) params.mask = pack_mask(*args.mask, problem_, params.tiling.copy == TileCopy::kFlat);
  params.eps = problem_.eps;
  params.parts = knobs_.k1_parts;
  launch_input_projection(params, width_, overlaps, device_.num_sms, chain);
}

void Sm90Plan::contract(std::byte* a, std::byte* b, std::byte* y, bool overlaps, Chain& chain) const {
  const TriangleContractionConfig config = contraction_config(knobs_.k2_tile);
  const bool incoming = problem_.direction == core::Direction::kIncoming;
  const auto tokens = static_cast<std::uint64_t>(problem_.tokens);
  const std::uint64_t row_bytes = static_cast<std::uint64_t>(padded_tokens(problem_.tokens)) * kElementBytes;
  const auto encode_planes = [&](const std::byte* planes, std::uint64_t columns, std::uint32_t box_rows) {
    return encode_tensor_map(
        planes,
        {{.size = columns, .stride_bytes = 0, .box = 64},
         {.size = tokens, .stride_bytes = row_bytes, .box = box_rows},
         {.size = static_cast<std::uint64_t>(problem_.batch), .stride_bytes = tokens * row_bytes, .box = 1},
         {.size = static_cast<std::uint64_t>(width_), .stride_bytes = static_cast<std::uint64_t>(pitch_) * kElementBytes, .box = 1}});
  };
  const auto rows_of = [](int rows) { return static_cast<std::uint32_t>(rows); };
  TriangleContractionParams params{};
  params.a = encode_planes(a, tokens, incoming ? 64 : rows_of(config.tile_m()));
  params.b = encode_planes(b, tokens, incoming || config.narrow_tile_n != 0 ? 64 : rows_of(config.tile_n));
  params.y = encode_planes(y, row_bytes / kElementBytes, 64);
  const ContractionTiling tiling = tile_contraction(knobs_.k2_tile, problem_.tokens, problem_.batch * width_, device_.num_sms);
  params.batch = FastDivisor(static_cast<std::uint32_t>(problem_.batch));
  params.tokens = static_cast<std::int32_t>(problem_.tokens);
  params.k_stages = tiling.k_stages;
  params.last_k_steps = tiling.last_k_steps;
  params.tiles_m = tiling.tiles_m;
  params.tiles_n = tiling.tiles_n;
  params.wide_tiles_n = tiling.wide_tiles_n;
  params.total_tiles = static_cast<std::int32_t>(tiling.total_tiles);
  params.rotation = tiling.rotation;
  params.load_policy = plane_policy(problem_.batch, problem_.tokens, problem_.c_hidden);
  params.overlaps_projection = overlaps;
  params.skips_empty_rows = tiling.skips_empty_rows;
  launch_triangle_contraction(knobs_.k2_tile, incoming, params, device_.num_sms, chain);
}

void Sm90Plan::project_output(const void* x, const std::byte* y, void* out, bool overlaps, const core::ExecuteArgs& args,
                              Chain& chain) const {
  const auto& weights = static_cast<const Sm90PackedWeights&>(*args.weights);
  const auto width = static_cast<std::uint64_t>(width_);
  OutputProjectionParams params{};
  params.tiling = tile_pairs(problem_.batch, problem_.tokens);
  params.x = encode_x(x, problem_, params.tiling.copy);
  params.out = encode_out(out, problem_, params.tiling.copy);
  params.y = encode_tensor_map(
      y, {{.size = static_cast<std::uint64_t>(pitch_), .stride_bytes = 0, .box = kTilePositions},
          {.size = width, .stride_bytes = static_cast<std::uint64_t>(pitch_) * kElementBytes, .box = static_cast<std::uint32_t>(width_)}});
  // Of the wide ones a box has the output channels of one stage.
  const auto box_rows = static_cast<std::uint32_t>(width_ == kWideWidth ? 64 : width_);
  const auto encode_weight = [&](std::size_t offset) {
    return encode_tensor_map(weights.at(offset), {{.size = width, .stride_bytes = 0, .box = kSwizzleColumns},
                                                  {.size = width, .stride_bytes = width * kElementBytes, .box = box_rows}});
  };
  params.p_weight = encode_weight(weights.layout().p_out_weight);
  params.g_weight = encode_weight(weights.layout().g_out_weight);
  params.statistics = statistics(args);
  params.y_policy = plane_policy(problem_.batch, problem_.tokens, problem_.c_hidden);
  params.norm_in = reinterpret_cast<const float2*>(weights.at(weights.layout().norm_in));
  params.norm_out = reinterpret_cast<const float2*>(weights.at(weights.layout().norm_out));
  params.bias = reinterpret_cast<const float*>(weights.at(weights.layout().out_bias));
  params.eps = problem_.eps;
  launch_output_projection(params, {width_, problem_.residual, problem_.has_out_bias}, overlaps, device_.num_sms, chain);
}

std::optional<core::Rejection> can_run(const core::Problem& problem, const core::DeviceInfo& device) {
  using core::text;
  if (device.device.type != core::DeviceType::kCuda) return core::Rejection{"runs on a GPU, the problem is on the CPU"};
  if (device.sm != 90)
    return core::Rejection{text("needs compute capability 9.0, ", device.name, " has ", device.sm / 10, ".", device.sm % 10)};
  if (problem.x_dtype != core::DType::kBf16) return core::Rejection{text("reads bf16 x, got ", core::dtype_name(problem.x_dtype))};
  if (problem.precision == core::Precision::kIeee || problem.precision == core::Precision::kMxfp8)
    return core::Rejection{text("computes with bf16 operands, precision ", core::precision_name(problem.precision), " was asked for")};
  if (problem.c_z != problem.c_hidden || (problem.c_z != kPairWidth && problem.c_z != kWideWidth))
    return core::Rejection{
        text("C_z = C must be ", kPairWidth, " or ", kWideWidth, ", got C_z = ", problem.c_z, ", C = ", problem.c_hidden)};
  if (problem.is_empty()) return std::nullopt;
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (problem.tokens > 65536 || channel_pitch(problem.batch, problem.tokens) > kMost)
    return core::Rejection{text("counts positions of a plane in 31 bits, B N n_pad is ", channel_pitch(problem.batch, problem.tokens))};
  // Of the smallest tiles, which a knob can ask for. Tiny planes: a tile each, however few positions they hold.
  const std::int64_t tiles =
      tile_contraction(ContractionVariant::kSmall64x64, problem.tokens, problem.batch * problem.c_hidden, device.num_sms).total_tiles;
  // A block looks for a tile as far as two grids behind the last one.
  const std::int64_t most_blocks = std::int64_t{device.num_sms} * contraction_config(ContractionVariant::kSmall64x64).blocks_per_sm;
  if (tiles > kMost - 2 * most_blocks) return core::Rejection{text("counts the contraction's tiles in 31 bits, here are ", tiles)};
  return std::nullopt;
}

constexpr core::KnobRange kKnobRanges[] = {{"k1_parts", 1, 2}, {"k2_tile", 0, kNumContractionVariants - 1}, {"overlap", 0, kOverlapAll}};

std::vector<std::int64_t> recommend_values(const core::Problem& problem, const core::DeviceInfo&) {
  const Knobs knobs = recommend(problem.tokens, problem.c_hidden, problem.batch, problem.direction);
  return {knobs.k1_parts, static_cast<std::int64_t>(knobs.k2_tile), knobs.overlap};
}

std::unique_ptr<core::PlanBody> make_plan(const core::Problem& problem, const core::DeviceInfo& device,
                                          const std::vector<core::Knob>& knobs) {
  return std::make_unique<Sm90Plan>(problem, device,
                                    Knobs{.k1_parts = static_cast<int>(knobs[0].value),
                                          .k2_tile = static_cast<ContractionVariant>(knobs[1].value),
                                          .overlap = static_cast<unsigned>(knobs[2].value)});
}

}  // namespace

core::Implementation implementation() {
  return {.name = "cuda:sm90",
          .describe =
              [] {
                return core::text("bf16 on Hopper at C_z = C = ", kPairWidth, " and ", kWideWidth,
                                  ": three launches of wgmma and TMA kernels");
              },
          .can_run = can_run,
          .make_plan = make_plan,
          .knobs = kKnobRanges,
          .recommend = recommend_values};
}

}  // namespace trimul::cuda::sm90
