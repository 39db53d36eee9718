// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm80/implementation.hpp"

#include <array>
#include <limits>
#include <span>

#include "core/checked.hpp"
#include "core/error.hpp"
#include "cuda/host/call_key.hpp"
#include "cuda/host/code.hpp"
#include "cuda/host/guard.hpp"
#include "cuda/host/mask_params.hpp"
#include "cuda/sm80/heuristics.hpp"
#include "cuda/sm80/input_projection/config.hpp"
#include "cuda/sm80/mask_scale.hpp"
#include "cuda/sm80/output_projection/config.hpp"
#include "cuda/sm80/packed_weights.hpp"
#include "cuda/sm80/triangle_contraction/config.hpp"

namespace trimul::cuda::sm80 {
namespace {

constexpr std::int64_t kVectorBytes = 16;
constexpr std::array kTileOfKnob{64, 128};

bool is_aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % kVectorBytes == 0;
}

struct Configs {
  ProjectionConfig input;
  ContractionConfig contraction;
  ProjectionConfig output;
};

/// Knob value of a tile.
template <std::size_t kCount>
std::int64_t knob_of(const std::array<int, kCount>& choices, int tile) {
  std::int64_t value = 0;
  while (choices[static_cast<std::size_t>(value)] != tile) ++value;
  return value;
}

class Sm80Plan final : public core::StagedPlanBody {
 public:
  Sm80Plan(const core::Problem& problem, const core::DeviceInfo& device, const Configs& configs)
      : problem_(problem),
        device_(device),
        arithmetic_(arithmetic_of(problem)),
        configs_(configs),
        layout_(arithmetic_, problem.c_z, problem.c_hidden, configs.input.is_resident, configs.output.is_resident),
        weights_layout_(core::text("sm80 ", arithmetic_name(arithmetic_), " ", problem.c_z, "x", problem.c_hidden,
                                   configs.input.is_resident ? " resident" : "")) {
    positions_.rows = problem.batch * problem.tokens;
    positions_.tokens = problem.tokens;
    positions_.n_pad = plane_row(problem.tokens);
    positions_.pitch = plane_pitch(problem.batch, problem.tokens);
    if (problem.is_empty()) return;
    positions_.row_positions = FastDivisor(static_cast<std::uint32_t>(positions_.n_pad));
    const auto bytes_of = [&](std::int64_t element_bytes) {
      return static_cast<std::size_t>(core::round_up(positions_.pitch * problem.c_hidden * element_bytes, core::kWorkspaceAlignmentBytes));
    };
    plane_bytes_ = bytes_of(operand_bytes(arithmetic_));
    y_bytes_ = bytes_of(y_bytes(arithmetic_));
    if (problem.residual && !configs.output.is_whole) {
      most_copies_ = std::int64_t{2} * device.num_sms;
      copies_bytes_ = static_cast<std::size_t>(most_copies_ * configs.output.positions * problem.c_z *
                                               static_cast<std::int64_t>(core::dtype_bytes(problem.x_dtype)));
    }
    if (is_scaled(arithmetic_) && problem.has_mask)
      mask_scale_bytes_ = static_cast<std::size_t>(
          core::round_up(problem.batch * positions_.n_pad * std::int64_t{sizeof(float)}, core::kWorkspaceAlignmentBytes));
    if (device.is_hypothetical) return;
    const DeviceGuard guard(device.device.index);
    const auto smem_bytes = static_cast<std::size_t>(device.smem_per_block_bytes);
    prepare_input_projection(arithmetic_, problem.c_z, problem.has_in_bias, configs_.input, smem_bytes);
    prepare_triangle_contraction(arithmetic_, is_incoming(), configs_.contraction, smem_bytes);
    output_overlaps_ =
        prepare_output_projection(arithmetic_, problem.c_z, problem.c_hidden, problem.has_out_bias, configs_.output, smem_bytes);
    const std::array chain{false, false, false, false, output_overlaps_};
    const std::size_t others = mask_scale_bytes_ > 0 ? 0 : 1;  // than those of a packed call with mask_scale
    graphs_ = ChainGraphs::of_current_device(std::span(chain).subspan(others + 1));
    packing_graphs_ = ChainGraphs::of_current_device(std::span(chain).subspan(others));
  }

