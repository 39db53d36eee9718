// SPDX-License-Identifier: Apache-2.0
// The operator as a plain composition of tensor operations in x's dtype, each of which rounds its result: what a user would have
// without this library. Its error is the yardstick where widths are too narrow for fixed bounds.
#pragma once

#include <vector>

#include "inputs.hpp"

namespace trimul::cli {

/// All B*N*N*C_z values. Operations compute in fp32 and round to x's dtype (bf16, fp16, fp32; fp64 is treated as fp32): LayerNorm,
/// each product with its bias, sigmoid, each multiplication, the contraction, the residual.
std::vector<double> plain_composition(const Inputs& inputs, const Settings& settings);

}  // namespace trimul::cli
