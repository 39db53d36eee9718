// SPDX-License-Identifier: Apache-2.0
// Parameters packed on the stream, among other work: behind what the stream holds, captured and replayed, one call after the other in one
// workspace. The packing kernel lets the input projection start before it has ended (src/cuda/sm90/packed_weights.cu); these tests fail
// when something reads packed weights too early, or writes them while a kernel before still reads. No instance without a GPU.
#include "support/gpu_call.hpp"
#include "support/gpu_stream.hpp"
#include "support/operator_test.hpp"

namespace trimul::testing {
namespace {

class GpuParameters : public OperatorTest {};

/// The same x and mask with parameters of another seed.
void draw_parameters(Case& data, std::uint64_t seed) {
  Random random(seed);
  for (auto& parameter : data.parameters)
    if (parameter) parameter->fill([&] { return random.uniform(-0.3, 0.5); });
}

/// What the plan takes by itself, and every value of the knob that decides which kernels start early.
std::vector<std::vector<trimul_knob>> overlaps_of(const std::string& implementation) {
  std::vector<std::vector<trimul_knob>> sets{{}};
  for (std::size_t k = 0; k < trimul_implementation_num_knobs(implementation.c_str()); ++k) {
    trimul_knob_range range = TRIMUL_KNOB_RANGE_INIT;
    EXPECT_EQ(trimul_implementation_knob(implementation.c_str(), k, &range), TRIMUL_OK) << trimul_last_error();
    for (std::int64_t value = range.least; range.name == std::string("overlap") && value <= range.most; ++value)
      sets.push_back({{range.name, value}});
  }
  return sets;
}

constexpr std::size_t kCalls = 40;

/// An `out` for each of kCalls calls.
class Outs {
 public:
  explicit Outs(const GpuCall& call, const Case& data)
      : bytes_(static_cast<std::size_t>(data.num_outputs()) * core::dtype_bytes(data.out_dtype())),
        pitch_((bytes_ + 255) / 256 * 256),
        memory_(call.inputs.device(), kCalls * pitch_),
        view_(*call.args.out) {}

  [[nodiscard]] const trimul_tensor* at(std::size_t k) {
    view_.data = memory_.data() + k * pitch_;
    return &view_;
  }
  [[nodiscard]] std::vector<std::byte> result(std::size_t k) const {
    std::vector<std::byte> bytes(bytes_);
    memory_.download(bytes.data(), k * pitch_, bytes_);
    return bytes;
  }

