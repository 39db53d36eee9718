// SPDX-License-Identifier: Apache-2.0
// Tensors of a call against their plan, through the C ABI: every refusal names tensor, dimension, what it is and what was expected.
#include <gtest/gtest.h>

#include "support/call.hpp"

namespace trimul::testing {
namespace {

const Spec kBatched{.lead = {2}, .n = 4, .c_z = 8, .c = 6};

TEST(ExecuteArguments, AValidCallIsServed) {
  Call call(kBatched);
  EXPECT_EQ(call.execute(), "OK");
  EXPECT_EQ(call.update(), "OK");
}

TEST(ExecuteArguments, XMustBeThePlans) {
  Call call(kBatched);
  const auto with_x = [&](const Sizes& sizes, const Sizes* strides = nullptr) {
    const trimul_tensor x = reshaped(call.bound.x, sizes, strides);
    call.args.x = &x;
    return call.execute();
  };
  EXPECT_EQ(with_x({4, 8}), "INVALID_ARGUMENT: x: number of dimensions is 2 ([4, 8]), expected at least 3: [..., N, N, C_z]");
  EXPECT_EQ(with_x({2, 4, 4, 7}), "INVALID_ARGUMENT: x: dimension C_z (3 of [2, 4, 4, 7]) is 7, expected 8 (from the plan)");
  EXPECT_EQ(with_x({2, 3, 4, 8}), "INVALID_ARGUMENT: x: dimension N (1 of [2, 3, 4, 8]) is 3, expected 4 (from the plan)");
  EXPECT_EQ(with_x({2, 4, 3, 8}), "INVALID_ARGUMENT: x: dimension N (2 of [2, 4, 3, 8]) is 3, expected 4 (from the plan)");
  EXPECT_EQ(with_x({4, 4, 8}), "INVALID_ARGUMENT: x: leading dimensions of [4, 4, 8] hold 1 samples, expected B = 2 (from the plan)");
  EXPECT_EQ(with_x({3, 4, 4, 8}), "INVALID_ARGUMENT: x: leading dimensions of [3, 4, 4, 8] hold 3 samples, expected B = 2 (from the plan)");
  const Sizes transposed{128, 8, 32, 1};
  EXPECT_EQ(with_x({2, 4, 4, 8}, &transposed), "INVALID_ARGUMENT: x: strides of [2, 4, 4, 8] are [128, 8, 32, 1], expected contiguous");
  const Sizes expanded{0, 32, 8, 1};
  EXPECT_EQ(with_x({2, 4, 4, 8}, &expanded), "INVALID_ARGUMENT: x: strides of [2, 4, 4, 8] are [0, 32, 8, 1], expected contiguous");

  trimul_tensor x = call.bound.x;
  call.args.x = &x;
  x.dtype = TRIMUL_BF16;
  EXPECT_EQ(call.execute(), "INVALID_ARGUMENT: x: dtype is bf16, expected fp32 (the plan's)");
  x.dtype = TRIMUL_F32;
  x.device = {TRIMUL_CUDA, 1};
  EXPECT_EQ(call.execute(), "INVALID_ARGUMENT: x: device is cuda:1, expected cpu");
  x.device = {TRIMUL_CPU, 3};
  EXPECT_EQ(call.execute(), "INVALID_ARGUMENT: x: device is cpu:3, expected cpu");
  x.device = {TRIMUL_CPU, 0};
  x.data = nullptr;
  EXPECT_EQ(call.execute(), "INVALID_ARGUMENT: x: data is NULL, expected 256 elements");
  call.args.x = nullptr;
  EXPECT_EQ(call.execute(), "INVALID_ARGUMENT: x: is missing, expected a tensor");
}

TEST(ExecuteArguments, OutMustHaveXsShapeAndTheResultsDtype) {
  Call call(kBatched);
  const auto with_out = [&](const Sizes& sizes, const Sizes* strides = nullptr) {
    const trimul_tensor out = reshaped(call.out_view, sizes, strides);
    call.args.out = &out;
    return call.execute();
  };
  EXPECT_EQ(with_out({2, 4, 4, 7}), "INVALID_ARGUMENT: out: dimension C_z (3 of [2, 4, 4, 7]) is 7, expected 8 (from x)");
  EXPECT_EQ(with_out({1, 4, 4, 8}), "INVALID_ARGUMENT: out: dimension B (0 of [1, 4, 4, 8]) is 1, expected 2 (from x)");
  EXPECT_EQ(with_out({2, 4, 5, 8}), "INVALID_ARGUMENT: out: dimension N (2 of [2, 4, 5, 8]) is 5, expected 4 (from x)");
  EXPECT_EQ(with_out({4, 4, 8}), "INVALID_ARGUMENT: out: number of dimensions is 3 ([4, 4, 8]), expected 4 (x is [2, 4, 4, 8])");
  EXPECT_EQ(with_out({1, 2, 4, 4, 8}),
            "INVALID_ARGUMENT: out: number of dimensions is 5 ([1, 2, 4, 4, 8]), expected 4 (x is [2, 4, 4, 8])");
  const Sizes strides{128, 8, 32, 1};
  EXPECT_EQ(with_out({2, 4, 4, 8}, &strides), "INVALID_ARGUMENT: out: strides of [2, 4, 4, 8] are [128, 8, 32, 1], expected contiguous");
  call.args.out = nullptr;
  EXPECT_EQ(call.execute(), "INVALID_ARGUMENT: out: is missing, expected a tensor");
  call.args.out = &call.out_view;
  call.out_view.dtype = TRIMUL_F16;
  EXPECT_EQ(call.execute(), "INVALID_ARGUMENT: out: dtype is fp16, expected fp32");
  call.out_view.dtype = TRIMUL_F32;
  call.out_view.device = {TRIMUL_CUDA, 0};
  EXPECT_EQ(call.execute(), "INVALID_ARGUMENT: out: device is cuda:0, expected cpu");
}

TEST(ExecuteArguments, OutMayDropABatchOfOneOnly) {
  const Sizes three{4, 4, 8};
  Call four({.lead = {1}, .n = 4, .c_z = 8, .c = 6});
  four.out_view = reshaped(four.out_view, three);
  EXPECT_EQ(four.execute(), "OK");
  Call five({.lead = {1, 1}, .n = 4, .c_z = 8, .c = 6});
  five.out_view = reshaped(five.out_view, three);
  EXPECT_EQ(five.execute(), "INVALID_ARGUMENT: out: number of dimensions is 3 ([4, 4, 8]), expected 5 (x is [1, 1, 4, 4, 8])");
  const Sizes one_more{1, 4, 4, 8};
  Call flat({.n = 4, .c_z = 8, .c = 6});
  flat.out_view = reshaped(flat.out_view, one_more);
  EXPECT_EQ(flat.execute(), "INVALID_ARGUMENT: out: number of dimensions is 4 ([1, 4, 4, 8]), expected 3 (x is [4, 4, 8])");
}

TEST(ExecuteArguments, MaskPresenceIsAFactOfThePlan) {
  Call with(kBatched);
  with.args.mask = nullptr;
  EXPECT_EQ(with.execute(), "INVALID_ARGUMENT: mask: is missing, but the plan was made with it");
  Spec spec = kBatched;
  spec.mask = MaskKind::kNone;
  Call without(spec);
  const HostTensor mask(DType::kF32, {4, 4});
  const trimul_tensor view = mask.view();
  without.args.mask = &view;
  EXPECT_EQ(without.execute(), "INVALID_ARGUMENT: mask: given, but the plan was made without it");
  with.args.mask = &with.bound.mask;
  with.bound.mask.device = {TRIMUL_CUDA, 3};
  EXPECT_EQ(with.execute(), "INVALID_ARGUMENT: mask: device is cuda:3, expected cpu");
}

TEST(ExecuteArguments, WorkspaceMustBeLargeAlignedAndThere) {
  Call call(kBatched);
  const std::size_t needed = trimul_plan_workspace_bytes(call.plan.get());
  call.args.workspace_bytes = needed - 1;
  EXPECT_EQ(call.execute(),
            "INVALID_ARGUMENT: workspace: size is " + std::to_string(needed - 1) + " bytes, expected at least " + std::to_string(needed));
  call.args.workspace_bytes = 0;
  EXPECT_EQ(call.execute(), "INVALID_ARGUMENT: workspace: size is 0 bytes, expected at least " + std::to_string(needed));
  call.args.workspace_bytes = needed;
  call.args.workspace = nullptr;
  EXPECT_EQ(call.execute(), "INVALID_ARGUMENT: workspace: is NULL, expected " + std::to_string(needed) + " bytes");
  const GuardedBuffer larger(needed + 256);
  for (const std::size_t offset : {1U, 4U, 64U, 128U, 255U}) {
    call.args.workspace = larger.data() + offset;
    EXPECT_EQ(call.execute(), "INVALID_ARGUMENT: workspace: address is not 256-byte aligned, expected a multiple of 256");
  }
  call.args.workspace = larger.data() + 256;
  EXPECT_EQ(call.execute(), "OK");
}

TEST(ExecuteArguments, WeightsMustSuitThePlan) {
  Call call(kBatched);
  call.args.weights = nullptr;
  EXPECT_EQ(call.execute(), "INVALID_ARGUMENT: weights: is NULL, expected weights of trimul_weights_create");
  const auto with_weights_of = [&](const Spec& spec, const char* implementation) {
    const Case other(spec);
    const Bound bound(other);
    const PlanPtr plan = make_plan(other.problem(), implementation);
    const WeightsPtr weights = make_weights(plan.get(), bound);
    call.args.weights = weights.get();
    return call.execute();
  };
  Spec spec = kBatched;
  EXPECT_EQ(with_weights_of(spec, "reference"), "INVALID_ARGUMENT: weights: implementation is reference, expected cpu (the plan's)");
  spec.c_z = 9;
  EXPECT_EQ(with_weights_of(spec, "cpu"), "INVALID_ARGUMENT: weights: C_z is 9, expected 8 (the plan's)");
  spec = kBatched;
  spec.c = 7;
  EXPECT_EQ(with_weights_of(spec, "cpu"), "INVALID_ARGUMENT: weights: C is 7, expected 6 (the plan's)");
  spec = kBatched;
  spec.absent = bit(kPInBias) | bit(kGInBias);
  EXPECT_EQ(with_weights_of(spec, "cpu"), "INVALID_ARGUMENT: weights: presence of p_in_bias or g_in_bias is 0, expected 1 (the plan's)");
  spec.absent = bit(kPOutBias) | bit(kGOutBias);
  EXPECT_EQ(with_weights_of(spec, "cpu"), "INVALID_ARGUMENT: weights: presence of p_out_bias or g_out_bias is 0, expected 1 (the plan's)");
  spec.absent = bit(kPOutBias) | bit(kPInBias);  // the other of the two is enough
  EXPECT_EQ(with_weights_of(spec, "cpu"), "OK");
}

TEST(ExecuteArguments, EmptyProblemsAreServedWithoutDataOrWorkspace) {
  for (const Spec& spec :
       {Spec{.lead = {0}, .n = 4, .c_z = 8, .c = 6, .mask = MaskKind::kNone}, Spec{.n = 0, .c_z = 8, .c = 6, .mask = MaskKind::kNone},
        Spec{.lead = {3}, .n = 0, .c_z = 8, .c = 6, .mask = MaskKind::kNone}}) {
    Call call(spec);
    EXPECT_EQ(trimul_plan_workspace_bytes(call.plan.get()), 0U);
    call.bound.x.data = call.out_view.data = nullptr;
    call.args.workspace = nullptr;
    EXPECT_EQ(call.execute(), "OK");
    EXPECT_EQ(call.update(), "OK");
  }
}

struct BadParameter {
  ParameterId id;
  Sizes sizes;
  const char* message;
};

TEST(Parameters, ShapesFollowFromTheWidths) {
  const Case data(kBatched);
  const PlanPtr plan = make_plan(data.problem());
  const BadParameter bad[] = {
      {kNormInWeight, {7}, "norm_in_weight: dimension C_z (0 of [7]) is 7, expected 8 (from the problem)"},
      {kNormInBias, {8, 1}, "norm_in_bias: number of dimensions is 2 ([8, 1]), expected 1"},
      {kPInWeight, {6, 8}, "p_in_weight: dimension 2C (0 of [6, 8]) is 6, expected 12 (from the problem)"},
      {kPInWeight, {12, 9}, "p_in_weight: dimension C_z (1 of [12, 9]) is 9, expected 8 (from the problem)"},
      {kPInBias, {6}, "p_in_bias: dimension 2C (0 of [6]) is 6, expected 12 (from the problem)"},
      {kGInWeight, {8, 12}, "g_in_weight: dimension 2C (0 of [8, 12]) is 8, expected 12 (from the problem)"},
      {kGInBias, {8}, "g_in_bias: dimension 2C (0 of [8]) is 8, expected 12 (from the problem)"},
      {kNormOutWeight, {8}, "norm_out_weight: dimension C (0 of [8]) is 8, expected 6 (from the problem)"},
      {kNormOutBias, {12}, "norm_out_bias: dimension C (0 of [12]) is 12, expected 6 (from the problem)"},
      {kPOutWeight, {6, 8}, "p_out_weight: dimension C_z (0 of [6, 8]) is 6, expected 8 (from the problem)"},
      {kPOutWeight, {8, 8}, "p_out_weight: dimension C (1 of [8, 8]) is 8, expected 6 (from the problem)"},
      {kPOutBias, {6}, "p_out_bias: dimension C_z (0 of [6]) is 6, expected 8 (from the problem)"},
      {kGOutWeight, {8, 6}, "g_out_weight: dimension C_z (1 of [8, 6]) is 6, expected 8 (from the problem)"},
      {kGOutBias, {12}, "g_out_bias: dimension C_z (0 of [12]) is 12, expected 8 (from the problem)"},
  };
  for (const BadParameter& entry : bad) {
    Bound bound(data);
    const HostTensor wrong(DType::kF32, entry.sizes);
    bound.tensors[entry.id] = wrong.view();
    trimul_weights* weights = nullptr;
    EXPECT_EQ(outcome(trimul_weights_create(plan.get(), &bound.parameters, nullptr, &weights)),
              std::string("INVALID_ARGUMENT: ") + entry.message);
    EXPECT_EQ(weights, nullptr);
  }
}

TEST(Parameters, DtypeStridesDeviceAndPresenceAreChecked) {
  const Case data(kBatched);
  const PlanPtr plan = make_plan(data.problem());
  const auto create = [&](auto bend) {
    Bound bound(data);
    bend(bound);
    trimul_weights* weights = nullptr;
    const std::string text = outcome(trimul_weights_create(plan.get(), &bound.parameters, nullptr, &weights));
    trimul_weights_destroy(weights);
    return text;
  };
  for (const ParameterId id : {kPInWeight, kGInWeight, kPOutWeight, kGOutWeight})
    EXPECT_EQ(create([&](Bound& b) { slot(b.parameters, id) = nullptr; }),
              std::string("INVALID_ARGUMENT: ") + parameter_name(id) + ": is missing, expected a tensor");
  EXPECT_EQ(create([](Bound& b) { b.tensors[kPInWeight].dtype = TRIMUL_I32; }),
            "INVALID_ARGUMENT: p_in_weight: dtype is int32, expected bf16, fp16, fp32 or fp64");
  EXPECT_EQ(create([](Bound& b) {
              b.tensors[kGOutBias].device = {TRIMUL_CUDA, 0};
            }),
            "INVALID_ARGUMENT: g_out_bias: device is cuda:0, expected cpu");
  const Sizes transposed{1, 8};
  EXPECT_EQ(create([&](Bound& b) { b.tensors[kGOutWeight].strides = transposed.data(); }),
            "INVALID_ARGUMENT: g_out_weight: strides of [8, 8] are [1, 8], expected contiguous");
  EXPECT_EQ(create([](Bound& b) { b.parameters.p_in_bias = b.parameters.g_in_bias = nullptr; }),
            "INVALID_ARGUMENT: p_in_bias or g_in_bias: missing, but the plan was made with it");
  EXPECT_EQ(create([](Bound& b) { b.parameters.p_out_bias = b.parameters.g_out_bias = nullptr; }),
            "INVALID_ARGUMENT: p_out_bias or g_out_bias: missing, but the plan was made with it");
  EXPECT_EQ(create([](Bound& b) { b.parameters.p_in_bias = b.parameters.g_out_bias = nullptr; }), "OK");
}

TEST(UpdateArguments, ShapesAreReadFromXAndPInWeight) {
  Call call(kBatched);
  const Sizes flat{32, 8};
  trimul_tensor x = reshaped(call.bound.x, flat);
  call.args.x = &x;
  EXPECT_EQ(call.update(), "INVALID_ARGUMENT: x: number of dimensions is 2 ([32, 8]), expected at least 3: [..., N, N, C_z]");
  const Sizes oblong{2, 4, 2, 16};
  x = reshaped(call.bound.x, oblong);
  EXPECT_TRUE(contains(call.update(), "is 8, expected 16")) << call.update();
  x = call.bound.x;
  const Sizes odd{13, 8}, vector{96}, none{0, 8};
  const trimul_tensor p_in = call.bound.tensors[kPInWeight];
  call.bound.tensors[kPInWeight] = reshaped(p_in, odd);
  EXPECT_EQ(call.update(), "INVALID_ARGUMENT: p_in_weight: dimension 2C is 13, expected even and at least 2");
  call.bound.tensors[kPInWeight] = reshaped(p_in, none);
  EXPECT_EQ(call.update(), "INVALID_ARGUMENT: p_in_weight: dimension 2C is 0, expected even and at least 2");
  call.bound.tensors[kPInWeight] = reshaped(p_in, vector);
  EXPECT_EQ(call.update(), "INVALID_ARGUMENT: p_in_weight: number of dimensions is 1 ([96]), expected 2: [2C, C_z]");
}

}  // namespace
}  // namespace trimul::testing
