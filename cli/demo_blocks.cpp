// SPDX-License-Identifier: Apache-2.0
#include "demo_blocks.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

#include "device_memory.hpp"
#include "float_formats.hpp"
#include "inputs.hpp"
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

trimul_problem problem_of(std::int64_t tokens, trimul_dtype dtype, std::int64_t c_z, trimul_direction direction,
                          const trimul_device& device) {
  trimul_problem problem = TRIMUL_PROBLEM_INIT;
  problem.tokens = tokens;
  problem.c_z = c_z;
  problem.c_hidden = c_z;
  problem.device = device;
  problem.direction = direction;
  problem.x_dtype = dtype;
  problem.has_mask = 1;
  problem.has_in_bias = 1;
  problem.has_out_bias = 1;
  problem.residual = 1;
  return problem;
}

Stage make_stage(const HostTensor& z, trimul_direction direction, const trimul_device& device) {
  const trimul_problem problem = problem_of(z.shape[0], z.dtype, z.shape[2], direction, device);
  return {problem, create_plan(problem, TRIMUL_PLAN_OPTIONS_INIT)};
}

/// A host tensor as the device sees it: itself on the CPU, else a copy.
class Resident {
 public:
  Resident(const HostTensor& tensor, const trimul_device& device) : tensor_(tensor), view_(tensor.view()) {
    if (is_host(device)) return;
    copy_ = std::make_unique<DeviceMemory>(device, tensor.bytes());
    copy_->upload(0, tensor.data.get(), tensor.bytes());
    view_.device = device;
    view_.data = copy_->data();
  }
  [[nodiscard]] const trimul_tensor& view() const { return view_; }
  void download() const {
    if (copy_) copy_->download(tensor_.data.get(), 0, tensor_.bytes());
  }

 private:
  const HostTensor& tensor_;
  trimul_tensor view_;
  std::unique_ptr<DeviceMemory> copy_;
};

/// What all updates of a structure share on its device.
struct Trunk {
  trimul_device device;
  Resident z, mask;
  DeviceMemory workspace;
  std::size_t workspace_bytes;
};

double execute_in_place(const Stage& stage, const Trunk& trunk, const UpdateParameters& parameters) {
  std::deque<Resident> residents;
  std::vector<trimul_tensor> views(kParameterFields.size());
  trimul_parameters on_device = parameters.view();
  for (std::size_t k = 0; k < kParameterFields.size(); ++k) {
    const trimul_tensor*& field = on_device.*kParameterFields[k].field;
    if (field == nullptr) continue;
    views[k] = residents.emplace_back(parameters.tensor_of(field), trunk.device).view();
    field = &views[k];
  }
  const WeightsHandle weights = create_weights(*stage.plan, on_device);
  trimul_execute_args args = TRIMUL_EXECUTE_ARGS_INIT;
  args.x = &trunk.z.view();
  args.mask = &trunk.mask.view();
  args.weights = weights.get();
  args.out = &trunk.z.view();
  args.workspace = trunk.workspace.data();
  args.workspace_bytes = trunk.workspace_bytes;
  if (!is_host(trunk.device)) wait_for(trunk.device);
  const auto start = std::chrono::steady_clock::now();
  check(trimul_execute(stage.plan.get(), &args));
  if (!is_host(trunk.device)) wait_for(trunk.device);
  const double time_us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  trunk.z.download();
  return time_us;
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

const HostTensor& UpdateParameters::tensor_of(const trimul_tensor* view) const {
  return tensors_[static_cast<std::size_t>(view - views_.data())];
}

double allowed_error(trimul_dtype dtype, const trimul_device& device) {
  switch (dtype) {
    case TRIMUL_BF16: return is_host(device) ? 2.5e-3 : 2e-2;  // the updates have biases
    case TRIMUL_F16: return is_host(device) ? 5e-4 : 2e-3;
    default: return 1e-5;
  }
}

bool serves_blocks(const trimul_device& device, trimul_dtype dtype, std::int64_t c_z) {
  const trimul_problem problem = problem_of(1, dtype, c_z, TRIMUL_OUTGOING, device);
  for (std::size_t k = 0; k < trimul_implementation_count(); ++k) {
    const char* reason = nullptr;
    check(trimul_implementation_can_run(trimul_implementation_name(k), &problem, nullptr, &reason));
    if (reason == nullptr) return true;
  }
  return false;
}

BlocksResult run_blocks(const HostTensor& z, const HostTensor& mask, std::int64_t blocks, const trimul_device& device, std::uint64_t seed,
                        const std::function<void(std::string)>& report) {
  NormalGenerator random(seed);
  const Stage outgoing = make_stage(z, TRIMUL_OUTGOING, device);
  const Stage incoming = make_stage(z, TRIMUL_INCOMING, device);
  BlocksResult result{
      .implementation = trimul_plan_implementation(outgoing.plan.get()),
      .workspace_bytes = std::max(trimul_plan_workspace_bytes(outgoing.plan.get()), trimul_plan_workspace_bytes(incoming.plan.get())),
      .flop = trimul_plan_flop(outgoing.plan.get()),
      .times_us = {}};
  HostTensor before_last{.dtype = z.dtype, .shape = z.shape, .data = nullptr};
  std::unique_ptr<UpdateParameters> parameters;
  {
    const Trunk trunk{.device = device,
                      .z = Resident(z, device),
                      .mask = Resident(mask, device),
                      .workspace = DeviceMemory(device, result.workspace_bytes),
                      .workspace_bytes = result.workspace_bytes};
    const std::int64_t updates = 2 * blocks;
    for (std::int64_t k = 0; k < updates; ++k) {
      report("update " + std::to_string(k + 1) + " of " + std::to_string(updates));
      parameters = std::make_unique<UpdateParameters>(mean_normalised_row(z, mask), z.shape[2], random);
      if (k + 1 == updates) {
        before_last.data = allocate_host(z.bytes());
        std::memcpy(before_last.data.get(), z.data.get(), z.bytes());
      }
      result.times_us.push_back(execute_in_place(k % 2 == 0 ? outgoing : incoming, trunk, *parameters));
    }
  }
  report("checking against the fp64 reference");
  compare_sample(before_last, z, mask, *parameters, TRIMUL_INCOMING, random, result);
  return result;
}

}  // namespace trimul::cli
