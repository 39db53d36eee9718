// SPDX-License-Identifier: Apache-2.0
// Compiled once per instruction set (TRIMUL_CPU_ISA names it). Standard headers with inline functions are kept out on purpose: the linker
// merges such functions across translation units and could hand the wide-vector copy to the baseline code.
#include "cpu/row_kernels.hpp"

#include "cpu/gemm_blocked.hpp"

#define TRIMUL_CONCAT_(left, right) left##right
#define TRIMUL_CONCAT(left, right) TRIMUL_CONCAT_(left, right)
#define TRIMUL_STRING_(text) #text
#define TRIMUL_STRING(text) TRIMUL_STRING_(text)

namespace trimul::cpu {
namespace {

using std::int32_t;
using std::int64_t;
using std::uint16_t;
using std::uint32_t;

inline uint32_t bits_of(float value) {
  return __builtin_bit_cast(uint32_t, value);
}
inline float float_of(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

/// exp(x) for |x| <= 87, relative error below 2e-7: x = n ln 2 + r, a degree-6 polynomial on |r| <= ln 2 / 2 (its Taylor terms), 2^n by
/// the exponent bits. Written so that a loop over it vectorises on every target.
inline float exp_in_range(float x) {
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;  // 9 bits: n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr float kRoundToInteger = 12582912.F;  // 1.5 * 2^23
  const float shifted = x * kLog2E + kRoundToInteger;
  const float n = shifted - kRoundToInteger;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.3888889e-3F;
  p = p * r + 8.3333333e-3F;
  p = p * r + 4.1666668e-2F;
  p = p * r + 1.6666667e-1F;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const uint32_t exponent = (bits_of(shifted) - bits_of(kRoundToInteger)) << 23;
  return float_of(bits_of(p) + exponent);
}

/// 1 / (1 + exp(-x)); NaN stays NaN. Below -87 the result is 1.6e-38 instead of something smaller still.
inline float sigmoid(float x) {
  float t = -x;
  t = t > 87.0F ? 87.0F : t;
  t = t < -87.0F ? -87.0F : t;
  return 1.0F / (1.0F + exp_in_range(t));
}

inline float float_from_half(uint16_t half) {
  const uint32_t magnitude = (half & 0x7fffU) << 13;
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000U) << 16;
  // 2^112 moves the exponent bias from 15 to 127 and normalises subnormals on the way; Inf and NaN need their exponent set.
  const float scaled = float_of(magnitude) * 0x1p112F;
  const uint32_t finite = bits_of(scaled);
  const uint32_t special = magnitude | 0x7f800000U;
  return float_of((magnitude >= 0x0f800000U ? special : finite) | sign);
}

inline uint16_t half_from_float(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7fffffffU;
  const uint32_t normal = (magnitude + 0xfffU + ((magnitude >> 13) & 1U) - 0x38000000U) >> 13;
  // Adding 0.5 puts the last bit of a subnormal half at the last bit of the fp32 mantissa: the addition rounds.
  const uint32_t subnormal = bits_of(float_of(magnitude) + 0.5F) - bits_of(0.5F);
  const uint32_t finite = magnitude < 0x38800000U ? subnormal : normal;
  const uint32_t special = magnitude > 0x7f800000U ? 0x7e00U : 0x7c00U;
  return static_cast<uint16_t>(sign | (magnitude >= 0x477ff000U ? special : finite));
}

inline float float_from_bf16(uint16_t bits) {
  return float_of(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t bf16_from_float(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x0040U;
  return static_cast<uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
}

template <float (*kConvert)(uint16_t)>
void load_16(const void* in, int64_t count, float* out) {
  const auto* stored = static_cast<const uint16_t*>(in);
  for (int64_t k = 0; k < count; ++k) out[k] = kConvert(stored[k]);
}

void load(const void* in, Storage storage, bool round_to_bf16, int64_t count, float* out) {
  switch (storage) {
    case Storage::kF16: load_16<float_from_half>(in, count, out); break;
    case Storage::kBf16: load_16<float_from_bf16>(in, count, out); break;
    case Storage::kF32: __builtin_memcpy(out, in, static_cast<std::size_t>(count) * sizeof(float)); break;
  }
  if (round_to_bf16)
    for (int64_t k = 0; k < count; ++k) out[k] = float_from_bf16(bf16_from_float(out[k]));
}

// ---- LayerNorm. Two passes, and the mean of the deviations is taken off as well: a row of mean 4e4 would lose 2e-3 without it
// (docs/numerics.md). Where fp32 sums overflow or a tiny eps meets tiny rows, the row is done again in double.

struct RowStatistics {
  float mean;
  float shift;  // mean of the deviations from `mean`: what rounding the mean left over
  float scale;  // 1 / sqrt(var + eps)
};

constexpr float kLargestSafeVariance = 1e30F;
constexpr float kSmallestSafeVariance = 1e-20F;

inline bool needs_double(float variance, float eps) {
  return !(variance < kLargestSafeVariance) || (variance < kSmallestSafeVariance && eps < kSmallestSafeVariance);
}

void layer_norm_row_in_double(const float* in, int64_t stride, int64_t width, const LayerNormWeights& norm, float* out,
                              int64_t out_stride) {
  double mean = 0.0;
  for (int64_t k = 0; k < width; ++k) mean += static_cast<double>(in[k * stride]);
  mean /= static_cast<double>(width);
  double variance = 0.0;
  for (int64_t k = 0; k < width; ++k) {
    const double deviation = static_cast<double>(in[k * stride]) - mean;
    variance += deviation * deviation;
  }
  const double scale = 1.0 / __builtin_sqrt(variance / static_cast<double>(width) + static_cast<double>(norm.eps));
  for (int64_t k = 0; k < width; ++k) {
    const double normalised = (static_cast<double>(in[k * stride]) - mean) * scale;
    out[k * out_stride] = static_cast<float>(normalised * static_cast<double>(norm.weight[k]) + static_cast<double>(norm.bias[k]));
  }
}

inline RowStatistics row_statistics(const float* row, int64_t width, float eps, float* variance_out) {
  const float inverse_width = 1.0F / static_cast<float>(width);
  float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
  for (int64_t k = 0; k < width; ++k) sum += row[k];
  const float mean = sum * inverse_width;
  float squares = 0.0F;
  float deviations = 0.0F;
#pragma omp simd reduction(+ : squares, deviations)
  for (int64_t k = 0; k < width; ++k) {
    const float deviation = row[k] - mean;
    squares += deviation * deviation;
    deviations += deviation;
  }
  const float shift = deviations * inverse_width;
  const float variance = squares * inverse_width - shift * shift;
  *variance_out = variance;
  return {mean, shift, 1.0F / __builtin_sqrtf((variance > 0.0F ? variance : 0.0F) + eps)};
}

void layer_norm_rows(const float* in, int64_t rows, int64_t width, const LayerNormWeights& norm, float* out) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = in + r * width;
    float* result = out + r * width;
    float variance = 0.0F;
    const RowStatistics s = row_statistics(row, width, norm.eps, &variance);
    if (needs_double(variance, norm.eps)) {
      layer_norm_row_in_double(row, 1, width, norm, result, 1);
      continue;
    }
    for (int64_t k = 0; k < width; ++k) result[k] = ((row[k] - s.mean) - s.shift) * s.scale * norm.weight[k] + norm.bias[k];
  }
}

void layer_norm_columns(const float* in, int64_t in_stride, int64_t width, int64_t count, const LayerNormWeights& norm, float* out,
                        float* scratch) {
  float* __restrict__ mean = scratch;
  float* __restrict__ shift = mean + count;
  float* __restrict__ squares = shift + count;
  float* __restrict__ scale = squares + count;
  const float inverse_width = 1.0F / static_cast<float>(width);
  for (int64_t r = 0; r < count; ++r) mean[r] = shift[r] = squares[r] = 0.0F;
  for (int64_t k = 0; k < width; ++k) {
    const float* __restrict__ row = in + k * in_stride;
    for (int64_t r = 0; r < count; ++r) mean[r] += row[r];
  }
  for (int64_t r = 0; r < count; ++r) mean[r] *= inverse_width;
  for (int64_t k = 0; k < width; ++k) {
    const float* __restrict__ row = in + k * in_stride;
    for (int64_t r = 0; r < count; ++r) {
      const float deviation = row[r] - mean[r];
      squares[r] += deviation * deviation;
      shift[r] += deviation;
    }
  }
  for (int64_t r = 0; r < count; ++r) {
    shift[r] *= inverse_width;
    const float variance = squares[r] * inverse_width - shift[r] * shift[r];
    squares[r] = variance;  // from here on the variance
    scale[r] = 1.0F / __builtin_sqrtf((variance > 0.0F ? variance : 0.0F) + norm.eps);
  }
  for (int64_t k = 0; k < width; ++k) {
    const float* __restrict__ row = in + k * in_stride;
    float* __restrict__ result = out + k * count;
    const float weight = norm.weight[k];
    const float bias = norm.bias[k];
    for (int64_t r = 0; r < count; ++r) result[r] = ((row[r] - mean[r]) - shift[r]) * scale[r] * weight + bias;
  }
  for (int64_t r = 0; r < count; ++r)
    if (needs_double(squares[r], norm.eps)) layer_norm_row_in_double(in + r, in_stride, width, norm, out + r, count);
}

// ---- gates

void gate_channel(const float* value, const float* gate, float value_bias, float gate_bias, const float* mask, int64_t count, float* out) {
  if (mask == nullptr) {
    for (int64_t r = 0; r < count; ++r) out[r] = sigmoid(gate[r] + gate_bias) * (value[r] + value_bias);
    return;
  }
  for (int64_t r = 0; r < count; ++r) {
    const float gated = sigmoid(gate[r] + gate_bias) * (value[r] + value_bias) * mask[r];
    out[r] = mask[r] == 0.0F ? 0.0F : gated;
  }
}

template <typename Stored, Stored (*kConvert)(float)>
void gate_output_as(const float* value, const float* gate, const float* value_bias, const float* gate_bias, const float* residual,
                    int64_t rows, int64_t width, Stored* out) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict__ v = value + r * width;
    const float* __restrict__ g = gate + r * width;
    const float* x = residual == nullptr ? nullptr : residual + r * width;
    Stored* o = out + r * width;
    if (residual == nullptr)
#pragma omp simd
      for (int64_t k = 0; k < width; ++k) o[k] = kConvert(sigmoid(g[k] + gate_bias[k]) * (v[k] + value_bias[k]));
    else
#pragma omp simd
      for (int64_t k = 0; k < width; ++k) o[k] = kConvert(sigmoid(g[k] + gate_bias[k]) * (v[k] + value_bias[k]) + x[k]);
  }
}

