// SPDX-License-Identifier: Apache-2.0
#include "accuracy.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "failure.hpp"
#include "narrow_rule.hpp"

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

}  // namespace

Bounds bounds_of(std::string_view implementation, const ProblemLine& line) {
  if (implementation == "reference") return {bound_in(kReferenceBounds, line.dtype), std::nullopt};
  if (implementation == "cpu") return {bound_in(kCpuBounds, line.dtype), std::nullopt};
  // fp32 throughout: as the CPU.
  if (line.precision == TRIMUL_PRECISION_IEEE) return {bound_in(kCpuBounds, line.dtype), std::nullopt};
  if (line.precision == TRIMUL_PRECISION_TF32 && line.dtype == TRIMUL_F32) return {kGpuTf32, std::nullopt};
  const trimul_dtype dtype = line.precision == TRIMUL_PRECISION_BF16 ? TRIMUL_BF16 : line.dtype;
  if (dtype != TRIMUL_BF16) return {bound_in(kGpuBounds, dtype), std::nullopt};
  return {line.bias == BiasKind::kNoBias ? bound_in(kGpuBounds, dtype) : kGpuBf16WithBias, kGpuBf16ToKernel};
}

double narrow_bound(const PlainSamples& plain, const std::vector<double>& reference, trimul_dtype dtype) {
  return narrow_rms_limit(std::max(compare(plain.forward, reference).relative_rms, compare(plain.backward, reference).relative_rms), dtype);
}

std::string judge_narrow_cells(const std::vector<double>& got, const std::vector<double>& reference, const PlainSamples& plain,
                               trimul_dtype dtype) {
  if (reference.empty()) return "";
  const double worst = std::max(largest_difference(plain.forward, reference), largest_difference(plain.backward, reference));
  const double rms = rms_of(reference);
  const std::size_t c_z = reference.size() / plain.slope.size();
  for (std::size_t k = 0; k < reference.size(); ++k) {
    const double difference = std::abs(got[k] - reference[k]);
    const double limit = cell_limit(worst, rms > 0 ? rms : 1.0, plain.slope[k / c_z], reference[k], dtype);
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
  constexpr double kNear = 4e-3;
  constexpr double kFar = 2e-2;
  constexpr double kShareBeyondNear = 300e-6;
  const double rms = rms_of(reference);
  std::size_t beyond = 0;
  for (std::size_t k = 0; k < reference.size(); ++k) {
    const double difference = std::abs(got[k] - reference[k]);
    const double share = std::abs(reference[k]) / 64;
    if (difference > kFar * rms + share)
      return fmt::format("value {} is {}, the reference with the kernels' rounding points {}: off by more than {} of its RMS and 1/64", k,
                         got[k], reference[k], kFar);
    beyond += difference > kNear * rms + share ? 1U : 0U;
  }
  // What is judged is mostly a sample of some thousand values, in which the count scatters: three standard deviations on top
  // (docs/numerics.md).
  const double expected = kShareBeyondNear * static_cast<double>(reference.size());
  const double most = expected + 3 * std::sqrt(expected) + 1;
  if (static_cast<double>(beyond) <= most) return "";
  return fmt::format("{} of {} values are off by more than {} of the RMS and 1/64, expected at most {:.0f}", beyond, reference.size(),
                     kNear, most);
}

}  // namespace trimul::cli
