// SPDX-License-Identifier: Apache-2.0
#include "oracle.hpp"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "float_formats.hpp"
#include "library.hpp"
#include "plain_composition.hpp"

namespace trimul::cli {
namespace {

/// About a second of fp64 loops on two cores.
constexpr double kMostMultiplyAddsInFull = 1.5e9;

/// Both ends and some between, different for every seed.
std::set<std::int64_t> sample_tokens(std::int64_t tokens, std::mt19937_64& random) {
  constexpr std::size_t kCount = 8;
  std::set<std::int64_t> chosen{0, tokens - 1};
  while (chosen.size() < std::min<std::size_t>(kCount, static_cast<std::size_t>(tokens)))
    chosen.insert(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(tokens)));
  return chosen;
}

}  // namespace

Oracle::Oracle(const ProblemLine& line, const Inputs& inputs, std::uint64_t seed)
    : line_(line), inputs_(inputs), is_sampled_(multiply_adds(line) > kMostMultiplyAddsInFull) {
  if (is_sampled_) choose_cells(seed);
  none_ = compute(TRIMUL_ROUNDING_NONE);
}

void Oracle::choose_cells(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto rows = sample_tokens(line_.tokens, random);
  const auto columns = sample_tokens(line_.tokens, random);
  // The last sample is where 32-bit offsets would break.
  for (const std::int64_t sample : std::set<std::int64_t>{0, line_.batch - 1})
    for (const std::int64_t i : rows)
      for (const std::int64_t j : columns) cells_.push_back({sample, i, j});
}

const std::vector<double>& Oracle::kernel() {
  if (!kernel_) kernel_ = compute(TRIMUL_ROUNDING_KERNEL);
  return *kernel_;
}

const PlainSamples& Oracle::plain(Products products) {
  if (const auto known = plain_.find(products); known != plain_.end()) return known->second;
  const Settings settings = settings_of(line_);
  const auto sample = [&](SumOrder order) { return select(plain_composition(inputs_, settings, products, order).data(), TRIMUL_F64); };
  PlainSamples plain{.dtype = out_dtype_of(line_),
                     .products = products,
                     .forward = sample(SumOrder::kForward),
                     .backward = sample(SumOrder::kBackward),
                     .slope = slope_errors(inputs_, settings, products)};
  if (is_sampled_) {
    const std::vector<double> all = std::exchange(plain.slope, {});
    for (const auto& [b, i, j] : cells_) plain.slope.push_back(all[static_cast<std::size_t>((b * line_.tokens + i) * line_.tokens + j)]);
  }
  return plain_.emplace(products, std::move(plain)).first->second;
}

std::vector<double> Oracle::select(const void* out, trimul_dtype dtype) const {
  std::vector<double> values(none_.size());
  if (!is_sampled_) {
    for (std::size_t k = 0; k < values.size(); ++k) values[k] = load_number(out, dtype, static_cast<std::int64_t>(k));
    return values;
  }
  const std::int64_t n = line_.tokens;
  std::size_t next = 0;
  for (const auto& [b, i, j] : cells_)
    for (std::int64_t k = 0; k < line_.c_z; ++k) values[next++] = load_number(out, dtype, ((b * n + i) * n + j) * line_.c_z + k);
  return values;
}

std::vector<double> Oracle::compute(trimul_rounding rounding) const {
  const InputViews views(inputs_);
  const Settings settings = settings_of(line_);
  trimul_update_args args = TRIMUL_UPDATE_ARGS_INIT;
  args.x = &views.x();
  args.mask = views.mask();
  args.parameters = &views.parameters();
  args.direction = settings.direction;
  args.precision = settings.precision;
  args.eps = settings.eps;
  args.residual = settings.residual ? 1 : 0;
  const auto num_cells = is_sampled_ ? static_cast<std::int64_t>(cells_.size()) : line_.batch * line_.tokens * line_.tokens;
  std::vector<double> values(static_cast<std::size_t>(num_cells * line_.c_z));
  check(trimul_reference(&args, rounding, is_sampled_ ? cells_.front().data() : nullptr, is_sampled_ ? cells_.size() : 0, values.data()));
  return values;
}

}  // namespace trimul::cli
