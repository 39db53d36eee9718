// SPDX-License-Identifier: Apache-2.0
#include "cuda/host/tensor_map.hpp"

#include <array>

#include "cuda/host/check.hpp"

namespace trimul::cuda {
namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

EncodeTiled load_encode_tiled() {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  TRIMUL_CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found));
  if (entry == nullptr || found != cudaDriverEntryPointSuccess)
    throw core::Error(core::StatusCode::kDeviceError, "the driver has no cuTensorMapEncodeTiled, expected a driver of CUDA 12.0 or newer");
  return reinterpret_cast<EncodeTiled>(entry);
}

}  // namespace

CUtensorMap encode_tensor_map(const void* base, std::initializer_list<TensorMapDim> dims) {
  static const EncodeTiled encode = load_encode_tiled();
  constexpr std::size_t kMaxRank = 5;
  std::array<cuuint64_t, kMaxRank> sizes{};
  std::array<cuuint64_t, kMaxRank> strides{};
  std::array<cuuint32_t, kMaxRank> boxes{};
  std::array<cuuint32_t, kMaxRank> element_strides{};
  std::size_t rank = 0;
  for (const TensorMapDim& dim : dims) {
    sizes[rank] = dim.size;
    boxes[rank] = dim.box;
    element_strides[rank] = 1;
    if (rank > 0) strides[rank - 1] = dim.stride_bytes;
    ++rank;
  }
  CUtensorMap map;
  const CUresult result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, static_cast<cuuint32_t>(rank), const_cast<void*>(base),
                                 sizes.data(), strides.data(), boxes.data(), element_strides.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                                 CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw core::Error(core::StatusCode::kDeviceError, core::text("cuTensorMapEncodeTiled failed with CUresult ", static_cast<int>(result),
                                                                 " for rank ", rank, ", innermost size ", sizes[0]));
  return map;
}

}  // namespace trimul::cuda
