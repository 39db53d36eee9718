// SPDX-License-Identifier: Apache-2.0
// The rules about the tensors of a call, each checked once, before anything is written: shapes against the problem, strides,
// devices, dtypes, overlaps. Every failure is INVALID_ARGUMENT naming tensor, dimension, what it is and what was expected.
#pragma once

#include <optional>
#include <vector>

#include "core/tensor.hpp"

namespace trimul::core {

/// x: [..., N, N, C_z], contiguous, on the problem's device, of its dtype and sizes.
void check_x(const TensorView& x, const Problem& problem);

/// out: x's shape ([N, N, C_z] for a 4-D x with B = 1 too), contiguous, of the result's dtype.
void check_out(const TensorView& out, const TensorView& x, const Problem& problem);

/// mask: last two sizes N, N, else [..., N, N, 1] (where both are so, at N = 1, the first that broadcasts); leading dimensions broadcast
/// against x's, token dimensions never do.
MaskView check_mask(const TensorView& mask, const TensorView& x, const Problem& problem);

/// The twelve parameters with shapes that follow from c_z and c_hidden, contiguous, floating, on `device`.
Parameters check_parameters(const trimul_parameters& parameters, std::int64_t c_z, std::int64_t c_hidden, const Device& device);

/// C, read from p_in_weight ([2C, C_z]).
std::int64_t hidden_width(const TensorView& p_in_weight);

struct NamedRange {
  const char* name;
  ByteRange range;
};

/// `written` may not intersect any of `others`. Fails naming both.
void check_disjoint(const NamedRange& written, const std::vector<NamedRange>& others);

/// The tensors of a call after validation.
struct CallTensors {
  TensorView x;
  TensorView out;
  std::optional<MaskView> mask;
  std::vector<NamedRange> inputs;  // memory of x and, where there is one, the mask

  /// A residual update with `out` exactly x.
  [[nodiscard]] bool is_in_place(const Problem& problem) const { return problem.residual && out.data == x.data && out.dtype == x.dtype; }
};

/// Everything about x, mask and out that follows from the problem, the memory they share included. A call does this before it allocates
/// anything, so that what is wrong is not reported as what does not fit.
CallTensors check_call(const Problem& problem, const trimul_tensor* x, const trimul_tensor* mask, const trimul_tensor* out);

/// Plain memory that the caller lends: large enough, 256-byte aligned, not NULL unless nothing is needed.
void check_buffer(const char* name, const void* memory, std::size_t bytes, std::size_t needed_bytes);

}  // namespace trimul::core
