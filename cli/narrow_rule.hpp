// SPDX-License-Identifier: Apache-2.0
// How far a result may be from the fp64 reference where hidden widths are too narrow for fixed bounds (docs/numerics.md): numbers and
// formulas alone, over errors of a plain composition that somebody else has measured. The C++ tests judge by the same.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "trimul/trimul.h"

namespace trimul::cli {

/// Widths C from here on have fixed bounds.
inline constexpr int kNarrowWidth = 32;

/// What a result's matrix products are computed of.
enum class Products {
  kStored,  // operands of the result's dtype or wider, which its noise covers
  kTf32x3,  // fp32 operands as three products of their TF32 parts
  kTf32,    // fp32 operands rounded to TF32
};

/// The products of an fp32 result on a GPU follow its precision; those of other results and places are as stored.
inline Products products_of(bool on_gpu, trimul_dtype x_dtype, std::int32_t precision) {
  if (!on_gpu || x_dtype != TRIMUL_F32) return Products::kStored;
  switch (precision) {
    case TRIMUL_PRECISION_NONE:
    case TRIMUL_PRECISION_DEFAULT:
    case TRIMUL_PRECISION_TF32X3: return Products::kTf32x3;
    case TRIMUL_PRECISION_TF32: return Products::kTf32;
    default: return Products::kStored;
  }
}

/// fp32 to 11 significant bits, ties to even; what is not finite stays.
inline float rounded_to_tf32(float value) {
  if (!std::isfinite(value)) return value;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((bits + 0xfffU + (bits >> 13 & 1U)) & ~0x1fffU);
}

/// Noise of one rounding, relative to the reference's RMS: of the result, or of a TF32 operand, which has as many bits as fp16.
inline double noise_of(trimul_dtype dtype, Products products) {
  switch (dtype) {
    case TRIMUL_BF16: return 0x1p-9;
    case TRIMUL_F16: return 0x1p-12;
    case TRIMUL_F32: return products == Products::kTf32 ? 0x1p-12 : 1e-6;
    default: return 1e-14;
  }
}

/// Largest error of a term of y, relative to the term. fp32: four roundings, of a, of b, of their product and of its sum. Three TF32
/// products: both low parts are rounded to 2^-22 of their operands, and their product, below 2^-22, is left out. TF32: two operands that
/// round to 2^-11 each.
inline double term_error(Products products) {
  switch (products) {
    case Products::kStored: return 4 * 0x1p-24;
    case Products::kTf32x3: return 4 * 0x1p-24 + 3 * 0x1p-22;
    case Products::kTf32: return 2 * 0x1p-11;
  }
  return 0.0;
}

/// Half a unit in the last place, relative to the value.
inline double unit_roundoff(trimul_dtype dtype) {
  switch (dtype) {
    case TRIMUL_BF16: return 0x1p-8;
    case TRIMUL_F16: return 0x1p-11;
    case TRIMUL_F32: return 0x1p-24;
    default: return 0x1p-53;
  }
}

/// Of the relative RMS: twice the plain composition's, and the noise. `plain`: the worse of two samples of its error, with sums forwards
/// and backwards. LayerNorm over a few channels that nearly agree amplifies a single rounding, so that one sample alone says little.
inline double narrow_rms_limit(double plain, trimul_dtype dtype, Products products) {
  return 2.0 * plain + noise_of(dtype, products);
}

/// What an error of `term_error` in every term of y may move a pair's outputs by: LayerNorm's slope is 1 / sqrt(variance + eps), and over
/// a few channels the variance may be next to nothing. Two results that are as good as each other differ by this in single cells, so that
/// the worst cell of one says little about the other's. y, magnitude (with |a|, |b|): the pair's C values; `largest_weight`: of
/// norm_out_weight; `largest_row_sum`: of p_out_weight's absolute values.
inline double slope_error(std::span<const double> y, std::span<const double> magnitude, double term_error, double eps,
                          double largest_weight, double largest_row_sum) {
  const auto width = static_cast<double>(y.size());
  double mean = 0.0, variance = 0.0, largest = 0.0;
  for (const double value : y) mean += value / width;
  for (const double value : y) variance += (value - mean) * (value - mean) / width;
  for (const double value : magnitude) largest = std::max(largest, value);
  const double moved = term_error * largest / std::sqrt(variance + eps) * largest_weight * largest_row_sum;
  return std::isfinite(moved) ? moved : 0.0;
}

/// `largest_row_sum` of a matrix [rows, width].
inline double largest_absolute_row_sum(std::span<const double> matrix, std::size_t width) {
  double largest = 0.0;
  for (std::size_t row = 0; row < matrix.size(); row += width) {
    double sum = 0.0;
    for (const double value : matrix.subspan(row, width)) sum += std::abs(value);
    largest = std::max(largest, sum);
  }
  return largest;
}

/// The largest difference of values that are finite in both.
inline double largest_difference(std::span<const double> left, std::span<const double> right) {
  double largest = 0.0;
  for (std::size_t k = 0; k < left.size(); ++k)
    if (std::isfinite(left[k]) && std::isfinite(right[k])) largest = std::max(largest, std::abs(left[k] - right[k]));
  return largest;
}

/// Of a single value: twice the plain composition's worst, the noise, the slope and the rounding of the value itself. `scale`: the
/// reference's RMS, 1 where that is 0.
inline double cell_limit(double worst_plain, double scale, double slope, double reference, trimul_dtype dtype, Products products) {
  return 2 * worst_plain + 4 * noise_of(dtype, products) * scale + slope + unit_roundoff(dtype) * std::abs(reference);
}

}  // namespace trimul::cli