  [[nodiscard]] std::size_t workspace_bytes() const override { return mask_scale_begin() + mask_scale_bytes_; }

  [[nodiscard]] std::string explain() const override {
    const bool is_whole = configs_.input.is_whole && configs_.output.is_whole;
    return core::text("arithmetic: ", describe_arithmetic(), "\nrounding: ", describe_rounding(), "\nn_pad: ", positions_.n_pad,
                      "\nk1_tile: ", grain_of(configs_.input), " (", describe_projection(configs_.input),
                      ")\nk2_tile: ", knob_of(kTileOfKnob, configs_.contraction.tile), " (", configs_.contraction.tile, "x",
                      contraction_tile(arithmetic_, configs_.contraction.tile).columns, ")\nk3_tile: ", grain_of(configs_.output), " (",
                      describe_projection(configs_.output), ")\n",
                      is_whole ? "" : "rows: normalised part by part, too wide for shared memory\n",
                      "alignment: rows of x and out on 16 bytes, else element by element\n");
  }

  [[nodiscard]] std::string_view weights_layout() const override { return weights_layout_; }

  [[nodiscard]] std::size_t packed_bytes() const override { return static_cast<std::size_t>(layout_.bytes); }

  [[nodiscard]] std::unique_ptr<core::PackedWeights> pack_weights(const core::Parameters& parameters, void* memory,
                                                                  void* stream) const override {
    const DeviceGuard guard(device_.device.index);
    Chain chain(stream);
    return std::make_unique<Sm80PackedWeights>(parameters, arithmetic_, problem_.c_z, problem_.c_hidden, layout_, device_.device, memory,
                                               chain);
  }

  void execute(const core::ExecuteArgs& args) const override;
  void execute_parameters(core::ExecuteArgs args, const core::Parameters& parameters, void* memory) const override;
  void execute_stage(core::Stage stage, const core::ExecuteArgs& args) const override;

 private:
  [[nodiscard]] std::size_t mask_scale_begin() const { return 2 * plane_bytes_ + y_bytes_ + copies_bytes_; }
  [[nodiscard]] float* mask_scale(const core::ExecuteArgs& args) const {
    return mask_scale_bytes_ == 0 ? nullptr : reinterpret_cast<float*>(static_cast<std::uint8_t*>(args.workspace) + mask_scale_begin());
  }
  [[nodiscard]] bool is_incoming() const { return problem_.direction == core::Direction::kIncoming; }
  static std::string describe_projection(const ProjectionConfig& config) {
    if (!config.is_resident) return core::text(config.positions, " positions");
    return core::text(config.positions, " positions a warp, weights in shared memory",
                      config.parts == 1 ? "" : core::text(" in ", config.parts, " parts"));
  }
  [[nodiscard]] const char* describe_arithmetic() const {
    switch (arithmetic_) {
      case Arithmetic::kBf16: return "bf16 operands, fp32 sums";
      case Arithmetic::kFp16: return "fp16 operands, fp32 sums, y in fp32";
      case Arithmetic::kScaled: return "scaled fp16 operands, with as many bits as tf32, fp32 sums";
      case Arithmetic::kPairs: return "three products of fp32 operands in two scaled fp16 parts, fp32 sums";
      case Arithmetic::kIeee: return "fp32";
    }
    return "";
  }
  [[nodiscard]] const char* describe_rounding() const {
    switch (arithmetic_) {
      case Arithmetic::kBf16: return "normalised rows, a and b, y, out";
      case Arithmetic::kFp16:
      case Arithmetic::kScaled: return "normalised rows, a and b, out";
      default: return "out";
    }
  }
  [[nodiscard]] PairTensor pair_tensor(const void* data, core::DType dtype) const {
    const auto bytes = static_cast<std::int64_t>(core::dtype_bytes(dtype));
    return {.data = const_cast<void*>(data),
            .dtype = dtype,
            .is_vectorised = is_aligned(data) && problem_.c_z * bytes % kVectorBytes == 0,
            .is_rounded_to_bf16 = false,
            .width = static_cast<std::int32_t>(problem_.c_z)};
  }
  [[nodiscard]] PairTensor x_tensor(const core::ExecuteArgs& args) const {
    PairTensor x = pair_tensor(args.x, problem_.x_dtype);
    x.is_rounded_to_bf16 = problem_.rounds_x_to_bf16();
    return x;
  }
  void run_stages(const core::ExecuteArgs& args, Chain& chain) const;
  /// `in_chain`: behind the stages before it, whose end the output projection may overlap with.
  void run_stage(core::Stage stage, const core::ExecuteArgs& args, bool in_chain, Chain& chain) const;
  void project_input(std::uint8_t* planes, const core::ExecuteArgs& args, Chain& chain) const;
  void contract(const std::uint8_t* a, const std::uint8_t* b, std::uint8_t* y, const core::ExecuteArgs& args, Chain& chain) const;
  void project_output(const std::uint8_t* y, const core::ExecuteArgs& args, bool overlaps, Chain& chain) const;

