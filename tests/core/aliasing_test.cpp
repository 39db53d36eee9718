// SPDX-License-Identifier: Apache-2.0
// Byte ranges decide: what is written may touch nothing that is read, but for a residual update exactly in place.
#include <gtest/gtest.h>

#include <cstring>

#include "support/call.hpp"

namespace trimul::testing {
namespace {

const Spec kPlain{.n = 4, .c_z = 8, .c = 6};
const Spec kResidual{.n = 4, .c_z = 8, .c = 6, .residual = true};

std::string clash(const char* written, const char* other) {
  return std::string("INVALID_ARGUMENT: ") + written + ": its memory intersects that of " + other + ", expected no common byte";
}
void* shifted(const void* data, std::ptrdiff_t bytes) {
  return static_cast<std::byte*>(const_cast<void*>(data)) + bytes;
}

/// x, mask, out and workspace are placed in one arena with room around them, so that any of them can be moved onto another.
class Arena {
 public:
  explicit Arena(const Spec& spec) : call(spec), memory(1 << 16) {
    const std::size_t needed = call.workspace.size();
    EXPECT_LT(needed, 3U << 20);
    big = GuardedBuffer(needed + (1 << 16));
  }
  Call call;
  GuardedBuffer memory;
  GuardedBuffer big;
  [[nodiscard]] std::size_t x_bytes() const { return call.data.x.buffer().size(); }
};

TEST(Aliasing, OutMayNotTouchX) {
  Arena arena(kPlain);
  Call& call = arena.call;
  call.bound.x.data = arena.memory.data() + 4096;
  const auto bytes = static_cast<std::ptrdiff_t>(arena.x_bytes());
  for (const std::ptrdiff_t shift : {std::ptrdiff_t{0}, std::ptrdiff_t{4}, std::ptrdiff_t{-4}, bytes - 4, 4 - bytes}) {
    call.out_view.data = shifted(call.bound.x.data, shift);
    EXPECT_EQ(call.execute(), clash("out", "x")) << shift;
    EXPECT_EQ(call.update(), clash("out", "x")) << shift;
  }
  for (const std::ptrdiff_t shift : {bytes, -bytes}) {
    call.out_view.data = shifted(call.bound.x.data, shift);
    EXPECT_EQ(call.execute(), "OK") << shift;
  }
}

TEST(Aliasing, AResidualUpdateMayBeExactlyInPlaceAndNothingElse) {
  Arena arena(kResidual);
  Call& call = arena.call;
  call.bound.x.data = arena.memory.data() + 4096;
  std::memset(call.bound.x.data, 0, arena.x_bytes());
  call.out_view.data = call.bound.x.data;
  EXPECT_EQ(call.execute(), "OK");
  EXPECT_EQ(call.update(), "OK");
  const auto bytes = static_cast<std::ptrdiff_t>(arena.x_bytes());
  for (const std::ptrdiff_t shift : {std::ptrdiff_t{4}, std::ptrdiff_t{-4}, bytes - 4, 4 - bytes}) {
    call.out_view.data = shifted(call.bound.x.data, shift);
    EXPECT_EQ(call.execute(), clash("out", "x")) << shift;
  }
}

TEST(Aliasing, InPlaceNeedsXsDtype) {
  // bfloat16 of fp32 x: the same pointer, but half as wide.
  Spec spec = kResidual;
  spec.precision = TRIMUL_PRECISION_BF16;
  Call call(spec);
  call.out_view.data = call.bound.x.data;
  EXPECT_EQ(call.execute(), clash("out", "x"));
}

TEST(Aliasing, InPlaceMayStillNotTouchTheMask) {
  Spec spec = kResidual;
  spec.mask_dtype = DType::kF32;
  Call call(spec);
  call.out_view.data = call.bound.x.data;
  call.bound.mask.data = shifted(call.bound.x.data, 64);
  EXPECT_EQ(call.execute(), clash("out", "mask"));
}

TEST(Aliasing, OutMayNotTouchTheMask) {
  Arena arena(kPlain);
  Call& call = arena.call;
  call.out_view.data = arena.memory.data() + 4096;
  const auto bytes = static_cast<std::ptrdiff_t>(arena.x_bytes());
  for (const std::ptrdiff_t shift : {std::ptrdiff_t{0}, bytes - 4, std::ptrdiff_t{-60}}) {
    call.bound.mask.data = shifted(call.out_view.data, shift);
    EXPECT_EQ(call.execute(), clash("out", "mask")) << shift;
    EXPECT_EQ(call.update(), clash("out", "mask")) << shift;
  }
  for (const std::ptrdiff_t shift : {bytes, std::ptrdiff_t{-64}}) {  // the mask has 64 bytes
    call.bound.mask.data = shifted(call.out_view.data, shift);
    EXPECT_EQ(call.execute(), "OK") << shift;
  }
}

TEST(Aliasing, AMasksStridesDecideItsBytes) {
  Arena arena(kPlain);
  Call& call = arena.call;
  call.out_view.data = arena.memory.data() + 4096;
  const Sizes sizes{4, 4};
  const Sizes reversed{-4, -1}, single{0, 0}, spread{400, 1};
  call.bound.mask = reshaped(call.bound.mask, sizes, &reversed);
  call.bound.mask.data = shifted(call.out_view.data, 4);  // element [0, 0] is the last byte reached
  EXPECT_EQ(call.execute(), clash("out", "mask"));
  call.bound.mask.data = shifted(call.out_view.data, -4);
  EXPECT_EQ(call.execute(), "OK");
  call.bound.mask.strides = single.data();
  EXPECT_EQ(call.execute(), "OK");
  call.bound.mask.strides = spread.data();  // from before out to behind it
  call.bound.mask.data = shifted(call.out_view.data, -16);
  EXPECT_EQ(call.execute(), clash("out", "mask"));
}

TEST(Aliasing, TheWorkspaceMayTouchNothing) {
  Arena arena(kPlain);
  Call& call = arena.call;
  call.args.workspace = arena.big.data() + 1024;
  const auto bytes = static_cast<std::ptrdiff_t>(call.workspace.size());
  const auto size = static_cast<std::ptrdiff_t>(arena.x_bytes());
  void* const x = call.bound.x.data;
  void* const out = call.out_view.data;
  void* const mask = call.bound.mask.data;
  for (const std::ptrdiff_t shift : {std::ptrdiff_t{0}, bytes - 4, 4 - size}) {
    call.bound.x.data = shifted(call.args.workspace, shift);
    EXPECT_EQ(call.execute(), clash("workspace", "x")) << shift;
    call.bound.x.data = x;
    call.out_view.data = shifted(call.args.workspace, shift);
    EXPECT_EQ(call.execute(), clash("out", "workspace")) << shift;
    call.out_view.data = out;
  }
  for (const std::ptrdiff_t shift : {std::ptrdiff_t{0}, bytes - 4, std::ptrdiff_t{-60}}) {
    call.bound.mask.data = shifted(call.args.workspace, shift);
    EXPECT_EQ(call.execute(), clash("workspace", "mask")) << shift;
    call.bound.mask.data = mask;
  }
  // Beyond what the plan asks for, memory is the caller's.
  call.args.workspace_bytes += 8192;
  call.out_view.data = shifted(call.args.workspace, bytes);
  EXPECT_EQ(call.execute(), "OK");
}

TEST(Aliasing, OutMayNotTouchAParameterInAnUpdate) {
  for (unsigned k = 0; k < kNumParameters; ++k) {
    Arena arena(kPlain);
    Call& call = arena.call;
    const auto id = static_cast<ParameterId>(k);
    const auto parameter_bytes = static_cast<std::ptrdiff_t>(call.data.parameters[k]->buffer().size());
    std::memset(arena.memory.data(), 0, arena.memory.size());
    call.out_view.data = arena.memory.data() + 4096;
    for (const std::ptrdiff_t shift : {static_cast<std::ptrdiff_t>(arena.x_bytes()) - 4, 4 - parameter_bytes, std::ptrdiff_t{0}}) {
      call.bound.tensors[k].data = shifted(call.out_view.data, shift);
      EXPECT_EQ(call.update(), clash("out", parameter_name(id))) << shift;
    }
    call.bound.tensors[k].data = shifted(call.out_view.data, -parameter_bytes);
    EXPECT_EQ(call.update(), "OK");
  }
}

TEST(Aliasing, OutMayNotTouchPackedWeights) {
  Call call(kPlain);
  // The packed copy is the library's own memory; its address is found through the weights' object.
  const core::Plan plan(core::validate_problem(call.data.problem()), {});
  const auto weights = plan.prepare_weights(call.bound.parameters, nullptr);
  for (const core::ByteRange& range : weights->packed->ranges()) {
    call.out_view.data = reinterpret_cast<void*>(range.begin);
    EXPECT_EQ(outcome_of([&] { plan.execute(call.args, *weights); }), clash("out", "weights"));
  }
  EXPECT_GE(weights->packed->ranges().size(), 11U);
}

TEST(Aliasing, InputsMayShareMemory) {
  Call call(kPlain);
  call.bound.mask.data = call.bound.x.data;
  call.bound.tensors[kGInWeight].data = call.bound.tensors[kPInWeight].data;
  EXPECT_EQ(call.execute(), "OK");
  EXPECT_EQ(call.update(), "OK");
}

}  // namespace
}  // namespace trimul::testing
