// SPDX-License-Identifier: Apache-2.0
#include "core/arguments.hpp"

#include "core/checked.hpp"
#include "core/error.hpp"

namespace trimul::core {
namespace {

std::string device_text(const Device& device) {
  if (device.type == DeviceType::kCpu && device.index == 0) return "cpu";
  return (device.type == DeviceType::kCpu ? "cpu:" : "cuda:") + std::to_string(device.index);
}

void check_device(const TensorView& view, const Device& expected) {
  if (!(view.device == expected)) fail_invalid(view.name, ": device is ", device_text(view.device), ", expected ", device_text(expected));
}

void check_contiguous(const TensorView& view) {
  if (view.is_contiguous()) return;
  std::string strides;
  for (const std::int64_t stride : view.strides) strides += (strides.empty() ? "" : ", ") + std::to_string(stride);
  fail_invalid(view.name, ": strides of ", view.shape_text(), " are [", strides, "], expected contiguous");
}

void check_dimension(const TensorView& view, const char* letter, std::int64_t dim, std::int64_t expected, const char* source) {
  const std::int64_t got = view.sizes[static_cast<std::size_t>(dim)];
  if (got != expected)
    fail_invalid(view.name, ": dimension ", letter, " (", dim, " of ", view.shape_text(), ") is ", got, ", expected ", expected, " (from ",
                 source, ")");
}

/// What the mask's dimension `d` of `num_leading` is to be, unless it is 1: x's at the same distance from the token dimensions.
std::int64_t expected_leading_size(std::int64_t d, std::int64_t num_leading, const TensorView& x) {
  const std::int64_t x_dim = x.ndim() - 3 - num_leading + d;
  return x_dim >= 0 ? x.sizes[static_cast<std::size_t>(x_dim)] : 1;
}

/// `num_leading` of the mask's dimensions against those of x, aligned at their right end, as broadcasting does.
bool leading_sizes_broadcast(const TensorView& mask, std::int64_t num_leading, const TensorView& x) {
  for (std::int64_t d = 0; d < num_leading; ++d) {
    const std::int64_t size = mask.sizes[static_cast<std::size_t>(d)];
    if (size != 1 && size != expected_leading_size(d, num_leading, x)) return false;
  }
  return true;
}

TensorView check_parameter(const char* name, const trimul_tensor* tensor, const std::vector<std::pair<const char*, std::int64_t>>& shape,
                           const Device& device) {
  TensorView view = view_tensor(name, tensor);
  if (!is_floating(view.dtype)) fail_invalid(name, ": dtype is ", dtype_name(view.dtype), ", expected bf16, fp16, fp32 or fp64");
  if (view.ndim() != static_cast<std::int64_t>(shape.size()))
    fail_invalid(name, ": number of dimensions is ", view.ndim(), " (", view.shape_text(), "), expected ", shape.size());
  for (std::size_t d = 0; d < shape.size(); ++d)
    check_dimension(view, shape[d].first, static_cast<std::int64_t>(d), shape[d].second, "the problem");
  check_contiguous(view);
  check_device(view, device);
  return view;
}

}  // namespace

void check_x(const TensorView& x, const Problem& problem) {
  if (x.ndim() < 3) fail_invalid("x: number of dimensions is ", x.ndim(), " (", x.shape_text(), "), expected at least 3: [..., N, N, C_z]");
  if (x.dtype != problem.x_dtype)
    fail_invalid("x: dtype is ", dtype_name(x.dtype), ", expected ", dtype_name(problem.x_dtype), " (the plan's)");
  check_dimension(x, "C_z", x.ndim() - 1, problem.c_z, "the plan");
  check_dimension(x, "N", x.ndim() - 3, problem.tokens, "the plan");
  check_dimension(x, "N", x.ndim() - 2, problem.tokens, "the plan");
  std::int64_t batch = 1;
  for (std::int64_t d = 0; d + 3 < x.ndim(); ++d) {
    const auto product = checked_product({batch, x.sizes[static_cast<std::size_t>(d)]});
    if (!product) fail_invalid("x: leading dimensions of ", x.shape_text(), " do not fit into 64 bits");
    batch = *product;
  }
  if (batch != problem.batch)
    fail_invalid("x: leading dimensions of ", x.shape_text(), " hold ", batch, " samples, expected B = ", problem.batch,
                 " (from the plan)");
  check_contiguous(x);
  check_device(x, problem.device);
}

void check_out(const TensorView& out, const TensorView& x, const Problem& problem) {
  if (out.dtype != problem.out_dtype())
    fail_invalid("out: dtype is ", dtype_name(out.dtype), ", expected ", dtype_name(problem.out_dtype()));
  const bool drops_batch = x.ndim() == 4 && x.sizes[0] == 1 && out.ndim() == 3;
  const std::vector<std::int64_t> expected(x.sizes.begin() + (drops_batch ? 1 : 0), x.sizes.end());
  if (out.ndim() != static_cast<std::int64_t>(expected.size()))
    fail_invalid("out: number of dimensions is ", out.ndim(), " (", out.shape_text(), "), expected ", expected.size(), " (x is ",
                 x.shape_text(), ")");
  for (std::size_t d = 0; d < expected.size(); ++d) {
    const bool is_token = d + 3 == expected.size() || d + 2 == expected.size();
    const char* letter = d + 1 == expected.size() ? "C_z" : is_token ? "N" : "B";
    check_dimension(out, letter, static_cast<std::int64_t>(d), expected[d], "x");
  }
  check_contiguous(out);
  check_device(out, problem.device);
}

MaskView check_mask(const TensorView& mask, const TensorView& x, const Problem& problem) {
  const std::int64_t n = problem.tokens;
  const auto size = [&mask](std::int64_t d) { return mask.sizes[static_cast<std::size_t>(d)]; };
  std::int64_t rank = mask.ndim();
  if (rank < 2)
    fail_invalid("mask: number of dimensions is ", rank, " (", mask.shape_text(), "), expected at least 2: [..., N, N] or [..., N, N, 1]");
  const bool taken_as_is = size(rank - 1) == n && size(rank - 2) == n;
  const bool may_drop_one = rank >= 3 && size(rank - 1) == 1;  // [..., N, N, 1]
  // At N = 1 both may be meant; as it is unless that does not broadcast.
  if (may_drop_one && (!taken_as_is || (!leading_sizes_broadcast(mask, rank - 2, x) && leading_sizes_broadcast(mask, rank - 3, x)))) --rank;
  check_dimension(mask, "N", rank - 2, n, "x");
  check_dimension(mask, "N", rank - 1, n, "x");
  check_device(mask, problem.device);

  MaskView view;
  view.data = mask.data;
  view.dtype = mask.dtype;
  view.stride_i = mask.strides[static_cast<std::size_t>(rank - 2)];
  view.stride_j = mask.strides[static_cast<std::size_t>(rank - 1)];
  view.num_leading = static_cast<int>(x.ndim() - 3);
  for (int d = 0; d < view.num_leading; ++d) {
    view.leading_sizes[static_cast<std::size_t>(d)] = x.sizes[static_cast<std::size_t>(d)];
    view.leading_strides[static_cast<std::size_t>(d)] = 0;
  }
  for (std::int64_t d = 0; d < rank - 2; ++d) {
    const std::int64_t expected = expected_leading_size(d, rank - 2, x);
    if (size(d) == 1) continue;
    if (size(d) != expected)
      fail_invalid("mask: dimension ", d, " of ", mask.shape_text(), " is ", size(d), ", expected ", expected, expected == 1 ? "" : " or 1",
                   " (x is ", x.shape_text(), ")");
    const std::int64_t x_dim = view.num_leading - (rank - 2) + d;
    view.leading_strides[static_cast<std::size_t>(x_dim)] = mask.strides[static_cast<std::size_t>(d)];
  }
  return view;
}

std::int64_t hidden_width(const TensorView& p_in_weight) {
  if (p_in_weight.ndim() != 2)
    fail_invalid("p_in_weight: number of dimensions is ", p_in_weight.ndim(), " (", p_in_weight.shape_text(), "), expected 2: [2C, C_z]");
  const std::int64_t rows = p_in_weight.sizes[0];
  if (rows < 2 || rows % 2 != 0) fail_invalid("p_in_weight: dimension 2C is ", rows, ", expected even and at least 2");
  return rows / 2;
}

Parameters check_parameters(const trimul_parameters& in, std::int64_t c_z, std::int64_t c, const Device& device) {
  using Shape = std::vector<std::pair<const char*, std::int64_t>>;
  const auto optional = [&device](const char* name, const trimul_tensor* tensor, const Shape& shape) -> std::optional<TensorView> {
    if (tensor == nullptr) return std::nullopt;
    return check_parameter(name, tensor, shape, device);
  };
  Parameters out;
  out.norm_in_weight = optional("norm_in_weight", in.norm_in_weight, {{"C_z", c_z}});
  out.norm_in_bias = optional("norm_in_bias", in.norm_in_bias, {{"C_z", c_z}});
  out.p_in_weight = check_parameter("p_in_weight", in.p_in_weight, {{"2C", 2 * c}, {"C_z", c_z}}, device);
  out.p_in_bias = optional("p_in_bias", in.p_in_bias, {{"2C", 2 * c}});
  out.g_in_weight = check_parameter("g_in_weight", in.g_in_weight, {{"2C", 2 * c}, {"C_z", c_z}}, device);
  out.g_in_bias = optional("g_in_bias", in.g_in_bias, {{"2C", 2 * c}});
  out.norm_out_weight = optional("norm_out_weight", in.norm_out_weight, {{"C", c}});
  out.norm_out_bias = optional("norm_out_bias", in.norm_out_bias, {{"C", c}});
  out.p_out_weight = check_parameter("p_out_weight", in.p_out_weight, {{"C_z", c_z}, {"C", c}}, device);
  out.p_out_bias = optional("p_out_bias", in.p_out_bias, {{"C_z", c_z}});
  out.g_out_weight = check_parameter("g_out_weight", in.g_out_weight, {{"C_z", c_z}, {"C_z", c_z}}, device);
  out.g_out_bias = optional("g_out_bias", in.g_out_bias, {{"C_z", c_z}});
  return out;
}

void check_disjoint(const NamedRange& written, const std::vector<NamedRange>& others) {
  for (const NamedRange& other : others)
    if (written.range.intersects(other.range))
      fail_invalid(written.name, ": its memory intersects that of ", other.name, ", expected no common byte");
}

CallTensors check_call(const Problem& problem, const trimul_tensor* x, const trimul_tensor* mask, const trimul_tensor* out) {
  CallTensors call;
  call.x = view_tensor("x", x);
  check_x(call.x, problem);
  if (mask == nullptr && problem.has_mask) fail_invalid("mask: is missing, but the plan was made with it");
  if (mask != nullptr && !problem.has_mask) fail_invalid("mask: given, but the plan was made without it");
  call.out = view_tensor("out", out);
  check_out(call.out, call.x, problem);
  call.inputs.push_back({"x", call.x.bytes()});
  if (mask != nullptr) {
    const TensorView view = view_tensor("mask", mask);
    call.mask = check_mask(view, call.x, problem);
    call.inputs.push_back({"mask", view.bytes()});
  }
  const NamedRange result{"out", call.out.bytes()};
  check_disjoint(result, {call.inputs.begin() + (call.is_in_place(problem) ? 1 : 0), call.inputs.end()});
  return call;
}

void check_buffer(const char* name, const void* memory, std::size_t bytes, std::size_t needed_bytes) {
  if (bytes < needed_bytes) fail_invalid(name, ": size is ", bytes, " bytes, expected at least ", needed_bytes);
  if (needed_bytes == 0) return;
  if (memory == nullptr) fail_invalid(name, ": is NULL, expected ", needed_bytes, " bytes");
  if (reinterpret_cast<std::uintptr_t>(memory) % kWorkspaceAlignmentBytes != 0)
    fail_invalid(name, ": address is not 256-byte aligned, expected a multiple of 256");
}

}  // namespace trimul::core
