// SPDX-License-Identifier: Apache-2.0
#include "support/comparison.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernel_cell_rule.hpp"
#include "narrow_rule.hpp"
#include "support/composition.hpp"

namespace trimul::testing {
namespace {

trimul_dtype as_c(DType dtype) {
  return static_cast<trimul_dtype>(dtype);
}

bool runs_on_gpu(std::string_view implementation) {
  return implementation.starts_with("cuda:");
}

cli::Products products_of(const Case& data, std::string_view implementation) {
  return cli::products_of(runs_on_gpu(implementation), as_c(data.spec.x_dtype), data.spec.precision);
}

/// Computes with bf16 operands, at the rounding points that the reference knows.
bool rounds_as_bf16_kernels(const Case& data, std::string_view implementation) {
  return runs_on_gpu(implementation) && data.out_dtype() == DType::kBf16 && data.spec.precision != TRIMUL_PRECISION_IEEE;
}

/// The table of the contract: relative RMS to "none" for C >= 32; infinity where it names no limit.
double table_limit(const Case& data, std::string_view implementation) {
  if (data.spec.c < 32) return std::numeric_limits<double>::infinity();
  const DType out = data.out_dtype();
  const bool biased = (data.spec.absent & kProjectionBiases) != kProjectionBiases;
  // Under ieee a GPU rounds the output alone, as the CPU does.
  if (runs_on_gpu(implementation) && data.spec.precision != TRIMUL_PRECISION_IEEE) {
    if (out == DType::kBf16) return biased ? 2e-2 : 1e-2;
    if (out == DType::kF16) return 2e-3;
    return products_of(data, implementation) == cli::Products::kTf32 ? 1e-3 : 1e-5;
  }
  if (out == DType::kBf16) return 2.5e-3;
  if (out == DType::kF16) return 5e-4;
  return out == DType::kF32 ? 1e-5 : 1e-12;
}

/// Cells where one is NaN and the other is not, or where infinities differ. The reference counts as the result's dtype holds it.
::testing::AssertionResult specials_agree(DType dtype, const std::vector<double>& got, const std::vector<double>& reference,
                                          bool infinities) {
  for (std::size_t k = 0; k < got.size(); ++k) {
    const double want = std::isfinite(reference[k]) ? rounded_to(dtype, reference[k]) : reference[k];
    const bool agree = std::isnan(want) ? std::isnan(got[k]) : std::isinf(want) ? got[k] == want : std::isfinite(got[k]);
    // At the edge of the dtype's range either side may have rounded across it.
    const bool at_edge = !std::isnan(want) && !std::isnan(got[k]) && std::isfinite(reference[k]) && std::abs(reference[k]) > 6.5e4 &&
                         std::isinf(want) != std::isinf(got[k]) && std::abs(std::abs(reference[k]) - 65520.0) < 65520.0 * 0x1p-9;
    const bool stands_for_inf = !infinities && std::isinf(want) && !std::isfinite(got[k]);
    if (!agree && !at_edge && !stands_for_inf)
      return ::testing::AssertionFailure() << "element " << k << " is " << got[k] << " where the reference is " << reference[k];
  }
  return ::testing::AssertionSuccess();
}

/// A pair's share of the second LayerNorm's slope: cli::slope_error. With C >= 32 pairs whose channels nearly agree do not occur, and
/// nothing is added.
std::vector<double> slope_errors(const Case& data, cli::Products products) {
  const auto c = static_cast<std::size_t>(data.spec.c);
  std::vector<double> errors(static_cast<std::size_t>(data.num_outputs() / data.spec.c_z), 0.0);
  if (data.spec.c >= cli::kNarrowWidth) return errors;
  double weight = 0.0;
  if (data.parameters[kNormOutWeight])
    for (const double value : data.parameters[kNormOutWeight]->values()) weight = std::max(weight, std::abs(value));
  else
    weight = 1.0;
  const double row_sum = cli::largest_absolute_row_sum(data.parameters[kPOutWeight]->values(), c);
  const auto y = compose_y(data);
  const auto magnitude = compose_y(data, true);
  for (std::size_t pair = 0; pair < errors.size(); ++pair)
    errors[pair] = cli::slope_error({&y[pair * c], c}, {&magnitude[pair * c], c}, cli::term_error(products),
                                    static_cast<double>(data.spec.eps), weight, row_sum);
  return errors;
}

/// The largest error among the samples of the plain composition's.
template <typename Error>
double worst_sample(const Oracle& oracle, const Error& error) {
  const double plain = std::max(error(oracle.plain), error(oracle.plain_backward));
  return oracle.kernel.empty() ? plain : std::max(plain, error(oracle.kernel));
}

/// Per cell: twice the plain composition's worst cell, the noise, the slope of the second LayerNorm and the rounding of the value itself.
::testing::AssertionResult cells_agree(const Case& data, cli::Products products, const std::vector<double>& got, const Oracle& oracle) {
  const double reference_rms = rms(oracle.none);
  const double scale = reference_rms > 0.0 ? reference_rms : 1.0;  // absolute where the reference is zero
  const DType dtype = data.out_dtype();
  const double plain = worst_sample(oracle, [&](const auto& sample) { return cli::largest_difference(sample, oracle.none); });
  for (std::size_t k = 0; k < got.size(); ++k) {
    if (!std::isfinite(got[k]) || !std::isfinite(oracle.none[k])) continue;
    const double difference = std::abs(got[k] - oracle.none[k]);
    const double bound =
        cli::cell_limit(plain, scale, oracle.slope[k / static_cast<std::size_t>(data.spec.c_z)], oracle.none[k], as_c(dtype), products);
    if (!(difference <= bound))
      return ::testing::AssertionFailure() << "element " << k << " is " << got[k] << ", the reference " << oracle.none[k] << ": off by "
                                           << difference << ", allowed " << bound << " (RMS of the reference " << scale << ")";
  }
  return ::testing::AssertionSuccess();
}

/// bf16 GPU, to "kernel": kernel_cell_rule.hpp.
::testing::AssertionResult kernel_cells_agree(const std::vector<double>& got, const std::vector<double>& reference) {
  const double scale = rms(reference);
  std::size_t outside = 0;
  for (std::size_t k = 0; k < got.size(); ++k) {
    if (!std::isfinite(got[k]) || !std::isfinite(reference[k])) continue;
    const double difference = std::abs(got[k] - reference[k]);
    if (difference > cli::kernel_cell_limit(cli::kFarShareOfRms, scale, reference[k]))
      return ::testing::AssertionFailure() << "element " << k << " is " << got[k] << ", the kernel reference " << reference[k];
    if (difference > cli::kernel_cell_limit(cli::kNearShareOfRms, scale, reference[k])) ++outside;
  }
  if (static_cast<double>(outside) > cli::most_beyond_near(got.size()))
    return ::testing::AssertionFailure() << outside << " of " << got.size() << " cells lie beyond 4e-3 r + |ref|/64";
  return ::testing::AssertionSuccess();
}

}  // namespace

double rms(const std::vector<double>& values) {
  double sum = 0.0;
  std::size_t count = 0;
  for (const double value : values)
    if (std::isfinite(value)) {
      sum += value * value;
      ++count;
    }
  return count == 0 ? 0.0 : std::sqrt(sum / static_cast<double>(count));
}

double relative_rms(const std::vector<double>& got, const std::vector<double>& reference) {
  std::vector<double> differences;
  std::vector<double> kept;
  for (std::size_t k = 0; k < got.size(); ++k) {
    if (!std::isfinite(got[k]) || !std::isfinite(reference[k])) continue;
    differences.push_back(got[k] - reference[k]);
    kept.push_back(reference[k]);
  }
  const double scale = rms(kept);
  return scale > 0.0 ? rms(differences) / scale : rms(differences);
}

std::vector<double> reference_of(const Case& data, trimul_rounding rounding) {
  const Bound bound(data);
  const trimul_update_args args = bound.update_args(data);
  std::vector<double> values(static_cast<std::size_t>(data.num_outputs()));
  const trimul_status status = trimul_reference(&args, rounding, nullptr, 0, values.data());
  EXPECT_EQ(status, TRIMUL_OK) << trimul_last_error();
  return values;
}

Oracle make_oracle(const Case& data, std::string_view implementation) {
  const cli::Products products = products_of(data, implementation);
  const bool tf32 = products == cli::Products::kTf32;
  return {.none = reference_of(data),
          .kernel = runs_on_gpu(implementation) ? reference_of(data, TRIMUL_ROUNDING_KERNEL) : std::vector<double>(),
          .plain = compose_plain(data, false, tf32),
          .plain_backward = compose_plain(data, true, tf32),
          .slope = slope_errors(data, products)};
}

::testing::AssertionResult meets_contract(const Case& data, std::string_view implementation, const std::vector<double>& got,
                                          const Oracle& oracle, const Limits& limits) {
  const auto fail = [&] { return ::testing::AssertionFailure() << implementation << " on " << describe(data.spec) << ": "; };
  if (got.size() != oracle.none.size()) return fail() << got.size() << " values, expected " << oracle.none.size();
  if (const auto specials = specials_agree(data.out_dtype(), got, oracle.none, limits.infinities); !specials)
    return fail() << specials.message();
  const double error = relative_rms(got, oracle.none);
  const double plain = worst_sample(oracle, [&](const auto& sample) { return relative_rms(sample, oracle.none); });
  const cli::Products products = products_of(data, implementation);
  const double relative_limit = cli::narrow_rms_limit(plain, as_c(data.out_dtype()), products);
  if (!(error <= relative_limit))
    return fail() << "relative RMS " << error << ", allowed " << relative_limit << " (plain composition " << plain << ")";
  const double absolute_limit = limits.none >= 0 ? limits.none : limits.absolute ? table_limit(data, implementation) : error;
  if (!(error <= absolute_limit)) return fail() << "relative RMS " << error << ", allowed " << absolute_limit << " on this path";
  if (rounds_as_bf16_kernels(data, implementation) && data.spec.c >= 32 && limits.absolute) {
    const double to_kernel = relative_rms(got, oracle.kernel);
    if (!(to_kernel <= 2.7e-3)) return fail() << "relative RMS to the kernel reference " << to_kernel << ", allowed 2.7e-3";
    if (const auto cells = kernel_cells_agree(got, oracle.kernel); !cells) return fail() << cells.message();
    return ::testing::AssertionSuccess();
  }
  if (const auto cells = cells_agree(data, products, got, oracle); !cells) return fail() << cells.message();
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult meets_contract(const Case& data, std::string_view implementation, const std::vector<double>& got) {
  return meets_contract(data, implementation, got, make_oracle(data, implementation));
}

}  // namespace trimul::testing