 private:
  std::size_t bytes_, pitch_;
  DeviceMemory memory_;
  trimul_tensor view_;
};

TEST_P(GpuParameters, CallsBehindLongWorkTakeTurnsWithTwoSetsOfParameters) {
  const GpuStream stream;
  const Case other(gpu_spec({.n = 320, .mask = MaskKind::kNone}));
  ASSERT_TRUE(accepts(other));
  GpuCall load(other, implementation());
  for (const std::int64_t n : {1, 16, 64, 100, 192, 257})
    for (const auto direction : kDirections)
      for (const Spec& spec : gpu_specs({.n = n, .direction = direction})) {
        const Case first(spec);
        Case second(first.spec);
        draw_parameters(second, first.spec.seed + 1);
        ASSERT_TRUE(accepts(first));
        const std::array expected{run(first, implementation()).raw, run(second, implementation()).raw};
        ASSERT_FALSE(expected[0] == expected[1]);
        const DeviceBound second_inputs(second, device_of(implementation()));
        for (const auto& knobs : overlaps_of(implementation())) {
          GpuCall call(first, implementation(), knobs);
          Outs outs(call, first);
          // One workspace, kernel behind kernel: a call packs where the one before it has just read.
          HeldStream held(stream);
          for (int k = 0; k < 5; ++k) load.execute(stream.handle());
          for (std::size_t k = 0; k < kCalls; ++k) {
            call.args.out = outs.at(k);
            call.execute_parameters(stream.handle(), k % 2 == 0 ? nullptr : &second_inputs.bound.parameters);
          }
          EXPECT_TRUE(held.release()) << "execute_parameters waited for its stream";
          for (std::size_t k = 0; k < kCalls; ++k)
            ASSERT_TRUE(outs.result(k) == expected[k % 2])
                << "call " << k << ", overlap " << (knobs.empty() ? -1 : knobs[0].value) << ": " << describe(first.spec);
        }
      }
}

/// As an optimiser's step between two calls: the parameters themselves change on the stream.
TEST_P(GpuParameters, ParametersAreReadWhenTheStreamGetsThere) {
  const GpuStream stream;
  for (const std::int64_t n : {16, 100, 257})
    for (const Spec& spec : gpu_specs({.n = n})) {
      const Case first(spec);
      Case second(first.spec);
      draw_parameters(second, first.spec.seed + 1);
      ASSERT_TRUE(accepts(first));
      const std::array expected{run(first, implementation()).raw, run(second, implementation()).raw};
      const DeviceBound first_inputs(first, device_of(implementation())), second_inputs(second, device_of(implementation()));
      constexpr std::size_t kChanges = 12;  // of 16 entries each: the stream holds about a thousand
      GpuCall call(second, implementation());
      Outs outs(call, first);
      HeldStream held(stream);
      for (std::size_t k = 0; k < kChanges; ++k) {
        for (unsigned id = 0; id < kNumParameters; ++id)
          stream.copy(call.inputs.bound.tensors[id].data, (k % 2 == 0 ? first_inputs : second_inputs).bound.tensors[id].data,
                      first.parameters[id]->buffer().size());
        call.args.out = outs.at(k);
        call.execute_parameters(stream.handle());
      }
      EXPECT_TRUE(held.release()) << "execute_parameters waited for its stream";
      for (std::size_t k = 0; k < kChanges; ++k)
        ASSERT_TRUE(outs.result(k) == expected[k % 2]) << "call " << k << ": " << describe(first.spec);
    }
}

TEST_P(GpuParameters, ReplayedGraphsFollowChangedParameters) {
  const GpuStream stream;
  for (const std::int64_t n : {7, 64, 100, 192, 257})
    for (const std::int64_t offset : {0, 3})  // misaligned: with Hopper's kernels a copy between packing and input projection
      for (const Spec& spec : gpu_specs({.lead = {2}, .n = n, .mask = MaskKind::kFractional, .offset = offset})) {
        Case data(spec);
        ASSERT_TRUE(accepts(data));
        GpuCall call(data, implementation());
        const auto graph = stream.capture([&] { call.execute_parameters(stream.handle()); });
        std::vector<std::byte> former;
        for (std::uint64_t change = 0; change < 4; ++change) {
          if (change > 0) draw_parameters(data, data.spec.seed + change);
          call.inputs.upload();
          const auto expected = run(data, implementation()).raw;
          EXPECT_FALSE(expected == former) << "the change changed nothing: " << describe(data.spec);
          call.poison();
          stream.replay(*graph);
          EXPECT_TRUE(call.result(stream.handle()) == expected) << "change " << change << ": " << describe(data.spec);
          // Back to back, as a training loop replays them.
          for (int replay = 0; replay < 10; ++replay) stream.replay(*graph);
          EXPECT_TRUE(call.result(stream.handle()) == expected) << "change " << change << ", again: " << describe(data.spec);
          former = expected;
        }
      }
}

TEST_P(GpuParameters, WeightsPackedWhileCapturedFollowChangedParameters) {
  const GpuStream stream;
  for (const std::int64_t n : {33, 64, 257})
    for (const Spec& spec : gpu_specs({.n = n})) {
      Case data(spec);
      ASSERT_TRUE(accepts(data));
      GpuCall call(data, implementation());
      const std::size_t bytes = trimul_plan_packed_bytes(call.plan.get());
      const DeviceMemory memory(call.inputs.device(), bytes);
      WeightsPtr weights;
      const auto graph = stream.capture([&] {
        trimul_weights* made = nullptr;
        EXPECT_EQ(trimul_weights_pack(call.plan.get(), &call.inputs.bound.parameters, memory.data(), bytes, stream.handle(), &made),
                  TRIMUL_OK)
            << trimul_last_error();
        weights.reset(made);
        call.args.weights = made;
        call.execute(stream.handle());
        call.execute(stream.handle());  // its input projection follows an output projection, not the packing
      });
      for (std::uint64_t change = 0; change < 3; ++change) {
        if (change > 0) draw_parameters(data, data.spec.seed + change);
        call.inputs.upload();
        call.poison();
        for (int replay = 0; replay < 5; ++replay) stream.replay(*graph);
        EXPECT_TRUE(call.result(stream.handle()) == run(data, implementation()).raw) << "change " << change << ": " << describe(data.spec);
      }
    }
}

TEST_P(GpuParameters, WaitForNothingAndAllocateNothing) {
  const GpuStream stream;
  for (const std::int64_t n : {33, 64, 257})
    for (const std::int64_t offset : {0, 3})
      for (const Spec& spec : gpu_specs({.n = n, .offset = offset})) {
        const Case data(spec);
        ASSERT_TRUE(accepts(data));
        GpuCall call(data, implementation());
        const auto expected = run(data, implementation()).raw;
        HeldStream held(stream);
        for (int k = 0; k < 20; ++k) call.execute_parameters(stream.handle());
        EXPECT_FALSE(stream.is_idle());
        EXPECT_TRUE(held.release()) << "execute_parameters waited for its stream: " << describe(data.spec);
        EXPECT_TRUE(call.result(stream.handle()) == expected) << describe(data.spec);
        // Other processes may allocate at the same time, but hardly during every attempt.
        bool is_unchanged = false;
        for (int attempt = 0; attempt < 400 && !is_unchanged; ++attempt) {
          const std::size_t before = free_gpu_bytes();
          for (int k = 0; k < 50; ++k) call.execute_parameters(stream.handle());
          stream.wait();
          is_unchanged = free_gpu_bytes() == before;
        }
        EXPECT_TRUE(is_unchanged) << "the GPU's free memory changed with every 50 calls: " << describe(data.spec);
      }
}

TEST_P(GpuParameters, EveryKindOfCopyGivesTheBitsOfPreparedWeights) {
  for (const std::int64_t n : {1, 7, 16, 33, 64, 65, 100, 129, 192, 257, 300, 320})
    for (const auto direction : kDirections)
      for (const std::int64_t offset : {0, 1, 8})
        for (const Spec& spec : gpu_specs({.lead = {2}, .n = n, .direction = direction, .residual = n % 2 == 0, .offset = offset})) {
          const Case data(spec);
          ASSERT_TRUE(accepts(data));
          EXPECT_TRUE(run(data, implementation(), {.packs_parameters = true}).raw == run(data, implementation()).raw)
              << describe(data.spec);
        }
}

TEST_P(GpuParameters, RefusedCallsWriteNothing) {
  const Case data(gpu_spec({.n = 8}));
  ASSERT_TRUE(accepts(data));
  GpuCall call(data, implementation());
  const std::size_t packed_bytes = trimul_plan_packed_bytes(call.plan.get());
  const DeviceMemory memory(call.inputs.device(), std::size_t{4} << 20);
  trimul_tensor out_inside = *call.args.out;  // with room for every parameter behind it
  out_inside.data = memory.data() + (std::size_t{2} << 20);
  const trimul_execute_args valid = [&] {
    trimul_execute_args args = call.args;
    args.weights = nullptr;
    args.workspace_bytes = trimul_plan_workspace_bytes_with_parameters(call.plan.get());
    return args;
  }();
  const auto refusal = [&](const trimul_execute_args& args) {
    const trimul_status status = trimul_execute_parameters(call.plan.get(), &args, &call.inputs.bound.parameters);
    return std::string(trimul_status_name(status)) + ": " + trimul_last_error();
  };
  const auto expect_refusal = [&](const trimul_execute_args& args, const std::string& part) {
    const std::string text = refusal(args);
    EXPECT_EQ(text.find("INVALID_ARGUMENT: " + part), 0U) << text;
  };
  trimul_execute_args args = valid;
  args.weights = call.weights.get();
  expect_refusal(args, "weights: given");
  args = valid;
  args.workspace_bytes = trimul_plan_workspace_bytes(call.plan.get());  // enough for an execute
  expect_refusal(args, "workspace: size is ");
  args = valid;
  args.workspace = static_cast<std::byte*>(valid.workspace) + 128;
  expect_refusal(args, "workspace: address is not 256-byte aligned");
  for (unsigned k = 0; k < kNumParameters; ++k) {
    void*& parameter = call.inputs.bound.tensors[k].data;
    void* const former = parameter;
    const std::string name = parameter_name(static_cast<ParameterId>(k));
    parameter = out_inside.data;
    args = valid;
    args.out = &out_inside;
    expect_refusal(args, "out: its memory intersects that of " + name);
    parameter = static_cast<std::byte*>(valid.workspace) + valid.workspace_bytes - 256;  // among the packed weights
    expect_refusal(valid, "workspace: its memory intersects that of " + name);
    parameter = memory.data();
    trimul_weights* weights = nullptr;
    EXPECT_EQ(trimul_weights_pack(call.plan.get(), &call.inputs.bound.parameters, memory.data(), packed_bytes, nullptr, &weights),
              TRIMUL_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(trimul_last_error()).find("memory: its memory intersects that of " + name), 0U) << trimul_last_error();
    parameter = former;
  }
  trimul_weights* weights = nullptr;
  for (const std::size_t bytes : {std::size_t{0}, packed_bytes - 1})
    EXPECT_EQ(trimul_weights_pack(call.plan.get(), &call.inputs.bound.parameters, memory.data(), bytes, nullptr, &weights),
              TRIMUL_INVALID_ARGUMENT);
  EXPECT_EQ(trimul_weights_pack(call.plan.get(), &call.inputs.bound.parameters, memory.data() + 16, packed_bytes, nullptr, &weights),
            TRIMUL_INVALID_ARGUMENT);
  EXPECT_TRUE(call.inputs.inputs_are_unchanged(false));
  const auto out = call.result(nullptr);
  EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](std::byte b) { return b == kPoison; })) << "a refused call wrote to out";
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuParameters);
INSTANTIATE_TEST_SUITE_P(Every, GpuParameters, ::testing::ValuesIn(gpu_implementations()), test_name);

}  // namespace
}  // namespace trimul::testing
