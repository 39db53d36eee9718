// SPDX-License-Identifier: Apache-2.0
// What surrounds an execute that packs its parameters, and weights packed into the caller's memory: sizes, alignment, overlap, presence.
// Where packed weights lie on a device, a stand-in shows the arithmetic. Results: tests/ops/parameters_test.cpp.
#include <gtest/gtest.h>

#include <cstring>

#include "support/call.hpp"

namespace trimul::testing {
namespace {

const Spec kPlain{.n = 4, .c_z = 8, .c = 6};

std::string clash(const char* written, const char* other) {
  return std::string("INVALID_ARGUMENT: ") + written + ": its memory intersects that of " + other + ", expected no common byte";
}

/// A valid execute with parameters.
class ParametersCall : public Call {
 public:
  explicit ParametersCall(const Spec& spec) : Call(spec), room(trimul_plan_workspace_bytes_with_parameters(plan.get())) {
    args.weights = nullptr;
    args.workspace = room.data();
    args.workspace_bytes = room.size();
  }
  /// "OK" or status and message. A refused call has written nothing.
  std::string execute_parameters() {
    const auto out_before = out.buffer().copy();
    const auto room_before = room.copy();
    const std::string text = outcome(trimul_execute_parameters(plan.get(), &args, &bound.parameters));
    EXPECT_TRUE(text == "OK" || out_before == out.buffer().copy()) << "a refused call wrote to out: " << text;
    EXPECT_TRUE(text == "OK" || room_before == room.copy()) << "a refused call wrote to the workspace: " << text;
    return text;
  }
  GuardedBuffer room;
};

TEST(ExecuteParameters, TakesNoWeights) {
  ParametersCall call(kPlain);
  EXPECT_EQ(call.execute_parameters(), "OK");
  call.args.weights = call.weights.get();
  EXPECT_EQ(call.execute_parameters(), "INVALID_ARGUMENT: weights: given, but the parameters are to be packed, expected NULL");
}

TEST(ExecuteParameters, NamesWhatIsNull) {
  ParametersCall call(kPlain);
  EXPECT_EQ(outcome(trimul_execute_parameters(nullptr, &call.args, &call.bound.parameters)), "INVALID_ARGUMENT: plan: is NULL");
  EXPECT_EQ(outcome(trimul_execute_parameters(call.plan.get(), nullptr, &call.bound.parameters)),
            "INVALID_ARGUMENT: args: is NULL, expected a struct");
  EXPECT_EQ(outcome(trimul_execute_parameters(call.plan.get(), &call.args, nullptr)),
            "INVALID_ARGUMENT: parameters: is NULL, expected a struct");
  call.bound.parameters.struct_size = 4;
  EXPECT_EQ(call.execute_parameters(),
            "INVALID_ARGUMENT: parameters: struct_size is 4, expected " + std::to_string(sizeof(trimul_parameters)));
}

TEST(ExecuteParameters, TheWorkspaceIsLargeEnoughAndAligned) {
  ParametersCall call(kPlain);
  const std::size_t needed = call.room.size();
  call.args.workspace_bytes = needed - 1;
  EXPECT_EQ(call.execute_parameters(),
            core::text("INVALID_ARGUMENT: workspace: size is ", needed - 1, " bytes, expected at least ", needed));
  const GuardedBuffer shifted(needed, 16);
  call.args.workspace_bytes = needed;
  call.args.workspace = shifted.data();
  EXPECT_EQ(call.execute_parameters(), "INVALID_ARGUMENT: workspace: address is not 256-byte aligned, expected a multiple of 256");
  call.args.workspace = nullptr;
  EXPECT_EQ(call.execute_parameters(), core::text("INVALID_ARGUMENT: workspace: is NULL, expected ", needed, " bytes"));
}

TEST(ExecuteParameters, PresenceOfTheBiasesIsThePlans) {
  for (const bool is_in : {true, false}) {
    const unsigned pair = is_in ? bit(kPInBias) | bit(kGInBias) : bit(kPOutBias) | bit(kGOutBias);
    const std::string what = is_in ? "p_in_bias or g_in_bias" : "p_out_bias or g_out_bias";
    ParametersCall with(kPlain);
    for (const ParameterId id : {kPInBias, kGInBias, kPOutBias, kGOutBias})
      if ((pair & bit(id)) != 0) slot(with.bound.parameters, id) = nullptr;
    EXPECT_EQ(with.execute_parameters(), "INVALID_ARGUMENT: " + what + ": missing, but the plan was made with it");
    Spec spec = kPlain;
    spec.absent = pair;
    ParametersCall without(spec);
    const trimul_tensor& bias = with.bound.tensors[is_in ? kGInBias : kGOutBias];
    slot(without.bound.parameters, is_in ? kGInBias : kGOutBias) = &bias;
    EXPECT_EQ(without.execute_parameters(), "INVALID_ARGUMENT: " + what + ": given, but the plan was made without it");
  }
}

TEST(ExecuteParameters, EachParameterIsChecked) {
  for (unsigned k = 0; k < kNumParameters; ++k) {
    const auto id = static_cast<ParameterId>(k);
    ParametersCall call(kPlain);
    trimul_tensor& tensor = call.bound.tensors[k];
    const trimul_tensor valid = tensor;
    const std::string name = parameter_name(id);
    tensor.dtype = TRIMUL_I32;
    EXPECT_EQ(call.execute_parameters(), "INVALID_ARGUMENT: " + name + ": dtype is int32, expected bf16, fp16, fp32 or fp64");
    tensor = valid;
    tensor.device = {TRIMUL_CUDA, 0};
    EXPECT_EQ(call.execute_parameters(), "INVALID_ARGUMENT: " + name + ": device is cuda:0, expected cpu");
    tensor = valid;
    const Sizes five(static_cast<std::size_t>(valid.ndim), 5);
    tensor = reshaped(valid, five);
    EXPECT_TRUE(contains(call.execute_parameters(), "INVALID_ARGUMENT: " + name + ": dimension ")) << trimul_last_error();
  }
  for (const ParameterId id : {kPInWeight, kGInWeight, kPOutWeight, kGOutWeight}) {
    ParametersCall call(kPlain);
    slot(call.bound.parameters, id) = nullptr;
    EXPECT_EQ(call.execute_parameters(), std::string("INVALID_ARGUMENT: ") + parameter_name(id) + ": is missing, expected a tensor");
  }
}

TEST(ExecuteParameters, OutAndWorkspaceMayTouchNoParameter) {
  for (unsigned k = 0; k < kNumParameters; ++k) {
    ParametersCall call(kPlain);
    const char* const name = parameter_name(static_cast<ParameterId>(k));
    const auto bytes = static_cast<std::ptrdiff_t>(call.data.parameters[k]->buffer().size());
    GuardedBuffer arena(call.room.size() + 4096, 0, std::byte{0});
    void*& parameter = call.bound.tensors[k].data;
    const auto place = [&](std::byte* begin, std::ptrdiff_t size, const char* written, void*& moved) {
      void* const former = moved;
      moved = begin;
      for (const std::ptrdiff_t shift : {std::ptrdiff_t{0}, 4 - bytes, size - 4}) {
        parameter = begin + shift;
        EXPECT_EQ(call.execute_parameters(), clash(written, name)) << shift;
      }
      for (const std::ptrdiff_t shift : {-bytes, size}) {
        parameter = begin + shift;
        EXPECT_EQ(call.execute_parameters(), "OK") << name << ", " << shift;
      }
      moved = former;
    };
    place(arena.data() + 1024, static_cast<std::ptrdiff_t>(call.out.buffer().size()), "out", call.out_view.data);
    place(arena.data() + 1024, static_cast<std::ptrdiff_t>(call.room.size()), "workspace", call.args.workspace);
  }
}

TEST(ExecuteParameters, XMaskOutAndWorkspaceKeepTheRulesOfAnExecute) {
  ParametersCall call(kPlain);
  call.out_view.data = call.bound.x.data;
  EXPECT_EQ(call.execute_parameters(), clash("out", "x"));
  call.out_view.data = call.args.workspace;
  EXPECT_EQ(call.execute_parameters(), clash("out", "workspace"));
  call.out_view.data = call.out.data();
  call.args.mask = nullptr;
  EXPECT_EQ(call.execute_parameters(), "INVALID_ARGUMENT: mask: is missing, but the plan was made with it");
  call.args.mask = call.bound.mask_or_null();
  call.args.x = nullptr;
  EXPECT_EQ(call.execute_parameters(), "INVALID_ARGUMENT: x: is missing, expected a tensor");
}

TEST(ExecuteParameters, InputsMayShareMemory) {
  ParametersCall call(kPlain);
  call.bound.mask.data = call.bound.x.data;
  call.bound.tensors[kGInWeight].data = call.bound.tensors[kPInWeight].data;
  call.bound.tensors[kNormInBias].data = call.bound.x.data;
  EXPECT_EQ(call.execute_parameters(), "OK");
}

TEST(ExecuteParameters, AnEmptyProblemNeedsNoWorkspaceButValidParameters) {
  for (const Sizes& lead : std::vector<Sizes>{{0}, {2}}) {
    ParametersCall call({.lead = lead, .n = lead[0] == 0 ? 3 : 0, .c_z = 8, .c = 6, .mask = MaskKind::kNone});
    EXPECT_EQ(call.room.size(), 0U);
    call.args.workspace = nullptr;
    EXPECT_EQ(call.execute_parameters(), "OK");
    slot(call.bound.parameters, kPInWeight) = nullptr;
    EXPECT_EQ(call.execute_parameters(), "INVALID_ARGUMENT: p_in_weight: is missing, expected a tensor");
  }
}

// ---- weights in memory of a device, by a stand-in

constexpr std::size_t kScratchBytes = 1000, kPackedBytes = 300;
constexpr std::byte kPacked{0x5a}, kScratch{0x11};

/// Weights that fill the memory they are given.
class LentWeights final : public core::PackedWeights {
 public:
  explicit LentWeights(void* memory) : memory_(memory) { std::memset(memory, static_cast<int>(kPacked), kPackedBytes); }
  [[nodiscard]] std::size_t bytes() const override { return kPackedBytes; }
  [[nodiscard]] std::vector<core::ByteRange> ranges() const override {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory_);
    return {{begin, begin + kPackedBytes}};
  }

