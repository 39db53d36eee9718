// SPDX-License-Identifier: Apache-2.0
// LayerNorm over rows and over columns against fp64, over data that break fp32 statistics.
#include <cmath>

#include "reference/reference.hpp"
#include "stages/row_kernels_of_this_machine.hpp"
#include "support/random.hpp"

namespace trimul::cpu {
namespace {

using testing::Random;

struct Data {
  double mean, spread;
  float eps;
};
constexpr Data kData[] = {{0.2, 1.3, 1e-5F},  {1e2, 1.0, 1e-5F},   {1e4, 1.0, 1e-5F},    {4e4, 1.0, 1e-5F},   {-4e4, 30.0, 1e-5F},
                          {1e6, 1.0, 1e-5F},  {0.0, 1e-3, 1e-5F},  {0.0, 1e-12, 1e-30F}, {0.0, 1e-20, 1e-5F}, {0.0, 1e18, 1e-5F},
                          {0.0, 1e25, 1e-5F}, {1e30, 1e29, 1e-5F}, {0.0, 1e37, 1e-5F},   {0.0, 0.0, 1e-5F},   {4e4, 0.0, 1e-5F},
                          {0.1, 0.0, 1e-30F}, {3e38, 0.0, 1e-5F},  {0.0, 1e-9, 1e-18F},  {0.0, 1e-10, 1e-20F}};

/// Largest error in units of max(1, |result|). A sum of `width` terms of size |mean| may be off by (width u) |mean| in the mean, and the
/// mean of the deviations, which takes that back, by (width u) of it again (u = 2^-24).
double allowed_error(const Data& data, std::int64_t width) {
  const double sum_error = static_cast<double>(width) * 0x1p-24;
  return 2e-6 + (data.spread > 0.0 ? sum_error * sum_error * std::abs(data.mean) / data.spread : 0.0);
}

constexpr std::int64_t kWidths[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 48, 64, 100, 128, 129, 384, 768};

class LayerNorm : public RowKernelTest {
 protected:
  void SetUp() override {
    for (const Data& data : kData)
      for (const std::int64_t width : kWidths) cases_.push_back({data, width});
  }
  struct Item {
    Data data;
    std::int64_t width;
  };
  std::vector<Item> cases_;
};

struct Problem {
  std::vector<float> values, weight, bias;  // values: [rows, width]
  std::vector<double> expected;
};

Problem make_problem(const Data& data, std::int64_t width, std::int64_t rows) {
  Random random(static_cast<std::uint64_t>(width));
  Problem problem;
  const auto w = static_cast<std::size_t>(width);
  for (std::int64_t k = 0; k < rows * width; ++k) problem.values.push_back(static_cast<float>(data.mean + data.spread * random.normal()));
  for (std::size_t k = 0; k < w; ++k) {
    problem.weight.push_back(static_cast<float>(random.uniform(0.5, 1.0)));
    problem.bias.push_back(static_cast<float>(random.uniform(-1.0, 1.0)));
  }
  const std::vector<double> weight(problem.weight.begin(), problem.weight.end()), bias(problem.bias.begin(), problem.bias.end());
  problem.expected.resize(problem.values.size());
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
    const std::vector<double> row(problem.values.begin() + static_cast<std::ptrdiff_t>(r * w),
                                  problem.values.begin() + static_cast<std::ptrdiff_t>((r + 1) * w));
    reference::layer_norm(row, weight, bias, static_cast<double>(data.eps), std::span(problem.expected).subspan(r * w, w));
  }
  return problem;
}

double largest_error(const std::vector<double>& expected, const std::vector<float>& got) {
  double worst = 0.0;
  for (std::size_t k = 0; k < expected.size(); ++k) {
    const double error = std::abs(expected[k] - static_cast<double>(got[k])) / std::max(1.0, std::abs(expected[k]));
    if (!(error <= worst)) worst = std::isnan(error) ? HUGE_VAL : error;
  }
  return worst;
}

TEST_P(LayerNorm, RowsMatchFp64) {
  for (const auto& [data, width] : cases_) {
    const Problem problem = make_problem(data, width, 5);
    std::vector<float> out(problem.values.size() + 8, -7.0F);
    kernels().layer_norm_rows(problem.values.data(), 5, width, {problem.weight.data(), problem.bias.data(), data.eps}, out.data());
    EXPECT_LE(largest_error(problem.expected, out), allowed_error(data, width))
        << "mean " << data.mean << ", spread " << data.spread << ", eps " << static_cast<double>(data.eps) << ", width " << width;
    for (std::size_t k = problem.values.size(); k < out.size(); ++k) EXPECT_EQ(out[k], -7.0F);
  }
}

TEST_P(LayerNorm, ColumnsMatchFp64) {
  for (const auto& [data, width] : cases_)
    for (const std::int64_t count : {1, 7, 16, 37}) {
      const Problem problem = make_problem(data, width, count);
      const std::int64_t stride = count + 3;
      std::vector<float> columns(static_cast<std::size_t>(stride * width), std::nanf(""));
      for (std::int64_t r = 0; r < count; ++r)
        for (std::int64_t k = 0; k < width; ++k)
          columns[static_cast<std::size_t>(k * stride + r)] = problem.values[static_cast<std::size_t>(r * width + k)];
      std::vector<float> out(static_cast<std::size_t>(count * width) + 8, -7.0F), scratch(static_cast<std::size_t>(4 * count) + 1, -7.0F);
      kernels().layer_norm_columns(columns.data(), stride, width, count, {problem.weight.data(), problem.bias.data(), data.eps}, out.data(),
                                   scratch.data());
      std::vector<float> rows(static_cast<std::size_t>(count * width));
      for (std::int64_t r = 0; r < count; ++r)
        for (std::int64_t k = 0; k < width; ++k)
          rows[static_cast<std::size_t>(r * width + k)] = out[static_cast<std::size_t>(k * count + r)];
      EXPECT_LE(largest_error(problem.expected, rows), allowed_error(data, width))
          << "mean " << data.mean << ", spread " << data.spread << ", eps " << static_cast<double>(data.eps) << ", width " << width
          << ", count " << count;
      EXPECT_EQ(scratch.back(), -7.0F);
      for (std::size_t k = rows.size(); k < out.size(); ++k) EXPECT_EQ(out[k], -7.0F);
    }
}

TEST_P(LayerNorm, ARowDoesNotDependOnItsNeighboursOrItsAddress) {
  for (const std::int64_t width : kWidths) {
    const Problem problem = make_problem(kData[1], width, 9);
    const auto w = static_cast<std::size_t>(width);
    std::vector<float> together(9 * w);
    const LayerNormWeights norm{problem.weight.data(), problem.bias.data(), 1e-5F};
    kernels().layer_norm_rows(problem.values.data(), 9, width, norm, together.data());
    for (std::size_t r = 0; r < 9; ++r)
      for (std::size_t shift = 0; shift < 5; ++shift) {
        std::vector<float> moved(w + 5), alone(w + 5);
        std::copy_n(problem.values.begin() + static_cast<std::ptrdiff_t>(r * w), w, moved.begin() + static_cast<std::ptrdiff_t>(shift));
        kernels().layer_norm_rows(moved.data() + shift, 1, width, norm, alone.data() + shift);
        EXPECT_TRUE(std::equal(alone.begin() + static_cast<std::ptrdiff_t>(shift), alone.begin() + static_cast<std::ptrdiff_t>(shift + w),
                               together.begin() + static_cast<std::ptrdiff_t>(r * w)))
            << "row " << r << ", width " << width << ", shift " << shift;
      }
  }
}

TEST_P(LayerNorm, NanAndInfSpoilTheirRowOnly) {
  for (const float payload : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    Problem problem = make_problem(kData[0], 33, 3);
    problem.values[33 + 20] = payload;
    std::vector<float> out(99);
    kernels().layer_norm_rows(problem.values.data(), 3, 33, {problem.weight.data(), problem.bias.data(), 1e-5F}, out.data());
    for (std::size_t k = 0; k < 99; ++k) EXPECT_EQ(std::isnan(out[k]), k / 33 == 1) << k;
  }
}

TRIMUL_INSTANTIATE_ROW_KERNEL_TEST(LayerNorm);

}  // namespace
}  // namespace trimul::cpu