inline float keep_float(float value) {
  return value;
}

void gate_output(const float* value, const float* gate, const float* value_bias, const float* gate_bias, const float* residual,
                 int64_t rows, int64_t width, void* out, Storage storage) {
  const auto run = [&]<typename Stored, Stored (*kConvert)(float)>() {
    gate_output_as<Stored, kConvert>(value, gate, value_bias, gate_bias, residual, rows, width, static_cast<Stored*>(out));
  };
  switch (storage) {
    case Storage::kF32: run.template operator()<float, keep_float>(); break;
    case Storage::kF16: run.template operator()<uint16_t, half_from_float>(); break;
    case Storage::kBf16: run.template operator()<uint16_t, bf16_from_float>(); break;
  }
}

}  // namespace

const RowKernels& TRIMUL_CONCAT(row_kernels_, TRIMUL_CPU_ISA)();

const RowKernels& TRIMUL_CONCAT(row_kernels_, TRIMUL_CPU_ISA)() {
  static const RowKernels kernels{TRIMUL_STRING(TRIMUL_CPU_ISA),
                                  load,
                                  layer_norm_rows,
                                  layer_norm_columns,
                                  gate_channel,
                                  gate_output,
                                  gemm_blocked,
                                  kGemmScratchFloats};
  return kernels;
}

}  // namespace trimul::cpu
