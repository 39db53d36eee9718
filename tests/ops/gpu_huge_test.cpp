// SPDX-License-Identifier: Apache-2.0
// Extents beyond 31 and 32 bits on a GPU: of x, of the planes, of the batch. No instance without a GPU, but for what can be asked of an
// architecture.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "support/operator_test.hpp"

namespace trimul::testing {
namespace {

class GpuHuge : public OperatorTest {
 protected:
  /// Runs the case's problem with `batch` samples of `n` tokens, checked at sampled cells and for elements that were not written.
  void check_huge(const Spec& spec, std::int64_t batch, std::int64_t n);

  [[nodiscard]] std::int64_t plane_bytes(const Spec& spec, std::int64_t batch, std::int64_t n) const {
    return batch * spec.c * n * n * static_cast<std::int64_t>(spec.x_dtype == DType::kF32 ? 4 : 2);
  }
};

/// `elements` of x: a block of random numbers whose length shares no factor with a row's, over and over.
std::vector<std::byte> repeated_block(DType dtype, std::int64_t elements, std::uint64_t seed) {
  const std::int64_t block = std::min<std::int64_t>(33'554'393, elements);  // odd
  const std::size_t width = core::dtype_bytes(dtype);
  std::vector<std::byte> x(static_cast<std::size_t>(elements) * width);
  Random random(seed);
  // A sum of uniforms is near enough to normal.
  for (std::int64_t k = 0; k < block; ++k) store_value(x.data(), dtype, k, random.uniform(-1.5, 1.5) + random.uniform(-1.5, 1.5) + 0.2);
  for (std::int64_t at = block; at < elements; at += block)
    std::memcpy(&x[static_cast<std::size_t>(at) * width], x.data(), static_cast<std::size_t>(std::min(block, elements - at)) * width);
  return x;
}

void GpuHuge::check_huge(const Spec& spec, std::int64_t batch, std::int64_t n) {
  // The parameters of a small case; x by itself, since the support code's element-wise generator would take minutes.
  Spec small_spec = spec;
  small_spec.n = 1;
  small_spec.mask = MaskKind::kNone;
  const Case small(small_spec);
  if (!accepts(small)) return;
  const std::vector<std::byte> x = repeated_block(spec.x_dtype, batch * n * n * spec.c_z, spec.seed);
  const std::size_t element_bytes = core::dtype_bytes(spec.x_dtype);
  const auto width = static_cast<std::size_t>(spec.c_z);

  const trimul_device device = device_of(implementation());
  const DeviceBound parameters(small, device);
  trimul_problem problem = small.problem();
  problem.batch = batch;
  problem.tokens = n;
  const PlanPtr plan = make_plan(problem, implementation());
  ASSERT_NE(plan, nullptr);
  const WeightsPtr weights = make_weights(plan.get(), parameters.bound);
  const std::size_t workspace_bytes = trimul_plan_workspace_bytes(plan.get());
  const DeviceMemory device_x(device, x.size()), device_out(device, x.size()), workspace(device, workspace_bytes);
  device_x.upload(0, x.data(), x.size());
  std::vector<std::byte> piece(std::size_t{256} << 20, kPoison);
  const auto poison = [&](const DeviceMemory& memory, std::size_t size) {
    for (std::size_t at = 0; at < size; at += piece.size()) memory.upload(at, piece.data(), std::min(piece.size(), size - at));
  };
  poison(device_out, x.size());
  poison(workspace, workspace_bytes);

  const Sizes sizes{batch, n, n, spec.c_z};
  const trimul_tensor host_view{const_cast<std::byte*>(x.data()),        kCpuDevice,   4,
                                static_cast<std::int32_t>(spec.x_dtype), sizes.data(), nullptr};
  trimul_tensor x_view = host_view;
  x_view.device = device;
  trimul_tensor out_view = x_view;
  x_view.data = device_x.data();
  out_view.data = device_out.data();
  trimul_execute_args args = TRIMUL_EXECUTE_ARGS_INIT;
  args.x = &x_view;
  args.weights = weights.get();
  args.out = &out_view;
  args.workspace = workspace.data();
  args.workspace_bytes = workspace_bytes;
  ASSERT_EQ(trimul_execute(plan.get(), &args), TRIMUL_OK) << trimul_last_error();

  std::vector<std::int64_t> cells;
  const auto token = [n](std::int64_t k) { return std::clamp<std::int64_t>(k, 0, n - 1); };
  for (const std::int64_t b : std::set<std::int64_t>{0, batch - 1})
    for (const std::int64_t i : std::set<std::int64_t>{0, n / 3, token(n - 2), n - 1})
      for (const std::int64_t j : std::set<std::int64_t>{0, token(n / 2 + 1), token(n - 65), n - 1}) cells.insert(cells.end(), {b, i, j});
  const std::size_t num_cells = cells.size() / 3;
  std::vector<double> got, reference(num_cells * width);
  for (std::size_t k = 0; k < num_cells; ++k) {
    std::vector<std::byte> raw(width * element_bytes);
    device_out.download(raw.data(), static_cast<std::size_t>((cells[3 * k] * n + cells[3 * k + 1]) * n + cells[3 * k + 2]) * raw.size(),
                        raw.size());
    for (const double value : decode(raw, spec.x_dtype)) got.push_back(value);
  }
  const Bound on_host(small);
  trimul_update_args oracle = on_host.update_args(small);
  oracle.x = &host_view;
  // Narrow widths are computed in fp32; only the output is rounded.
  const bool is_narrow = spec.c < 32;
  const bool is_bf16 = spec.x_dtype == DType::kBf16;
  ASSERT_EQ(trimul_reference(&oracle, is_bf16 && !is_narrow ? TRIMUL_ROUNDING_KERNEL : TRIMUL_ROUNDING_NONE, cells.data(), num_cells,
                             reference.data()),
            TRIMUL_OK)
      << trimul_last_error();
  const double error = relative_rms(got, reference);
  std::cout << "B = " << batch << ", N = " << n << ", C_z = " << spec.c_z << ", C = " << spec.c << ", " << core::dtype_name(spec.x_dtype)
            << ": relative RMS " << error << '\n';
  EXPECT_LE(error, is_bf16 ? 2.7e-3 : spec.x_dtype == DType::kF16 ? (is_narrow ? 5e-4 : 2e-3) : 1e-5);
  for (const double value : got) EXPECT_TRUE(std::isfinite(value));

  // Poison left anywhere is an element that was not written.
  std::size_t unwritten = 0;
  for (std::size_t at = 0; at < x.size(); at += piece.size()) {
    const std::size_t size = std::min(piece.size(), x.size() - at);
    device_out.download(piece.data(), at, size);
    for (std::size_t k = 0; k < size; k += element_bytes)
      unwritten += std::all_of(&piece[k], &piece[k] + element_bytes, [](std::byte b) { return b == kPoison; }) ? 1U : 0U;
  }
  EXPECT_EQ(unwritten, 0U);
}

TEST_P(GpuHuge, OneSampleBeyondTwoToThe31Elements) {
  const Spec spec = gpu_spec({.direction = TRIMUL_OUTGOING});
  ASSERT_GT(4100 * 4100 * spec.c_z, std::int64_t{1} << 31);
  check_huge(spec, 1, 4100);
}

TEST_P(GpuHuge, ABatchBeyondTwoToThe31Elements) {
  const Spec spec = gpu_spec({.direction = TRIMUL_INCOMING});
  ASSERT_GT(3 * 2600 * 2600 * spec.c_z, std::int64_t{1} << 31);
  check_huge(spec, 3, 2600);
}

TEST_P(GpuHuge, WidePairsBeyondTwoToThe31Elements) {
  if (implementation() != "cuda:sm90") GTEST_SKIP() << "the kernels of other implementations are the same at every width";
  Spec spec = gpu_spec({.direction = TRIMUL_INCOMING});
  spec.c_z = spec.c = 256;
  ASSERT_GT(2900 * 2900 * spec.c_z, std::int64_t{1} << 31);
  check_huge(spec, 1, 2900);
}

TEST_P(GpuHuge, WideRowsOfNarrowPlanesBeyond4GiB) {
  check_huge({.c_z = 160, .c = 8, .x_dtype = DType::kF32, .direction = TRIMUL_INCOMING}, 1, 2600);
}

TEST_P(GpuHuge, PlanesBeyond4GiBOfEachWidth) {
  const Spec fp32{.c_z = 8, .c = 264, .x_dtype = DType::kF32, .direction = TRIMUL_OUTGOING};
  ASSERT_GT(plane_bytes(fp32, 1, 2050), std::int64_t{1} << 32);
  check_huge(fp32, 1, 2050);
  const Spec fp16{.c_z = 8, .c = 264, .x_dtype = DType::kF16, .direction = TRIMUL_INCOMING};
  ASSERT_GT(plane_bytes(fp16, 2, 2050), std::int64_t{1} << 32);
  check_huge(fp16, 2, 2050);
}

TEST_P(GpuHuge, MoreRowsThanAGridHasInItsSecondDimension) {
  for (const DType dtype : {DType::kBf16, DType::kF16, DType::kF32}) {
    check_huge({.c_z = 8, .c = 12, .x_dtype = dtype}, 70'000, 1);
    check_huge({.c_z = 5, .c = 3, .x_dtype = dtype, .direction = TRIMUL_INCOMING}, 70'001, 3);
    check_huge({.c_z = 8, .c = 70'000, .x_dtype = dtype}, 1, 9);
  }
  check_huge(gpu_spec({}), 70'000, 3);
}

/// Needs no GPU: the constraints are those of an architecture.
std::string reason_for(const char* implementation, const Spec& spec, std::int64_t batch, std::int64_t n) {
  trimul_problem problem = Case(spec).problem();
  problem.device = {TRIMUL_CUDA, 0};
  problem.batch = batch;
  problem.tokens = n;
  const char* reason = nullptr;
  EXPECT_EQ(trimul_implementation_can_run(implementation, &problem, "sm90", &reason), TRIMUL_OK) << trimul_last_error();
  return reason == nullptr ? "" : reason;
}

TEST(GpuPlan, CountsThatDoNotFitHopperAreDeclined) {
  const auto reason = [](std::int64_t batch, std::int64_t n) { return reason_for("cuda:sm90", gpu_spec({.n = 1}), batch, n); };
  if (const std::string absent = reason(1, 64); !absent.empty()) GTEST_SKIP() << absent;  // not in this build
  for (const auto& [batch, n] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 46'300}, {3, 2600}, {100'000, 128}, {16'777'211, 1}})
    EXPECT_EQ(reason(batch, n), "") << batch << ", " << n;
  EXPECT_NE(reason(1, 46'400).find("positions"), std::string::npos);
  EXPECT_NE(reason(300'000, 128).find("positions"), std::string::npos);
  // Tiles below 2^31 by two grids of 264 blocks, which a block may look behind the last one.
  EXPECT_NE(reason(16'777'212, 1).find("tiles"), std::string::npos);
  Spec wide = gpu_spec({.n = 1});
  wide.c_z = wide.c = 256;
  EXPECT_EQ(reason_for("cuda:sm90", wide, 8'388'605, 1), "");
  EXPECT_NE(reason_for("cuda:sm90", wide, 8'388'606, 1).find("tiles"), std::string::npos);
}

TEST(GpuPlan, ThePortableImplementationCountsIn64Bits) {
  const Spec spec{.n = 1, .c_z = 4, .c = 4, .x_dtype = DType::kF32};
  const auto reason = [&spec](std::int64_t batch, std::int64_t n) { return reason_for("cuda:sm80", spec, batch, n); };
  if (const std::string absent = reason(1, 64); !absent.empty()) GTEST_SKIP() << absent;  // not in this build
  for (const auto& [batch, n] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 46'400}, {300'000, 128}, {16'777'216, 1}, {1, 200'000}, {500'000'000, 1}})
    EXPECT_EQ(reason(batch, n), "") << batch << ", " << n;
  EXPECT_NE(reason(1'000'000'000, 1).find("1000000000"), std::string::npos) << reason(1'000'000'000, 1);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuHuge);
INSTANTIATE_TEST_SUITE_P(Every, GpuHuge, ::testing::ValuesIn(gpu_implementations()), test_name);

}  // namespace
}  // namespace trimul::testing
