// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace trimul::cuda::sm80 {

/// x or out: [pairs, width] in a float dtype.
struct PairTensor {
  void* data = nullptr;  // x is never written
  core::DType dtype = core::DType::kF32;
  bool is_vectorised = false;       // every octet of a row that is whole starts on 16 bytes
  bool is_rounded_to_bf16 = false;  // its values are, on their way in
  std::int32_t width = 0;
};

}  // namespace trimul::cuda::sm80
