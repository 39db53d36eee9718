// SPDX-License-Identifier: Apache-2.0
// Parameters packed inside a call, or into the caller's memory: bitwise what weights made beforehand give, on every implementation. The
// runner fills the whole workspace, the packed parameters' part included, with NaN between guard bands and sees the inputs unchanged.
#include "support/operator_test.hpp"

namespace trimul::testing {
namespace {

class PackedParameters : public OperatorTest {
 protected:
  void expect_same_bits(const Case& data, RunOptions options = {}) {
    options.packs_parameters = false;
    const bool in_place = options.in_place;
    options.in_place = false;  // x is still needed
    const auto expected = run(data, implementation(), options).raw;
    options.packs_parameters = true;
    EXPECT_TRUE(run(data, implementation(), options).raw == expected) << implementation() << ": " << describe(data.spec);
    if (!in_place) return;
    options.in_place = true;
    EXPECT_TRUE(run(data, implementation(), options).raw == expected) << implementation() << ", in place: " << describe(data.spec);
  }
};

TEST_P(PackedParameters, GiveTheBitsOfPreparedWeights) {
  for (const DType dtype : kXDTypes)
    for (const auto direction : kDirections)
      for (const std::int64_t n : {1, 9, 33}) {
        const Case data(fitted({.lead = {2}, .n = n, .c_z = 33, .c = 20, .x_dtype = dtype, .direction = direction, .residual = n == 9}));
        if (accepts_new(data)) expect_same_bits(data, {.in_place = n == 9, .spare_workspace = 512});
      }
}

TEST_P(PackedParameters, OfAnyDtypesPresenceAndAddress) {
  constexpr unsigned kInBiases = bit(kPInBias) | bit(kGInBias), kOutBiases = bit(kPOutBias) | bit(kGOutBias);
  for (const unsigned absent : {0U, kProjectionBiases, kNormVectors, kProjectionBiases | kNormVectors, kInBiases, kOutBiases,
                                bit(kGInBias) | bit(kPOutBias), bit(kPInBias) | bit(kGOutBias), bit(kNormInWeight) | bit(kNormOutBias)})
    for (const std::int64_t offset : {0, 1}) {
      Spec spec = fitted({.n = 7, .c_z = 16, .c = 24});
      spec.absent = absent;
      spec.offset = offset;
      spec.mixed_weights = true;
      const Case mixed(spec);
      ASSERT_TRUE(accepts(mixed));
      expect_same_bits(mixed);
      spec.mixed_weights = false;
      for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBf16}) {
        spec.weight_dtype = dtype;
        expect_same_bits(Case(spec));
      }
    }
}

TEST_P(PackedParameters, FormerContentsOfTheWorkspaceChangeNothing) {
  for (const std::int64_t n : {1, 8, 17}) {
    const Case data(fitted({.n = n, .c_z = 33, .c = 35, .mask = MaskKind::kPadded}));
    ASSERT_TRUE(accepts(data));
    const auto expected = run(data, implementation()).raw;
    for (const std::byte poison : {std::byte{0}, std::byte{0xff}, std::byte{0x7f}, std::byte{0x3f}})
      EXPECT_TRUE(run(data, implementation(), {.poison = poison, .packs_parameters = true}).raw == expected) << describe(data.spec);
  }
}

TEST_P(PackedParameters, EmptyProblemsSucceed) {
  for (const Sizes& lead : std::vector<Sizes>{{0}, {2}}) {
    const Case data(fitted({.lead = lead, .n = lead[0] == 0 ? 4 : 0, .mask = MaskKind::kNone}));
    ASSERT_TRUE(accepts(data));
    EXPECT_EQ(trimul_plan_workspace_bytes_with_parameters(make_plan(data.problem(), implementation()).get()), 0U);
    EXPECT_TRUE(run(data, implementation(), {.packs_parameters = true}).raw.empty());
  }
}