  std::uint64_t id_ = next_plan_id();
  core::Problem problem_;
  core::DeviceInfo device_;
  Arithmetic arithmetic_;
  Configs configs_;
  PackedLayout layout_;
  std::string weights_layout_;
  Positions positions_;
  std::size_t plane_bytes_ = 0;       // of a, of b
  std::size_t y_bytes_ = 0;           // of y
  std::int64_t most_copies_ = 0;      // blocks that have room for rows of x behind the planes
  std::size_t copies_bytes_ = 0;      // of that room
  std::size_t mask_scale_bytes_ = 0;  // behind it, of what launch_mask_scale finds; 0: nothing
  bool output_overlaps_ = false;      // the output projection's start with the contraction's end
  ChainGraphs* graphs_ = nullptr;     // of the three kernels
  ChainGraphs* packing_graphs_ = nullptr;
};

void Sm80Plan::run_stages(const core::ExecuteArgs& args, Chain& chain) const {
  for (const auto stage : {core::Stage::kInputProjection, core::Stage::kTriangleContraction, core::Stage::kOutputProjection})
    run_stage(stage, args, true, chain);
}

void Sm80Plan::execute(const core::ExecuteArgs& args) const {
  const DeviceGuard guard(device_.device.index);
  Chain chain(graphs_, args.stream);
  const ChainKey key = call_key(id_, args, static_cast<const Sm80PackedWeights&>(*args.weights).at(0));
  if (!chain.holds(key)) run_stages(args, chain);
  chain.submit(key);
}

void Sm80Plan::execute_parameters(core::ExecuteArgs args, const core::Parameters& parameters, void* memory) const {
  const DeviceGuard guard(device_.device.index);
  Chain chain(packing_graphs_, args.stream);
  const ChainKey key = call_key(id_, args, parameters);
  if (!chain.holds(key)) {
    const Sm80PackedWeights packed(parameters, arithmetic_, problem_.c_z, problem_.c_hidden, layout_, device_.device, memory, chain);
    args.weights = &packed;
    run_stages(args, chain);
  }
  chain.submit(key);
}

void Sm80Plan::execute_stage(core::Stage stage, const core::ExecuteArgs& args) const {
  const DeviceGuard guard(device_.device.index);
  Chain chain(args.stream);
  run_stage(stage, args, false, chain);
}

void Sm80Plan::run_stage(core::Stage stage, const core::ExecuteArgs& args, bool in_chain, Chain& chain) const {
  auto* const a = static_cast<std::uint8_t*>(args.workspace);
  std::uint8_t* const b = a + positions_.pitch * problem_.c_hidden * operand_bytes(arithmetic_);
  std::uint8_t* const y = a + 2 * plane_bytes_;
  switch (stage) {
    case core::Stage::kInputProjection: return project_input(a, args, chain);
    case core::Stage::kTriangleContraction: return contract(a, b, y, args, chain);
    case core::Stage::kOutputProjection: return project_output(y, args, in_chain && output_overlaps_, chain);
  }
}

void Sm80Plan::project_input(std::uint8_t* planes, const core::ExecuteArgs& args, Chain& chain) const {
  const auto& weights = static_cast<const Sm80PackedWeights&>(*args.weights);
  InputProjectionParams params{};
  params.x = x_tensor(args);
  params.weights = weights.at(layout_.in_weight);
  params.norm = reinterpret_cast<const float2*>(weights.at(layout_.norm_in));
  if (is_scaled(arithmetic_)) {
    params.affine = reinterpret_cast<const float2*>(weights.at(layout_.in_affine));
    params.mask_scale = mask_scale(args);
    params.is_incoming = is_incoming();
  }
  params.bias = problem_.has_in_bias && !is_scaled(arithmetic_) ? reinterpret_cast<const float*>(weights.at(layout_.in_bias)) : nullptr;
  params.planes = planes;
  if (args.mask) params.mask = pack_mask(*args.mask, problem_, true);
  if (mask_scale_bytes_ > 0)
    launch_mask_scale(
        {.mask = params.mask, .scale = mask_scale(args), .batch = problem_.batch, .tokens = problem_.tokens, .n_pad = positions_.n_pad},
        is_incoming(), chain);
  params.positions = positions_;
  params.num_tiles = positions_.pitch / configs_.input.positions;
  params.channels = static_cast<std::int32_t>(2 * problem_.c_hidden);
  params.chunks = static_cast<std::int32_t>(layout_.in_chunks);
  params.slabs = static_cast<std::int32_t>(layout_.x_slabs);
  params.resident_slabs = configs_.input.x_slabs;
  params.stages = configs_.input.stages;
  params.parts = configs_.input.parts;
  params.is_fed = configs_.input.feed_bytes > 0;
  params.weight_bytes = static_cast<std::int32_t>(configs_.input.smem_bytes - configs_.input.feed_bytes -
                                                  static_cast<std::size_t>(problem_.c_z) * sizeof(float2));
  params.eps = problem_.eps;
  launch_input_projection(params, arithmetic_, configs_.input, device_.num_sms, chain);
}

void Sm80Plan::contract(const std::uint8_t* a, const std::uint8_t* b, std::uint8_t* y, const core::ExecuteArgs& args, Chain& chain) const {
  TriangleContractionParams params{};
  params.a = a;
  params.b = b;
  params.y = y;
  if (is_scaled(arithmetic_)) {
    params.exponents = reinterpret_cast<const std::int32_t*>(static_cast<const Sm80PackedWeights&>(*args.weights).at(layout_.exponents));
    params.mask_scale = mask_scale(args);
  }
  params.channels = static_cast<std::int32_t>(problem_.c_hidden);
  params.pitch = positions_.pitch;
  params.sample = positions_.n_pad * problem_.tokens;
  params.tokens = problem_.tokens;
  params.n_pad = positions_.n_pad;
  params.batch = problem_.batch;
  params.tiles_m = core::ceil_div(problem_.tokens, configs_.contraction.tile);
  params.tiles_n = core::ceil_div(problem_.tokens, contraction_tile(arithmetic_, configs_.contraction.tile).columns);
  params.total_tiles = problem_.batch * problem_.c_hidden * params.tiles_m * params.tiles_n;
  params.stages = configs_.contraction.stages;
  launch_triangle_contraction(params, arithmetic_, is_incoming(), configs_.contraction, chain);
}

void Sm80Plan::project_output(const std::uint8_t* y, const core::ExecuteArgs& args, bool overlaps, Chain& chain) const {
  const auto& weights = static_cast<const Sm80PackedWeights&>(*args.weights);
  const auto bias_at = [&](std::int64_t offset) {
    return problem_.has_out_bias && !is_scaled(arithmetic_) ? reinterpret_cast<const float*>(weights.at(offset)) : nullptr;
  };
  OutputProjectionParams params{};
  params.x = x_tensor(args);
  params.out = pair_tensor(args.out, problem_.out_dtype());
  params.y = y;
  params.weights = weights.at(layout_.out_weight);
  params.norm_in = reinterpret_cast<const float2*>(weights.at(layout_.norm_in));
  params.norm_out = reinterpret_cast<const float2*>(weights.at(layout_.norm_out));
  if (is_scaled(arithmetic_)) {
    params.p_affine = reinterpret_cast<const float2*>(weights.at(layout_.p_out_affine));
    params.g_affine = reinterpret_cast<const float2*>(weights.at(layout_.g_out_affine));
    params.is_unbiased = reinterpret_cast<const std::int32_t*>(weights.at(layout_.exponents)) + 2 * problem_.c_hidden;
  }
  params.p_bias = bias_at(layout_.p_out_bias);
  params.g_bias = bias_at(layout_.g_out_bias);
  const bool overwrites_rows = copies_bytes_ > 0 && args.out == args.x;
  params.copies = overwrites_rows ? static_cast<std::uint8_t*>(args.workspace) + 2 * plane_bytes_ + y_bytes_ : nullptr;
  params.positions = positions_;
  params.num_tiles = positions_.pitch / configs_.output.positions;
  params.channels = static_cast<std::int32_t>(problem_.c_hidden);
  params.chunks = static_cast<std::int32_t>(layout_.out_chunks);
  params.x_slabs = static_cast<std::int32_t>(layout_.x_slabs);
  params.y_slabs = static_cast<std::int32_t>(layout_.y_slabs);
  params.resident_x_slabs = configs_.output.x_slabs;
  params.resident_y_slabs = configs_.output.y_slabs;
  params.stages = configs_.output.stages;
  params.has_residual = problem_.residual;
  params.eps = problem_.eps;
  launch_output_projection(params, arithmetic_, configs_.output, overwrites_rows ? most_copies_ : params.num_tiles, device_.num_sms,
                           overlaps, chain);
}

std::optional<core::Rejection> can_run(const core::Problem& problem, const core::DeviceInfo& device) {
  using core::text;
  if (device.device.type != core::DeviceType::kCuda) return core::Rejection{"runs on a GPU, the problem is on the CPU"};
  if (device.sm < 80)
    return core::Rejection{text("needs compute capability 8.0 or newer, ", device.name, " has ", device.sm / 10, ".", device.sm % 10)};
  if (!device.is_hypothetical && !has_code_for(TRIMUL_CUDA_ARCHITECTURES, device.sm))
    return core::Rejection{text("this build has no code for compute capability ", device.sm / 10, ".", device.sm % 10, ", it was made for ",
                                TRIMUL_CUDA_ARCHITECTURES)};
  if (problem.x_dtype != core::DType::kBf16 && problem.x_dtype != core::DType::kF16 && problem.x_dtype != core::DType::kF32)
    return core::Rejection{text("reads bf16, fp16 or fp32 x, got ", core::dtype_name(problem.x_dtype))};
  if (problem.precision == core::Precision::kMxfp8) return core::Rejection{"does not compute in mxfp8"};
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max() / 4;
  for (const std::int64_t size : {problem.batch, problem.tokens, problem.c_z, problem.c_hidden})
    if (size > kMost) return core::Rejection{text("takes sizes up to ", kMost, ", got ", size)};
  constexpr std::int64_t kMostBytes = 32;  // of a position and channel of three planes, with room
  if (!core::checked_product({problem.batch, problem.tokens, plane_row(problem.tokens) + 128, problem.c_hidden, kMostBytes}))
    return core::Rejection{"its planes would be larger than 2^63 bytes"};
  return std::nullopt;
}

constexpr core::KnobRange kKnobRanges[] = {{"k1_tile", 0, kMostGrain}, {"k2_tile", 0, kTileOfKnob.size() - 1}, {"k3_tile", 0, kMostGrain}};

std::vector<std::int64_t> recommend_values(const core::Problem& problem, const core::DeviceInfo& device) {
  return {grain_of(input_projection_config(problem, device, -1)), knob_of(kTileOfKnob, contraction_config(problem, device, 0).tile),
          grain_of(output_projection_config(problem, device, -1))};
}

std::unique_ptr<core::PlanBody> make_plan(const core::Problem& problem, const core::DeviceInfo& device,
                                          const std::vector<core::Knob>& knobs) {
  const Configs configs{
      .input = input_projection_config(problem, device, static_cast<int>(knobs[0].value)),
      .contraction = contraction_config(problem, device, kTileOfKnob[static_cast<std::size_t>(knobs[1].value)]),
      .output = output_projection_config(problem, device, static_cast<int>(knobs[2].value)),
  };
  return std::make_unique<Sm80Plan>(problem, device, configs);
}

}  // namespace

core::Implementation implementation() {
  return {
      .name = "cuda:sm80",
      .describe =
          [] {
            return std::string("any width, bf16, fp16 and fp32 on compute capability 8.0 and newer: three launches of mma.sync kernels");
          },
      .can_run = can_run,
      .make_plan = make_plan,
      .knobs = kKnobRanges,
      .recommend = recommend_values};
}

}  // namespace trimul::cuda::sm80
