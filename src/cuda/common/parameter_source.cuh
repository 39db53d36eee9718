// SPDX-License-Identifier: Apache-2.0
// Parameters of a call as kernels that pack them read them: any float dtype, or absent.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <optional>

#include "core/tensor.hpp"

namespace trimul::cuda {

/// A contiguous parameter of any float dtype; data null: absent.
struct Source {
  const void* data = nullptr;
  core::DType dtype = core::DType::kF32;
};

struct ParameterSources {
  Source norm_in_weight, norm_in_bias, p_in_weight, p_in_bias, g_in_weight, g_in_bias;
  Source norm_out_weight, norm_out_bias, p_out_weight, p_out_bias, g_out_weight, g_out_bias;
};

__device__ __forceinline__ float as_float(double value) {
  return static_cast<float>(value);
}
__device__ __forceinline__ float as_float(float value) {
  return value;
}
__device__ __forceinline__ float as_float(__half value) {
  return __half2float(value);
}
__device__ __forceinline__ float as_float(__nv_bfloat16 value) {
  return __bfloat162float(value);
}

/// kCount consecutive elements, all requested before one is awaited.
template <int kCount>
struct Run {
  float values[kCount];

  template <typename T>
  __device__ __forceinline__ void read(const void* data, int index) {
    const T* const from = static_cast<const T*>(data) + index;
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = as_float(from[i]);
  }
};

template <int kCount>
__device__ __forceinline__ Run<kCount> load(const Source& source, int index, float absent) {
  Run<kCount> run;
  if (source.data == nullptr) {
#pragma unroll
    for (float& value : run.values) value = absent;
    return run;
  }
  switch (source.dtype) {
    case core::DType::kF64: run.template read<double>(source.data, index); break;
    case core::DType::kF16: run.template read<__half>(source.data, index); break;
    case core::DType::kBf16: run.template read<__nv_bfloat16>(source.data, index); break;
    default: run.template read<float>(source.data, index);
  }
  return run;
}

/// One element; `absent` where there is no such parameter.
__device__ __forceinline__ float load_parameter(const Source& source, std::int64_t index, float absent) {
  if (source.data == nullptr) return absent;
  switch (source.dtype) {
    case core::DType::kF64: return as_float(static_cast<const double*>(source.data)[index]);
    case core::DType::kF16: return as_float(static_cast<const __half*>(source.data)[index]);
    case core::DType::kBf16: return as_float(static_cast<const __nv_bfloat16*>(source.data)[index]);
    default: return static_cast<const float*>(source.data)[index];
  }
}

inline Source source_of(const core::TensorView& view) {
  return {view.data, view.dtype};
}
inline Source source_of(const std::optional<core::TensorView>& view) {
  return view ? source_of(*view) : Source{};
}

inline ParameterSources sources_of(const core::Parameters& parameters) {
  return {
      .norm_in_weight = source_of(parameters.norm_in_weight),
      .norm_in_bias = source_of(parameters.norm_in_bias),
      .p_in_weight = source_of(parameters.p_in_weight),
      .p_in_bias = source_of(parameters.p_in_bias),
      .g_in_weight = source_of(parameters.g_in_weight),
      .g_in_bias = source_of(parameters.g_in_bias),
      .norm_out_weight = source_of(parameters.norm_out_weight),
      .norm_out_bias = source_of(parameters.norm_out_bias),
      .p_out_weight = source_of(parameters.p_out_weight),
      .p_out_bias = source_of(parameters.p_out_bias),
      .g_out_weight = source_of(parameters.g_out_weight),
      .g_out_bias = source_of(parameters.g_out_bias),
  };
}

}  // namespace trimul::cuda