 private:
  void* memory_;
};

/// Overwrites all of its scratch and then wants to find its weights.
class LentBody final : public core::PlanBody {
 public:
  [[nodiscard]] std::size_t workspace_bytes() const override { return kScratchBytes; }
  [[nodiscard]] std::size_t packed_bytes() const override { return kPackedBytes; }
  [[nodiscard]] std::string explain() const override { return ""; }
  [[nodiscard]] std::string_view weights_layout() const override { return "lent"; }
  [[nodiscard]] std::unique_ptr<core::PackedWeights> pack_weights(const core::Parameters&, void* memory, void*) const override {
    EXPECT_NE(memory, nullptr) << "asked to allocate";
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 256, 0U);
    return std::make_unique<LentWeights>(memory);
  }
  void execute(const core::ExecuteArgs& args) const override {
    std::memset(args.workspace, static_cast<int>(kScratch), kScratchBytes);
    const auto* packed = reinterpret_cast<const std::byte*>(args.weights->ranges().front().begin);
    EXPECT_TRUE(std::all_of(packed, packed + kPackedBytes, [](std::byte b) { return b == kPacked; })) << "the scratch is on the weights";
  }
};

core::Plan lent_plan(const Case& data) {
  static const std::array list{core::Implementation{
      .name = "lent",
      .describe = [] { return std::string("for this test"); },
      .can_run = [](const core::Problem&, const core::DeviceInfo&) -> std::optional<core::Rejection> { return std::nullopt; },
      .make_plan = [](const core::Problem&, const core::DeviceInfo&, const std::vector<core::Knob>&) -> std::unique_ptr<core::PlanBody> {
        return std::make_unique<LentBody>();
      }}};
  return core::Plan(core::validate_problem(data.problem()), {}, list);
}

