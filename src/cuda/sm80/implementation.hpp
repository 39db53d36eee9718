// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/implementation.hpp"

namespace trimul::cuda::sm80 {

/// "cuda:sm80": bf16, fp16 and fp32 of any width on compute capability 8.0 and newer, three launches.
core::Implementation implementation();

}  // namespace trimul::cuda::sm80