/// One plan, one workspace, one out, as a training loop has them.
TEST_P(PackedParameters, EachCallTakesTheParametersOfItsMoment) {
  Case data(fitted({.n = 9}));
  ASSERT_TRUE(accepts(data));
  const DeviceBound inputs(data, device_of(implementation()));
  const PlanPtr plan = make_plan(data.problem(), implementation());
  const std::size_t workspace_bytes = trimul_plan_workspace_bytes_with_parameters(plan.get());
  std::vector<std::byte> got(static_cast<std::size_t>(data.num_outputs()) * core::dtype_bytes(data.out_dtype()));
  const DeviceMemory workspace(inputs.device(), workspace_bytes), out(inputs.device(), got.size());
  trimul_tensor out_view = inputs.bound.x;
  out_view.data = out.data();
  out_view.dtype = static_cast<std::int32_t>(data.out_dtype());
  trimul_execute_args args = TRIMUL_EXECUTE_ARGS_INIT;
  args.x = &inputs.bound.x;
  args.mask = inputs.bound.mask_or_null();
  args.out = &out_view;
  args.workspace = workspace.data();
  args.workspace_bytes = workspace_bytes;
  Random random(data.spec.seed);
  std::vector<std::byte> former;
  for (unsigned step = 0; step < 2 * kNumParameters; ++step) {
    data.parameters[step % kNumParameters]->fill([&] { return random.uniform(-0.4, 0.8); });  // one parameter after the other
    inputs.upload();
    ASSERT_EQ(trimul_execute_parameters(plan.get(), &args, &inputs.bound.parameters), TRIMUL_OK) << trimul_last_error();
    out.download(got.data(), 0, got.size());
    EXPECT_TRUE(got == run(data, implementation()).raw) << "step " << step << ": " << describe(data.spec);
    EXPECT_FALSE(got == former) << "the change of " << parameter_name(static_cast<ParameterId>(step % kNumParameters))
                                << " changed nothing";
    former = got;
  }
}

TEST_P(PackedParameters, InTheCallersMemoryServeAsWeights) {
  for (const bool mixed : {false, true}) {
    Spec spec = fitted({.n = 9});
    spec.mixed_weights = mixed;
    Case data(spec);
    ASSERT_TRUE(accepts(data));
    const auto expected = run(data, implementation()).raw;
    const DeviceBound inputs(data, device_of(implementation()));
    const PlanPtr plan = make_plan(data.problem(), implementation());
    const std::size_t bytes = trimul_plan_packed_bytes(plan.get());
    EXPECT_EQ(bytes > 0, on_gpu());
    const GuardedBuffer memory(bytes);
    std::optional<DeviceMirror> mirror;
    if (on_gpu()) mirror.emplace(memory, inputs.device());
    // A mirror keeps the buffer's alignment: 256 bytes.
    trimul_weights* made = nullptr;
    ASSERT_EQ(trimul_weights_pack(plan.get(), &inputs.bound.parameters, on_gpu() ? mirror->data() : nullptr, bytes, nullptr, &made),
              TRIMUL_OK)
        << trimul_last_error();
    const WeightsPtr weights(made);
    EXPECT_EQ(trimul_weights_bytes(weights.get()), trimul_weights_bytes(make_weights(plan.get(), inputs.bound).get()));
    EXPECT_TRUE(execute(plan.get(), weights.get(), inputs, data) == expected) << describe(spec);
    EXPECT_TRUE(inputs.inputs_are_unchanged(false)) << describe(spec);
    if (on_gpu()) mirror->download();
    EXPECT_TRUE(memory.guards_are_intact()) << "bytes around the packed weights were written: " << describe(spec);
    for (auto& parameter : data.parameters) parameter->fill([] { return 0.5; });
    inputs.upload();
    EXPECT_TRUE(execute(plan.get(), weights.get(), inputs, data) == expected) << "they are a copy: " << describe(spec);
  }
}

TEST_P(PackedParameters, WorkspaceGrowsByThePackedCopyAlone) {
  for (const std::int64_t n : {1, 64, 257}) {
    const Case small(fitted({.n = 1}));
    ASSERT_TRUE(accepts(small));
    trimul_problem problem = small.problem();
    problem.tokens = n;
    const PlanPtr plan = make_plan(problem, implementation());
    const std::size_t plain = trimul_plan_workspace_bytes(plan.get());
    const std::size_t with_parameters = trimul_plan_workspace_bytes_with_parameters(plan.get());
    EXPECT_EQ(with_parameters, (plain + 255) / 256 * 256 + trimul_plan_packed_bytes(plan.get()));
  }
}

TRIMUL_INSTANTIATE_OPERATOR_TEST(PackedParameters);

}  // namespace
}  // namespace trimul::testing
