// SPDX-License-Identifier: Apache-2.0
// trimul.hpp: whatever can fail throws trimul::Error, and nothing else.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>

#include "support/sanitizers.hpp"
#include "trimul/trimul.hpp"

namespace trimul::testing {
namespace {

/// Status and message of what `call` throws; "OK" when it returns, the type's name for anything that is no trimul::Error.
template <typename Call>
std::string thrown_by(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(trimul_status_name(error.code())) + ": " + error.what();
  } catch (const std::exception& error) {
    return std::string("not an Error: ") + error.what();
  }
  return "OK";
}

/// A valid call over two tokens, C_z = C = 1, whose x a test replaces by one that lies about its memory.
struct Example {
  std::array<float, 4> x_values{1, 2, 3, 4};
  std::array<float, 2> two{1, 2};
  std::array<float, 1> one{1};
  Parameters parameters{.p_in_weight = Tensor(two, {2, 1}),
                        .g_in_weight = Tensor(two, {2, 1}),
                        .p_out_weight = Tensor(one, {1, 1}),
                        .g_out_weight = Tensor(one, {1, 1})};
  Tensor x{x_values, {2, 2, 1}};

  [[nodiscard]] Tensor of_sizes(std::vector<std::int64_t> sizes) const {
    return Tensor::from_memory(reinterpret_cast<const void*>(std::uintptr_t{1} << 44), DType::kF32, std::move(sizes));
  }
};

TEST(CppApi, TheReferenceIsAskedBeforeItsResultIsSized) {
  const Example example;
  const std::vector<Cell> cells{{0, 0, 0}};
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{most / 4},
                                                 {most / 4, 1, 1},
                                                 {1, 1, 1, most / 8},
                                                 {2, 2, 1 << 30},
                                                 {2, 2, most},
                                                 {2, -2, 1},
                                                 {},
                                                 {1 << 30, 1 << 30, 1}}) {
    const Tensor x = example.of_sizes(sizes);
    const std::string all = thrown_by([&] { (void)reference(x, nullptr, example.parameters); });
    EXPECT_EQ(all.substr(0, 17), "INVALID_ARGUMENT:") << all;
    const std::string some = thrown_by([&] { (void)reference_at(cells, x, nullptr, example.parameters); });
    EXPECT_EQ(some.substr(0, 17), "INVALID_ARGUMENT:") << some;
  }
}

TEST(CppApi, AResultThatDoesNotFitIsAnError) {
#if TRIMUL_UNDER_ASAN
  GTEST_SKIP() << "AddressSanitizer ends the process on such sizes unless told otherwise";
#endif
  const Example example;
  const std::string all = thrown_by([&] { (void)reference(example.of_sizes({1 << 22, 1 << 22, 1}), nullptr, example.parameters); });
  EXPECT_EQ(all, "OUT_OF_MEMORY: result: allocating 17592186044416 * 1 values failed");
  EXPECT_EQ(thrown_by([] { const Workspace workspace(std::size_t{1} << 50); }).substr(0, 14), "OUT_OF_MEMORY:");
  EXPECT_EQ(thrown_by([] { const Workspace workspace(SIZE_MAX); }).substr(0, 14), "OUT_OF_MEMORY:");
}

TEST(CppApi, TheReferenceAtChosenCellsIsTheWholeOnes) {
  const Example example;
  const std::vector<double> whole = reference(example.x, nullptr, example.parameters);
  ASSERT_EQ(whole.size(), 4U);
  const std::vector<Cell> cells{{0, 1, 0}, {0, 0, 1}};
  EXPECT_EQ(reference_at(cells, example.x, nullptr, example.parameters), (std::vector<double>{whole[2], whole[1]}));
  EXPECT_TRUE(reference_at({}, example.x, nullptr, example.parameters).empty());
  EXPECT_EQ(thrown_by([&] {
              (void)reference_at({}, example.of_sizes({2, 3, 1}), nullptr, example.parameters);
            }).substr(0, 17),
            "INVALID_ARGUMENT:");
  const std::vector<Cell> outside{{0, 2, 0}};
  EXPECT_EQ(thrown_by([&] { (void)reference_at(outside, example.x, nullptr, example.parameters); }),
            "INVALID_ARGUMENT: cells: entry 0 is (0, 2, 0), expected inside B = 1, N = 2");
}

}  // namespace
}  // namespace trimul::testing
