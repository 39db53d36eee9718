// SPDX-License-Identifier: Apache-2.0
// The CPU implementation's element-wise work, compiled once per instruction set. Everything is fp32; each function is a pure
// loop over rows or columns, so results do not depend on how the caller splits the work into tiles.
#pragma once

#include <cstdint>

namespace trimul::cpu {

/// 16-bit and 32-bit float storage of x and out.
enum class Storage : std::int32_t { kF32, kF16, kBf16 };

struct LayerNormWeights {
  const float* weight;  // [width]
  const float* bias;    // [width]
  float eps;
};

struct RowKernels {
  const char* isa;

  /// fp32 of `count` stored elements. `round_to_bf16` rounds each to bf16 on the way (precision "bfloat16").
  void (*load)(const void* in, Storage storage, bool round_to_bf16, std::int64_t count, float* out);

  /// out[r, k] = (in[r, k] - mean_r) / sqrt(var_r + eps) * weight[k] + bias[k]; rows are contiguous, [rows, width].
  void (*layer_norm_rows)(const float* in, std::int64_t rows, std::int64_t width, const LayerNormWeights& norm, float* out);

  /// The same over channel-major data: in is [width] rows of `count` columns, `in_stride` elements apart; each column is
  /// normalised over the rows. out: [width, count], contiguous. scratch: 4 * count floats.
  void (*layer_norm_columns)(const float* in, std::int64_t in_stride, std::int64_t width, std::int64_t count, const LayerNormWeights& norm,
                             float* out, float* scratch);

  /// One channel of a or b: out[r] = sigmoid(gate[r] + gate_bias) * (value[r] + value_bias) * mask[r], and exactly 0 where
  /// mask[r] == 0, whatever value and gate hold there. mask: [count], or null for all ones.
  void (*gate_channel)(const float* value, const float* gate, float value_bias, float gate_bias, const float* mask, std::int64_t count,
                       float* out);

  /// out[r, k] = sigmoid(gate[r, k] + gate_bias[k]) * (value[r, k] + value_bias[k]) + residual[r, k], rounded once to `storage`.
  /// [rows, width], contiguous; residual may be null.
  void (*gate_output)(const float* value, const float* gate, const float* value_bias, const float* gate_bias, const float* residual,
                      std::int64_t rows, std::int64_t width, void* out, Storage storage);

  /// C[m, n] = op(A) op(B), row-major, fp32: the matrix product of builds without oneDNN. op(A) is [m, k], op(B) is [k, n];
  /// transposed operands are stored the other way round. lda, ldb, ldc: row strides in elements. scratch: gemm_scratch_floats.
  void (*gemm)(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda,
               const float* b, std::int64_t ldb, float* c, std::int64_t ldc, float* scratch);
  std::int64_t gemm_scratch_floats;
};

/// The sets this processor runs, by index from 0, the best one last; null past it.
const RowKernels* supported_row_kernels(int index);

/// The best set this processor runs. Chosen once.
const RowKernels& row_kernels();

}  // namespace trimul::cpu
