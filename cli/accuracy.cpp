// SPDX-License-Identifier: Apache-2.0
#include "accuracy.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "failure.hpp"
#include "kernel_cell_rule.hpp"

namespace trimul::cli {
namespace {

struct DTypeBound {
  trimul_dtype dtype;
  double relative_rms;
};

// The output's rounding alone is 2^-p / sqrt(3) of a value at most: 1.7e-3 RMS in bf16, 2.1e-4 in fp16, 2.6e-8 in fp32.
constexpr std::array kReferenceBounds{DTypeBound{TRIMUL_F64, 1e-13}, DTypeBound{TRIMUL_F32, 1e-7}, DTypeBound{TRIMUL_F16, 5e-4},
                                      DTypeBound{TRIMUL_BF16, 2.5e-3}};
constexpr std::array kCpuBounds{DTypeBound{TRIMUL_F32, 1e-5}, DTypeBound{TRIMUL_F16, 5e-4}, DTypeBound{TRIMUL_BF16, 2.5e-3}};
constexpr double kGpuTf32 = 1e-3;
constexpr std::array kGpuBounds{DTypeBound{TRIMUL_F32, 1e-5}, DTypeBound{TRIMUL_F16, 2e-3}, DTypeBound{TRIMUL_BF16, 1e-2}};
// Biases give y a common offset, which bf16 then resolves less well.
constexpr double kGpuBf16WithBias = 2e-2;
constexpr double kGpuBf16ToKernel = 2.7e-3;

template <typename Table>
double bound_in(const Table& table, trimul_dtype dtype) {
  for (const DTypeBound& entry : table)
    if (entry.dtype == dtype) return entry.relative_rms;
  fail(kOther, "no accuracy bound is known for dtype {}", trimul_dtype_name(dtype));
}

double rms_of(const std::vector<double>& values) {
  double squares = 0.0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares / static_cast<double>(values.empty() ? 1 : values.size()));
}

/// The largest error among samples of the plain composition's.
template <typename Error>
double worst_sample(const PlainSamples& plain, const std::vector<double>* kernel, const Error& error) {
  const double worst = std::max(error(plain.forward), error(plain.backward));
  return kernel == nullptr ? worst : std::max(worst, error(*kernel));
}

}  // namespace

Bounds bounds_of(std::string_view implementation, const ProblemLine& line) {
  const trimul_dtype dtype = out_dtype_of(line);
  if (implementation == "reference") return {bound_in(kReferenceBounds, dtype), std::nullopt};
  // Rounds the output alone, and so does a GPU under ieee.
  if (implementation == "cpu" || line.precision == TRIMUL_PRECISION_IEEE) return {bound_in(kCpuBounds, dtype), std::nullopt};
  if (products_of(true, line.dtype, line.precision) == Products::kTf32) return {kGpuTf32, std::nullopt};
  if (dtype != TRIMUL_BF16) return {bound_in(kGpuBounds, dtype), std::nullopt};
  return {line.bias == BiasKind::kNoBias ? bound_in(kGpuBounds, dtype) : kGpuBf16WithBias, kGpuBf16ToKernel};
}

double narrow_bound(const PlainSamples& plain, const std::vector<double>* kernel, const std::vector<double>& reference) {
  const double worst = worst_sample(plain, kernel, [&](const auto& sample) { return compare(sample, reference).relative_rms; });
  return narrow_rms_limit(worst, plain.dtype, plain.products);
}

std::string judge_narrow_cells(const std::vector<double>& got, const std::vector<double>& reference, const PlainSamples& plain,
                               const std::vector<double>* kernel) {
  if (reference.empty()) return "";
  const double worst = worst_sample(plain, kernel, [&](const auto& sample) { return largest_difference(sample, reference); });
  const double rms = rms_of(reference);
  const std::size_t c_z = reference.size() / plain.slope.size();
  for (std::size_t k = 0; k < reference.size(); ++k) {
    const double difference = std::abs(got[k] - reference[k]);
    const double limit = cell_limit(worst, rms > 0 ? rms : 1.0, plain.slope[k / c_z], reference[k], plain.dtype, plain.products);
    if (difference > limit)
      return fmt::format("value {} is {}, the reference {}: off by {:.3e}, expected at most {:.3e}", k, got[k], reference[k], difference,
                         limit);
  }
  return "";
}

ErrorFigures compare(const std::vector<double>& got, const std::vector<double>& reference) {
  ErrorFigures figures;
  double sum_differences = 0.0;
  double sum_reference = 0.0;
  for (std::size_t k = 0; k < reference.size(); ++k) {
    const bool agree =
        std::isfinite(reference[k]) ? std::isfinite(got[k]) : (std::isnan(reference[k]) ? std::isnan(got[k]) : got[k] == reference[k]);
    if (!agree && figures.mismatch.empty()) figures.mismatch = fmt::format("value {} is {}, the reference {}", k, got[k], reference[k]);
    if (!agree || !std::isfinite(reference[k])) continue;
    sum_differences += (got[k] - reference[k]) * (got[k] - reference[k]);
    sum_reference += reference[k] * reference[k];
  }
  figures.is_absolute = sum_reference == 0.0;
  const auto count = static_cast<double>(reference.empty() ? 1 : reference.size());
  figures.relative_rms = std::sqrt(sum_differences / (figures.is_absolute ? count : sum_reference));
  return figures;
}

std::string judge_cells(const std::vector<double>& got, const std::vector<double>& reference) {
  const double rms = rms_of(reference);
  std::size_t beyond = 0;
  for (std::size_t k = 0; k < reference.size(); ++k) {
    const double difference = std::abs(got[k] - reference[k]);
    if (difference > kernel_cell_limit(kFarShareOfRms, rms, reference[k]))
      return fmt::format("value {} is {}, the reference with the kernels' rounding points {}: off by more than {} of its RMS and 1/64", k,
                         got[k], reference[k], kFarShareOfRms);
    beyond += difference > kernel_cell_limit(kNearShareOfRms, rms, reference[k]) ? 1U : 0U;
  }
  const double most = most_beyond_near(reference.size());
  if (static_cast<double>(beyond) <= most) return "";
  return fmt::format("{} of {} values are off by more than {} of the RMS and 1/64, expected at most {:.0f}", beyond, reference.size(),
                     kNearShareOfRms, std::floor(most));
}

}  // namespace trimul::cli
