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

/// trimul_tensor_check_disjoint of "copy" and "original".
std::string disjoint(const trimul_tensor& tensor, const trimul_tensor& other) {
  const std::string text = outcome(trimul_tensor_check_disjoint("copy", &tensor, "original", &other));
  // Neither is written: the order of the two decides no more than the order of their names.
  const std::string swapped = outcome(trimul_tensor_check_disjoint("original", &other, "copy", &tensor));
  EXPECT_EQ(text == "OK", swapped == "OK") << swapped;
  return text;
}

TEST(CheckDisjoint, TheBytesThatStridesReachDecide) {
  const GuardedBuffer memory(1 << 12);
  const auto at = [&](std::ptrdiff_t element, const Sizes& sizes, const Sizes* strides = nullptr, std::int32_t dtype = TRIMUL_F32) {
    const trimul_tensor flat{memory.data() + 1024 + 4 * element, {TRIMUL_CPU, 0}, 0, dtype, nullptr, nullptr};
    return reshaped(flat, sizes, strides);
  };
  const std::string overlap = clash("copy", "original");
  const Sizes block{2, 3}, one{1, 1}, three{3};
  const Sizes rows{10, 1}, reversed{-10, -1}, every_second{2}, backwards{-1}, single{0};
  EXPECT_EQ(disjoint(at(0, block), at(0, block)), overlap);
  EXPECT_EQ(disjoint(at(0, block), at(5, block)), overlap);
  EXPECT_EQ(disjoint(at(0, block), at(6, block)), "OK") << "one begins where the other ends";
  EXPECT_EQ(disjoint(at(0, block), at(-6, block)), "OK");
  // Rows 10 elements apart reach 12 and 13 of them; what lies between counts as touched.
  EXPECT_EQ(disjoint(at(0, block, &rows), at(12, one)), overlap);
  EXPECT_EQ(disjoint(at(0, block, &rows), at(5, one)), overlap) << "between the rows";
  EXPECT_EQ(disjoint(at(0, block, &rows), at(13, one)), "OK");
  // Negative strides reach to the left, from the last byte of element [0, 0] on.
  EXPECT_EQ(disjoint(at(0, block, &reversed), at(0, one)), overlap);
  EXPECT_EQ(disjoint(at(0, block, &reversed), at(-12, one)), overlap);
  EXPECT_EQ(disjoint(at(0, block, &reversed), at(-13, one)), "OK");
  EXPECT_EQ(disjoint(at(0, block, &reversed), at(1, one)), "OK");
  EXPECT_EQ(disjoint(at(0, three, &backwards), at(-4, three)), overlap);
  EXPECT_EQ(disjoint(at(0, three, &backwards), at(-5, three)), "OK");
  EXPECT_EQ(disjoint(at(0, three, &every_second), at(1, three, &every_second)), overlap) << "interleaved";
  // Stride 0 reaches one element; the dtype decides how long that is.
  EXPECT_EQ(disjoint(at(0, three, &single), at(1, one)), "OK");
  EXPECT_EQ(disjoint(at(0, three, &single, TRIMUL_F64), at(1, one)), overlap);
  EXPECT_EQ(disjoint(at(0, three, &single, TRIMUL_BF16), at(0, one)), overlap);
}

TEST(CheckDisjoint, ATensorWithoutElementsTouchesNothing) {
  const GuardedBuffer memory(64);
  const Sizes none{0, 3}, some{4}, scalar{};
  const trimul_tensor flat{memory.data(), {TRIMUL_CPU, 0}, 0, TRIMUL_F32, nullptr, nullptr};
  EXPECT_EQ(disjoint(reshaped(flat, none), reshaped(flat, some)), "OK");
  EXPECT_EQ(disjoint(reshaped(flat, none), reshaped(flat, none)), "OK");
  trimul_tensor nowhere = reshaped(flat, none);
  nowhere.data = nullptr;
  EXPECT_EQ(disjoint(nowhere, reshaped(flat, some)), "OK");
  EXPECT_EQ(disjoint(reshaped(flat, scalar), reshaped(flat, some)), clash("copy", "original")) << "no dimensions are one element";
}

TEST(CheckDisjoint, MalformedTensorsAndNamesAreRefused) {
  const GuardedBuffer memory(64);
  const Sizes some{4}, far{std::int64_t{1} << 40}, strides{std::int64_t{1} << 40};
  const trimul_tensor good = reshaped({memory.data(), {TRIMUL_CPU, 0}, 0, TRIMUL_F32, nullptr, nullptr}, some);
  EXPECT_EQ(outcome(trimul_tensor_check_disjoint(nullptr, &good, "b", &good)),
            "INVALID_ARGUMENT: name: is NULL, expected what to call the tensor");
  EXPECT_EQ(outcome(trimul_tensor_check_disjoint("a", &good, nullptr, &good)),
            "INVALID_ARGUMENT: name: is NULL, expected what to call the tensor");
  EXPECT_EQ(outcome(trimul_tensor_check_disjoint("a", nullptr, "b", &good)), "INVALID_ARGUMENT: a: is missing, expected a tensor");
  EXPECT_EQ(outcome(trimul_tensor_check_disjoint("a", &good, "b", nullptr)), "INVALID_ARGUMENT: b: is missing, expected a tensor");
  trimul_tensor bad = good;
  bad.data = nullptr;
  EXPECT_EQ(outcome(trimul_tensor_check_disjoint("a", &good, "b", &bad)), "INVALID_ARGUMENT: b: data is NULL, expected 4 elements");
  bad = reshaped(good, far, &strides);
  EXPECT_EQ(outcome(trimul_tensor_check_disjoint("a", &bad, "b", &good)), "INVALID_ARGUMENT: a: strides reach beyond the address space");
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