TEST(ExecuteParameters, PackedWeightsLieAlignedBehindTheScratchAndNowhereElse) {
  Call call(kPlain);
  const core::Plan plan = lent_plan(call.data);
  EXPECT_EQ(plan.workspace_bytes(), kScratchBytes);
  ASSERT_EQ(plan.workspace_bytes_with_parameters(), 1024 + kPackedBytes);
  const GuardedBuffer workspace(1024 + kPackedBytes + 512);  // more than asked for
  call.args.workspace = workspace.data();
  call.args.workspace_bytes = workspace.size();
  call.args.weights = nullptr;
  EXPECT_EQ(outcome_of([&] { plan.execute_parameters(call.args, call.bound.parameters); }), "OK");
  EXPECT_TRUE(workspace.guards_are_intact());
  for (std::size_t k = 0; k < workspace.size(); ++k) {
    const std::byte expected = k < kScratchBytes ? kScratch : k >= 1024 && k < 1024 + kPackedBytes ? kPacked : kPoison;
    ASSERT_EQ(workspace.data()[k], expected) << k;
  }
  // The region of the packed weights counts as workspace.
  call.out_view.data = workspace.data() + 1024 + kPackedBytes - 4;
  EXPECT_EQ(outcome_of([&] { plan.execute_parameters(call.args, call.bound.parameters); }), clash("out", "workspace"));
  call.out_view.data = call.out.data();
  call.bound.tensors[kPInBias].data = workspace.data() + 1024 + kPackedBytes - 4;
  EXPECT_EQ(outcome_of([&] { plan.execute_parameters(call.args, call.bound.parameters); }), clash("workspace", "p_in_bias"));
}

TEST(ExecuteParameters, AnEmptyProblemPacksNothing) {
  Call call({.lead = {2}, .n = 0, .c_z = 8, .c = 6, .mask = MaskKind::kNone});
  const core::Plan plan = lent_plan(call.data);
  EXPECT_EQ(plan.workspace_bytes_with_parameters(), 0U);
  call.args.workspace = nullptr;
  call.args.weights = nullptr;
  EXPECT_EQ(outcome_of([&] { plan.execute_parameters(call.args, call.bound.parameters); }), "OK");
}

