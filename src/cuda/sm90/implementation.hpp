// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/implementation.hpp"

namespace trimul::cuda::sm90 {

/// "cuda:sm90": bf16 on Hopper at C_z = C = 128, three launches.
core::Implementation implementation();

}  // namespace trimul::cuda::sm90
