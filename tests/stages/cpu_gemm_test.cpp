// SPDX-License-Identifier: Apache-2.0
// Matrix products against double: the blocked loops of every instruction set, and the library's own choice.
#include <cmath>

#include "cpu/gemm.hpp"
#include "stages/row_kernels_of_this_machine.hpp"
#include "support/guarded_buffer.hpp"
#include "support/random.hpp"

namespace trimul::cpu {
namespace {

using testing::GuardedBuffer;
using testing::Random;

struct Size {
  std::int64_t m, n, k;
};
// Register blocks are up to 12 x 32, panels 256 deep, blocks of 96 rows and 512 columns: one below, at and above each.
constexpr Size kSizes[] = {{1, 1, 1},     {1, 7, 3},    {5, 1, 2},    {2, 3, 257},   {11, 31, 255}, {12, 32, 256},
                           {13, 33, 258}, {4, 8, 512},  {6, 16, 513}, {95, 17, 33},  {96, 64, 100}, {97, 65, 129},
                           {48, 511, 9},  {7, 512, 31}, {3, 513, 20}, {25, 1030, 5}, {200, 3, 70},  {33, 129, 300}};

struct Operands {
  std::int64_t lda, ldb, ldc;
  std::vector<float> a, b;
  std::vector<double> expected, bound;  // [m, n]; bound: sum of |a b|
};

Operands make_operands(const Size& size, bool transpose_a, bool transpose_b, std::int64_t pad) {
  Random random(static_cast<std::uint64_t>(size.m * 7 + size.n * 3 + size.k));
  Operands operands;
  operands.lda = (transpose_a ? size.m : size.k) + pad;
  operands.ldb = (transpose_b ? size.k : size.n) + pad;
  operands.ldc = size.n + pad;
  operands.a.assign(static_cast<std::size_t>((transpose_a ? size.k : size.m) * operands.lda), std::nanf(""));
  operands.b.assign(static_cast<std::size_t>((transpose_b ? size.n : size.k) * operands.ldb), std::nanf(""));
  const auto a = [&](std::int64_t i, std::int64_t k) -> float& {
    return operands.a[static_cast<std::size_t>(transpose_a ? k * operands.lda + i : i * operands.lda + k)];
  };
  const auto b = [&](std::int64_t k, std::int64_t j) -> float& {
    return operands.b[static_cast<std::size_t>(transpose_b ? j * operands.ldb + k : k * operands.ldb + j)];
  };
  for (std::int64_t i = 0; i < size.m; ++i)
    for (std::int64_t k = 0; k < size.k; ++k) a(i, k) = static_cast<float>(random.normal());
  for (std::int64_t k = 0; k < size.k; ++k)
    for (std::int64_t j = 0; j < size.n; ++j) b(k, j) = static_cast<float>(random.normal());
  for (std::int64_t i = 0; i < size.m; ++i)
    for (std::int64_t j = 0; j < size.n; ++j) {
      double sum = 0.0, magnitude = 0.0;
      for (std::int64_t k = 0; k < size.k; ++k) {
        const double term = static_cast<double>(a(i, k)) * static_cast<double>(b(k, j));
        sum += term;
        magnitude += std::abs(term);
      }
      operands.expected.push_back(sum);
      operands.bound.push_back(magnitude);
    }
  return operands;
}

/// `multiply(operands, c)` for every size, transposition and padding.
template <typename Multiply>
void check_products(const Multiply& multiply) {
  for (const Size& size : kSizes)
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true})
        for (const std::int64_t pad : {0, 3}) {
          const Operands operands = make_operands(size, transpose_a, transpose_b, pad);
          std::vector<float> c(static_cast<std::size_t>(size.m * operands.ldc), std::nanf(""));  // overwritten, never added to
          multiply(size, transpose_a, transpose_b, operands, c.data());
          for (std::int64_t i = 0; i < size.m; ++i)
            for (std::int64_t j = 0; j < operands.ldc; ++j) {
              const float got = c[static_cast<std::size_t>(i * operands.ldc + j)];
              if (j >= size.n) {
                ASSERT_TRUE(std::isnan(got)) << "wrote between rows";
                continue;
              }
              const auto at = static_cast<std::size_t>(i * size.n + j);
              const double allowed = static_cast<double>(size.k + 1) * 0x1p-24 * operands.bound[at];
              ASSERT_NEAR(static_cast<double>(got), operands.expected[at], allowed)
                  << size.m << " x " << size.n << " x " << size.k << (transpose_a ? " A^T" : "") << (transpose_b ? " B^T" : "") << " at "
                  << i << ", " << j;
            }
        }
}

class BlockedGemm : public RowKernelTest {};

TEST_P(BlockedGemm, MatchesDoubleForOddSizesAndAllTransposes) {
  check_products([this](const Size& size, bool ta, bool tb, const Operands& o, float* c) {
    const GuardedBuffer scratch(static_cast<std::size_t>(kernels().gemm_scratch_floats) * sizeof(float));
    kernels().gemm(ta, tb, size.m, size.n, size.k, o.a.data(), o.lda, o.b.data(), o.ldb, c, o.ldc,
                   reinterpret_cast<float*>(scratch.data()));
    ASSERT_TRUE(scratch.guards_are_intact());
  });
}

TEST_P(BlockedGemm, ACellDoesNotDependOnTheSizeOfTheProduct) {
  // Samples and tiles of other sizes must give the same bits: row 3, column 5 of a large and of a small product.
  const Size large{97, 65, 300};
  const Operands o = make_operands(large, false, true, 0);
  std::vector<float> scratch(static_cast<std::size_t>(kernels().gemm_scratch_floats)), all(97 * 65), few(4 * 6);
  kernels().gemm(false, true, 97, 65, 300, o.a.data(), 300, o.b.data(), 300, all.data(), 65, scratch.data());
  kernels().gemm(false, true, 4, 6, 300, o.a.data(), 300, o.b.data(), 300, few.data(), 6, scratch.data());
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t j = 0; j < 6; ++j) EXPECT_EQ(all[i * 65 + j], few[i * 6 + j]);
}

TRIMUL_INSTANTIATE_ROW_KERNEL_TEST(BlockedGemm);

TEST(Gemm, MatchesDoubleForOddSizesAndAllTransposes) {
  const SingleThreadScope one_thread;
  check_products([](const Size& size, bool ta, bool tb, const Operands& o, float* c) {
    const GuardedBuffer scratch(static_cast<std::size_t>(gemm_scratch_floats()) * sizeof(float));
    gemm(size.m, size.n, size.k, {o.a.data(), o.lda, ta ? Transpose::kYes : Transpose::kNo},
         {o.b.data(), o.ldb, tb ? Transpose::kYes : Transpose::kNo}, c, o.ldc, reinterpret_cast<float*>(scratch.data()));
    ASSERT_TRUE(scratch.guards_are_intact());
  });
}

TEST(Gemm, SpoiledTermsSpoilTheirRowsAndColumnsOnly) {
  const SingleThreadScope one_thread;
  Operands o = make_operands({20, 20, 20}, false, true, 0);
  o.a[3 * 20 + 4] = std::nanf("");
  std::vector<float> c(400), scratch(static_cast<std::size_t>(gemm_scratch_floats()));
  gemm(20, 20, 20, {o.a.data(), 20}, {o.b.data(), 20, Transpose::kYes}, c.data(), 20, scratch.data());
  for (std::size_t at = 0; at < 400; ++at) EXPECT_EQ(std::isnan(c[at]), at / 20 == 3) << at;
}

}  // namespace
}  // namespace trimul::cpu
