// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace trimul::cuda {

/// Whether kernels that were compiled for `architectures` (as CMAKE_CUDA_ARCHITECTURES, apart by spaces: "80-real 90-real 80-virtual") run
/// on compute capability `sm` / 10: code of the same major and no newer minor number, or PTX of no newer one.
bool has_code_for(std::string_view architectures, int sm);

}  // namespace trimul::cuda
