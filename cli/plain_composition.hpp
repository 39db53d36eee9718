// SPDX-License-Identifier: Apache-2.0
// The operator as a plain composition of tensor operations in x's dtype, each of which rounds its result: what a user would have
// without this library. Its error is the yardstick where widths are too narrow for fixed bounds.
#pragma once

#include <vector>

#include "inputs.hpp"
#include "narrow_rule.hpp"

namespace trimul::cli {

enum class SumOrder { kForward, kBackward };

/// All B*N*N*C_z values. Operations compute in fp32 and round to the result's dtype (bf16, fp16, fp32; fp64 is treated as fp32): x, the
/// projections' weights, LayerNorm, each product with its bias, sigmoid, each multiplication, the contraction, the residual. kTf32: matrix
/// products round their operands to TF32, as a framework that allows it does.
std::vector<double> plain_composition(const Inputs& inputs, const Settings& settings, Products products, SumOrder order);

/// slope_error (narrow_rule.hpp) of each of the B*N*N pairs, from a composition in fp64.
std::vector<double> slope_errors(const Inputs& inputs, const Settings& settings, Products products);

}  // namespace trimul::cli
