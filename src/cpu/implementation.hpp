// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/implementation.hpp"

namespace trimul::cpu {

/// "cpu": bf16, fp16 and fp32 x in fp32 arithmetic, the output the only rounding.
core::Implementation implementation();

}  // namespace trimul::cpu
