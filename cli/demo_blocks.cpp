// SPDX-License-Identifier: Apache-2.0
#include "demo_blocks.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

#include "float_formats.hpp"
#include "library.hpp"

namespace trimul::cli {
namespace {

constexpr std::int64_t kSampledTokens = 8;  // the check covers the cells of kSampledTokens rows and as many columns

/// Mean over the unmasked pairs of z's rows after LayerNorm without parameters, [C_z].
std::vector<double> mean_normalised_row(const HostTensor& z, const HostTensor& mask) {
  const auto c_z = static_cast<std::size_t>(z.shape[2]);
  std::vector<double> row(c_z);
  std::vector<double> sum(c_z);
  double count = 0;
  for (std::int64_t pair = 0; pair < mask.elements(); ++pair) {
    if (load_number(mask.data.get(), TRIMUL_F32, pair) == 0.0) continue;
    for (std::size_t k = 0; k < c_z; ++k) row[k] = load_number(z.data.get(), z.dtype, pair * z.shape[2] + static_cast<std::int64_t>(k));
    const double mean = std::accumulate(row.begin(), row.end(), 0.0) / static_cast<double>(c_z);
    double variance = 0;
    for (const double value : row) variance += (value - mean) * (value - mean) / static_cast<double>(c_z);
    for (std::size_t k = 0; k < c_z; ++k) sum[k] += (row[k] - mean) / std::sqrt(variance + 1e-5);
    count += 1;
  }
  for (double& value : sum) value /= std::max(count, 1.0);
  return sum;
}

/// One direction's plan and the scratch both share.
struct Stage {
  trimul_problem problem;
  PlanHandle plan;
};

Stage make_stage(const HostTensor& z, trimul_direction direction) {
  trimul_problem problem = TRIMUL_PROBLEM_INIT;
  problem.tokens = z.shape[0];
  problem.c_z = z.shape[2];
  problem.c_hidden = z.shape[2];
  problem.direction = direction;
  problem.x_dtype = z.dtype;
  problem.has_mask = 1;
  problem.has_in_bias = 1;
  problem.has_out_bias = 1;
  problem.residual = 1;
  return {problem, create_plan(problem, TRIMUL_PLAN_OPTIONS_INIT)};
}

double execute_in_place(const Stage& stage, const HostTensor& z, const HostTensor& mask, const UpdateParameters& parameters,
                        const HostMemory& workspace, std::size_t workspace_bytes) {
  const WeightsHandle weights = create_weights(*stage.plan, parameters.view());
  const trimul_tensor z_view = z.view();
  const trimul_tensor mask_view = mask.view();
  trimul_execute_args args = TRIMUL_EXECUTE_ARGS_INIT;
  args.x = &z_view;
  args.mask = &mask_view;
  args.weights = weights.get();
  args.out = &z_view;
  args.workspace = workspace.get();
  args.workspace_bytes = workspace_bytes;
  const auto start = std::chrono::steady_clock::now();
  check(trimul_execute(stage.plan.get(), &args));
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

/// (0, i, j) for a few rows i and columns j: the reference shares its work between the cells of a row or a column.
std::vector<std::int64_t> sampled_cells(std::int64_t tokens, NormalGenerator& random) {
  const auto draw = [&] { return static_cast<std::int64_t>(random.uniform() * static_cast<double>(tokens)); };
  std::vector<std::int64_t> rows(kSampledTokens);
  std::vector<std::int64_t> columns(kSampledTokens);
  std::ranges::generate(rows, draw);
  std::ranges::generate(columns, draw);
  std::vector<std::int64_t> cells;
  for (const std::int64_t i : rows)
    for (const std::int64_t j : columns) cells.insert(cells.end(), {0, i, j});
  return cells;
}

void compare_sample(const HostTensor& before, const HostTensor& after, const HostTensor& mask, const UpdateParameters& parameters,
                    trimul_direction direction, NormalGenerator& random, BlocksResult& result) {
  const auto c_z = static_cast<std::size_t>(after.shape[2]);
  const std::vector<std::int64_t> cells = sampled_cells(after.shape[0], random);
  const std::size_t num_cells = cells.size() / 3;
  std::vector<double> expected(num_cells * c_z);
  const trimul_tensor x_view = before.view();
  const trimul_tensor mask_view = mask.view();
  trimul_update_args args = TRIMUL_UPDATE_ARGS_INIT;
  args.x = &x_view;
  args.mask = &mask_view;
  args.parameters = &parameters.view();
  args.direction = direction;
  args.residual = 1;
  check(trimul_reference(&args, TRIMUL_ROUNDING_NONE, cells.data(), num_cells, expected.data()));

  double squared_error = 0;
  double squared_reference = 0;
  double worst = 0;
  for (std::size_t k = 0; k < num_cells; ++k) {
    const std::int64_t first = (cells[3 * k + 1] * after.shape[1] + cells[3 * k + 2]) * after.shape[2];
    for (std::size_t channel = 0; channel < c_z; ++channel) {
      const double reference = expected[k * c_z + channel];
      const double got = load_number(after.data.get(), after.dtype, first + static_cast<std::int64_t>(channel));
      // A NaN on one side alone must not vanish in a maximum.
      const double error = std::isnan(got) ? std::numeric_limits<double>::infinity() : std::abs(got - reference);
      squared_error += error * error;
      squared_reference += reference * reference;
      worst = std::max(worst, error);
    }
  }
  const double rms = std::sqrt(squared_reference / static_cast<double>(expected.size()));
  result.relative_rms_error = std::sqrt(squared_error / squared_reference);
  result.relative_worst_error = worst / rms;
  result.checked_cells = static_cast<std::int64_t>(num_cells);
}

}  // namespace

UpdateParameters::UpdateParameters(const std::vector<double>& mean_row, std::int64_t c_hidden, NormalGenerator& random) {
  const auto c_z = static_cast<std::int64_t>(mean_row.size());
  const auto normal = [&](std::int64_t rows, std::int64_t columns, double scale) {
    return random.values(static_cast<std::size_t>(rows * columns), scale / std::sqrt(static_cast<double>(columns)));
  };
  const auto twice = [](std::vector<float> values) {
    values.reserve(2 * values.size());
    std::copy_n(values.begin(), values.size(), std::back_inserter(values));
    return values;
  };
  const std::vector<float> p_in = twice(normal(c_hidden, c_z, 1.0));
  std::vector<float> p_in_bias;
  for (auto row = p_in.begin(); row != p_in.end(); row += c_z)
    p_in_bias.push_back(static_cast<float>(-std::inner_product(mean_row.begin(), mean_row.end(), row, 0.0)));
  tensors_.reserve(7);
  views_.reserve(7);
  view_.p_in_weight = add({2 * c_hidden, c_z}, p_in);
  view_.p_in_bias = add({2 * c_hidden}, p_in_bias);
  view_.g_in_weight = add({2 * c_hidden, c_z}, twice(normal(c_hidden, c_z, 1.0)));
  view_.g_in_bias = add({2 * c_hidden}, std::vector<float>(static_cast<std::size_t>(2 * c_hidden), 1.0F));
  view_.p_out_weight = add({c_z, c_hidden}, normal(c_z, c_hidden, 0.5));
  view_.g_out_weight = add({c_z, c_z}, normal(c_z, c_z, 1.0));
  view_.g_out_bias = add({c_z}, std::vector<float>(static_cast<std::size_t>(c_z), 1.0F));
}

const trimul_tensor* UpdateParameters::add(std::vector<std::int64_t> shape, const std::vector<float>& values) {
  tensors_.push_back(allocate_tensor(TRIMUL_F32, std::move(shape)));
  std::memcpy(tensors_.back().data.get(), values.data(), tensors_.back().bytes());
  views_.push_back(tensors_.back().view());
  return &views_.back();
}

double allowed_error(trimul_dtype dtype) {
  switch (dtype) {
    case TRIMUL_BF16: return 2.5e-3;
    case TRIMUL_F16: return 5e-4;
    default: return 1e-5;
  }
}

BlocksResult run_blocks(const HostTensor& z, const HostTensor& mask, std::int64_t blocks, std::uint64_t seed,
                        const std::function<void(std::string)>& report) {
  NormalGenerator random(seed);
  const Stage outgoing = make_stage(z, TRIMUL_OUTGOING);
  const Stage incoming = make_stage(z, TRIMUL_INCOMING);
  BlocksResult result{
      .implementation = trimul_plan_implementation(outgoing.plan.get()),
      .workspace_bytes = std::max(trimul_plan_workspace_bytes(outgoing.plan.get()), trimul_plan_workspace_bytes(incoming.plan.get())),
      .flop = trimul_plan_flop(outgoing.plan.get()),
      .times_us = {}};
  HostMemory workspace = allocate_host(result.workspace_bytes);
  HostTensor before_last{.dtype = z.dtype, .shape = z.shape, .data = nullptr};
  std::unique_ptr<UpdateParameters> parameters;
  const std::int64_t updates = 2 * blocks;
  for (std::int64_t k = 0; k < updates; ++k) {
    report("update " + std::to_string(k + 1) + " of " + std::to_string(updates));
    parameters = std::make_unique<UpdateParameters>(mean_normalised_row(z, mask), z.shape[2], random);
    if (k + 1 == updates) {
      before_last.data = allocate_host(z.bytes());
      std::memcpy(before_last.data.get(), z.data.get(), z.bytes());
    }
    result.times_us.push_back(execute_in_place(k % 2 == 0 ? outgoing : incoming, z, mask, *parameters, workspace, result.workspace_bytes));
  }
  workspace.reset();
  report("checking against the fp64 reference");
  compare_sample(before_last, z, mask, *parameters, TRIMUL_INCOMING, random, result);
  return result;
}

}  // namespace trimul::cli
