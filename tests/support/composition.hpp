// SPDX-License-Identifier: Apache-2.0
// The operator as a composition of whole-tensor operations, the way a framework runs it: LayerNorm, four linear layers, sigmoid,
// product, mask, einsum, LayerNorm, linear, product. Written without a line of src/'s arithmetic and in other loop orders, in any
// arithmetic and with any rounding points: it checks the fp64 reference, and it is the plain composition that bounds errors.
#pragma once

#include <vector>

#include "support/case.hpp"

namespace trimul::testing {

/// What each kind of value is rounded to when it is stored; identity by default.
struct RoundingPoints {
  using Round = double (*)(double);
  static double keep(double value) { return value; }
  Round weight = keep;      // the four projections
  Round normalised = keep;  // z and u
  Round linear = keep;      // outputs of the linear layers, biases added
  Round product = keep;     // sigmoid, and sigmoid times value
  Round masked = keep;      // a and b
  Round y = keep;
  Round operand = keep;  // of the matrix products, nowhere stored
  Round out = keep;      // before and after the residual
  bool backward_sums = false;
  bool magnitudes = false;  // |a|, |b| in place of a, b
};

/// Mistakes that users of sister kernels have met, for tests of the comparison itself.
struct Mutation {
  bool other_direction = false;
  bool swap_p_and_g = false;
  bool transpose_mask = false;
  bool binary_mask = false;
  bool ignore_mask = false;
  bool ignore_in_eps = false;
  bool ignore_out_eps = false;
  bool one_pass_variance = false;
  bool mask_output = false;
  bool gate_from_x = false;
  bool swap_a_and_b = false;
  bool forget_residual = false;
  bool multiply_mask_into_nan = false;
};

/// [B, N, N, C_z] in `Real` arithmetic.
template <typename Real>
std::vector<double> compose(const Case& data, const RoundingPoints& points = {}, const Mutation& mutation = {});

/// y of the whole case in fp64, or with `magnitudes` the sums of |a b|, in which the error of any order of sums is measured.
std::vector<double> compose_y(const Case& data, bool magnitudes = false);
/// Same-dtype eager composition: fp32 arithmetic inside an operation, every operation's result rounded to x's dtype (fp64 for fp64 x).
/// The order of its sums is nobody's promise: forwards or backwards are two samples of its error. `tf32`: matrix products round their
/// operands to TF32, as a framework that allows it does.
std::vector<double> compose_plain(const Case& data, bool backward_sums = false, bool tf32 = false);
/// The rounding points that the contract names for GPU kernels.
RoundingPoints kernel_points(const Spec& spec);

}  // namespace trimul::testing