TEST(WeightsPack, TheMemoryIsLargeEnoughAlignedAndTouchesNoParameter) {
  Call call(kPlain);
  const core::Plan plan = lent_plan(call.data);
  const GuardedBuffer memory(4096);
  const auto packed = [&](void* begin, std::size_t bytes) {
    return outcome_of([&] { (void)plan.pack_weights(call.bound.parameters, begin, bytes, nullptr); });
  };
  EXPECT_EQ(plan.packed_bytes(), kPackedBytes);
  EXPECT_EQ(packed(memory.data(), kPackedBytes - 1), "INVALID_ARGUMENT: memory: size is 299 bytes, expected at least 300");
  EXPECT_EQ(packed(nullptr, kPackedBytes), "INVALID_ARGUMENT: memory: is NULL, expected 300 bytes");
  EXPECT_EQ(packed(memory.data() + 128, kPackedBytes),
            "INVALID_ARGUMENT: memory: address is not 256-byte aligned, expected a multiple of 256");
  for (unsigned k = 0; k < kNumParameters; ++k) {
    void*& parameter = call.bound.tensors[k].data;
    void* const former = parameter;
    const auto bytes = static_cast<std::ptrdiff_t>(call.data.parameters[k]->buffer().size());
    for (const std::ptrdiff_t shift : {std::ptrdiff_t{0}, 4 - bytes, static_cast<std::ptrdiff_t>(kPackedBytes) - 4}) {
      parameter = memory.data() + 1024 + shift;
      EXPECT_EQ(packed(memory.data() + 1024, kPackedBytes), clash("memory", parameter_name(static_cast<ParameterId>(k)))) << shift;
    }
    parameter = former;
  }
  EXPECT_TRUE(memory.copy() == std::vector<std::byte>(memory.size(), kPoison)) << "a refused call wrote";

  const auto weights = plan.pack_weights(call.bound.parameters, memory.data(), memory.size(), nullptr);
  EXPECT_EQ(memory.data()[kPackedBytes - 1], kPacked);
  EXPECT_EQ(memory.data()[kPackedBytes], kPoison);
  call.out_view.data = memory.data() + kPackedBytes - 4;
  const GuardedBuffer workspace(kScratchBytes);
  call.args.workspace = workspace.data();
  call.args.workspace_bytes = workspace.size();
  EXPECT_EQ(outcome_of([&] { plan.execute(call.args, *weights); }), clash("out", "weights"));
}

TEST(WeightsPack, OfTheCpuNeedsNoMemoryAndTouchesNone) {
  Call call(kPlain);
  EXPECT_EQ(trimul_plan_packed_bytes(call.plan.get()), 0U);
  const GuardedBuffer memory(64, 1);
  for (void* const place : {static_cast<void*>(nullptr), static_cast<void*>(memory.data()), call.bound.tensors[kPInWeight].data}) {
    trimul_weights* made = nullptr;
    ASSERT_EQ(trimul_weights_pack(call.plan.get(), &call.bound.parameters, place, place == nullptr ? 0 : 64, nullptr, &made), TRIMUL_OK)
        << trimul_last_error();
    const WeightsPtr weights(made);
    EXPECT_EQ(trimul_weights_bytes(weights.get()), trimul_weights_bytes(call.weights.get()));
  }
  EXPECT_TRUE(memory.copy() == std::vector<std::byte>(64, kPoison));
  EXPECT_TRUE(call.data.guards_are_intact());
}

TEST(WeightsPack, NamesWhatIsNullAndLeavesNullBehind) {
  Call call(kPlain);
  trimul_weights* weights = nullptr;
  EXPECT_EQ(outcome(trimul_weights_pack(nullptr, &call.bound.parameters, nullptr, 0, nullptr, &weights)),
            "INVALID_ARGUMENT: plan: is NULL");
  EXPECT_EQ(outcome(trimul_weights_pack(call.plan.get(), nullptr, nullptr, 0, nullptr, &weights)),
            "INVALID_ARGUMENT: parameters: is NULL, expected a struct");
  EXPECT_EQ(outcome(trimul_weights_pack(call.plan.get(), &call.bound.parameters, nullptr, 0, nullptr, nullptr)),
            "INVALID_ARGUMENT: weights: is NULL, expected a place for the result");
  weights = reinterpret_cast<trimul_weights*>(1);
  slot(call.bound.parameters, kGInBias) = slot(call.bound.parameters, kPInBias) = nullptr;
  EXPECT_EQ(outcome(trimul_weights_pack(call.plan.get(), &call.bound.parameters, nullptr, 0, nullptr, &weights)),
            "INVALID_ARGUMENT: p_in_bias or g_in_bias: missing, but the plan was made with it");
  EXPECT_EQ(weights, nullptr);
}

}  // namespace
}  // namespace trimul::testing
