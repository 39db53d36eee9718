// SPDX-License-Identifier: Apache-2.0
// An execute among other work of its GPU: divided into stages, beside a loaded stream, captured and replayed, asynchronous. No instance
// without a GPU.
#include "support/gpu_stream.hpp"

#include "support/gpu_call.hpp"
#include "support/operator_test.hpp"

namespace trimul::testing {
namespace {

class GpuExecute : public OperatorTest {};

TEST_P(GpuExecute, StagesGiveTheBitsOfTheChain) {
  const GpuStream stream;
  for (const std::int64_t n : {1, 33, 64, 100, 129, 192, 257, 385})
    for (const auto direction : kDirections)
      for (const std::int64_t offset : {0, 3})  // misaligned x and out pass through Hopper's workspace
        for (const Spec& spec :
             gpu_specs({.lead = {n < 100 ? 2 : 1}, .n = n, .direction = direction, .residual = n % 2 == 0, .offset = offset})) {
          const Case data(spec);
          ASSERT_TRUE(accepts(data));
          GpuCall call(data, implementation());
          ASSERT_EQ(trimul_plan_num_stages(call.plan.get()), 3U);
          call.execute(stream.handle());
          const auto expected = call.result(stream.handle());
          call.poison();
          call.execute_stages(stream.handle());
          EXPECT_TRUE(call.result(stream.handle()) == expected) << describe(data.spec);
          if (!data.spec.residual || data.out_dtype() != data.spec.x_dtype) continue;
          call.args.out = &call.inputs.bound.x;
          call.execute_stages(stream.handle());
          EXPECT_TRUE(call.result(stream.handle()) == expected) << "in place: " << describe(data.spec);
        }
}

TEST_P(GpuExecute, StagesThatDoNotExistAreRefused) {
  const Case data(gpu_spec({.n = 8}));
  ASSERT_TRUE(accepts(data));
  GpuCall call(data, implementation());
  EXPECT_EQ(trimul_execute_stage(call.plan.get(), 3, &call.args), TRIMUL_INVALID_ARGUMENT);
  call.args.out = &call.inputs.bound.x;  // without a residual
  EXPECT_EQ(trimul_execute_stage(call.plan.get(), 0, &call.args), TRIMUL_INVALID_ARGUMENT);
  EXPECT_TRUE(call.inputs.inputs_are_unchanged(false));
}

TEST_P(GpuExecute, RunsBesideALoadedStreamAreEqual) {
  const GpuStream stream, loaded;
  // The load takes every multiprocessor and, by its copies, much of the bandwidth.
  const Case other(gpu_spec({.n = 320, .mask = MaskKind::kNone}));
  ASSERT_TRUE(accepts(other));
  GpuCall load(other, implementation());
  const DeviceMemory from(load.inputs.device(), std::size_t{64} << 20), to(load.inputs.device(), std::size_t{64} << 20);
  for (const std::int64_t n : {16, 64, 129, 217, 300})
    for (const Spec& spec : gpu_specs({.lead = {2}, .n = n, .direction = n % 2 == 0 ? TRIMUL_OUTGOING : TRIMUL_INCOMING})) {
      const Case data(spec);
      ASSERT_TRUE(accepts(data));
      GpuCall call(data, implementation());
      call.execute(stream.handle());
      const auto expected = call.result(stream.handle());
      for (int repeat = 0; repeat < 10; ++repeat) {
        call.poison();
        for (int k = 0; k < 10; ++k) {
          load.execute(loaded.handle());
          loaded.copy(to.data(), from.data(), std::size_t{64} << 20);
        }
        call.execute(stream.handle());
        EXPECT_TRUE(call.result(stream.handle()) == expected) << "repeat " << repeat << ": " << describe(data.spec);
      }
      loaded.wait();
    }
}

TEST_P(GpuExecute, ReplayedGraphsGiveTheBitsOfAnExecuteAlsoOfChangedInputs) {
  const GpuStream stream;
  for (const std::int64_t n : {7, 64, 100, 192, 257})
    for (const Spec& spec : gpu_specs({.lead = {2}, .n = n, .mask = MaskKind::kFractional, .residual = true})) {
      Case data(spec);
      ASSERT_TRUE(accepts(data));
      GpuCall call(data, implementation());
      const auto graph = stream.capture([&] { call.execute(stream.handle()); });
      const auto first = run(data, implementation()).raw;
      for (int replay = 0; replay < 3; ++replay) {
        call.poison();
        stream.replay(*graph);
        EXPECT_TRUE(call.result(stream.handle()) == first) << "replay " << replay << ": " << describe(data.spec);
      }
      Random random(data.spec.seed + 1);
      for (std::int64_t k = 0; k < 50; ++k) {
        const auto cell = [&] { return random.integer(0, n - 1); };
        data.set_x(k % 2, cell(), cell(), k % spec.c_z, random.uniform(-2, 2));
        data.set_mask(k % 2, cell(), cell(), k % 3 == 0 ? 0.0 : 1.5);
      }
      call.inputs.upload();
      const auto changed = run(data, implementation()).raw;
      EXPECT_FALSE(changed == first) << "the change changed nothing: " << describe(data.spec);
      // Back to back, as a model replays them: the last decides.
      for (int replay = 0; replay < 5; ++replay) stream.replay(*graph);
      EXPECT_TRUE(call.result(stream.handle()) == changed) << "after a change in place: " << describe(data.spec);
    }
}

TEST_P(GpuExecute, ExecuteWaitsForNothingAndAllocatesNothing) {
  const GpuStream stream;
  for (const std::int64_t n : {33, 64, 257})
    for (const std::int64_t offset : {0, 3})
      for (const Spec& spec : gpu_specs({.n = n, .offset = offset})) {
        const Case data(spec);
        ASSERT_TRUE(accepts(data));
        GpuCall call(data, implementation());
        call.execute(stream.handle());
        const auto expected = call.result(stream.handle());
        call.poison();
        // A call that waited for the stream would wait forever.
        HeldStream held(stream);
        for (int k = 0; k < 20; ++k) call.execute(stream.handle());
        EXPECT_FALSE(stream.is_idle());
        EXPECT_TRUE(held.release()) << "execute waited for its stream: " << describe(data.spec);
        EXPECT_TRUE(call.result(stream.handle()) == expected) << describe(data.spec);
        // A capture refuses allocations and waits; its replay does the work.
        call.poison();
        const auto graph = stream.capture([&] { call.execute(stream.handle()); });
        stream.replay(*graph);
        EXPECT_TRUE(call.result(stream.handle()) == expected) << describe(data.spec);
        // Other processes may allocate at the same time, but hardly during every attempt.
        bool is_unchanged = false;
        for (int attempt = 0; attempt < 400 && !is_unchanged; ++attempt) {
          const std::size_t before = free_gpu_bytes();
          for (int k = 0; k < 50; ++k) call.execute(stream.handle());
          stream.wait();
          is_unchanged = free_gpu_bytes() == before;
        }
        EXPECT_TRUE(is_unchanged) << "the GPU's free memory changed with every 50 executes: " << describe(data.spec);
      }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuExecute);
INSTANTIATE_TEST_SUITE_P(Every, GpuExecute, ::testing::ValuesIn(gpu_implementations()), test_name);

}  // namespace
}  // namespace trimul::testing
