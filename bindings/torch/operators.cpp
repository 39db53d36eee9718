// SPDX-License-Identifier: Apache-2.0
// The operators of namespace `trimul` in torch's dispatcher, for CPU and CUDA tensors, over the C ABI. docs/python.md says what they are
// for; python/trimul/_operators.py holds their fake kernels and, for a torch without the stable ABI, the same operators over ctypes.
#include <array>
#include <bit>
#include <memory>

#include "tensors.hpp"

namespace trimul::torch_binding {
namespace {

constexpr std::size_t kNumParameters = 12;
constexpr std::array<const char*, kNumParameters> kParameterNames = {"norm_in_weight", "norm_in_bias", "p_in_weight",     "p_in_bias",
                                                                     "g_in_weight",    "g_in_bias",    "norm_out_weight", "norm_out_bias",
                                                                     "p_out_weight",   "p_out_bias",   "g_out_weight",    "g_out_bias"};
constexpr std::size_t kPIn = 2, kPInBias = 3, kGIn = 4, kGInBias = 5, kPOut = 8, kPOutBias = 9, kGOut = 10, kGOutBias = 11;
constexpr bool is_required(std::size_t parameter) {
  return parameter == kPIn || parameter == kGIn || parameter == kPOut || parameter == kGOut;
}

/// Places on the stack of a boxed call; python/trimul/_operators.py writes the schema in the same order.
constexpr std::size_t kX = 0, kMask = 1, kFirstParameter = 2, kDirection = 14, kEps = 15, kPrecision = 16, kResidual = 17, kOut = 18;

struct DestroyPlan {
  void operator()(trimul_plan* plan) const { trimul_plan_destroy(plan); }
};
using PlanRef = std::unique_ptr<trimul_plan, DestroyPlan>;

/// The tensors of a call with what the C ABI reads of them; those it wants contiguous are replaced by copies where they are not.
struct Tensors {
  TensorRef x, mask;
  std::array<TensorRef, kNumParameters> parameters;
  trimul_tensor x_view{}, mask_view{};
  std::array<trimul_tensor, kNumParameters> parameter_views{};

  /// Takes everything over from the stack first, so that nothing leaks when a check fails.
  explicit Tensors(StableIValue* stack) : x(take(stack[kX])), mask(take_optional(stack[kMask])) {
    for (std::size_t k = 0; k < kNumParameters; ++k) {
      const StableIValue value = stack[kFirstParameter + k];
      parameters[k] = is_required(k) ? take(value) : take_optional(value);
    }
  }

  /// `out`: tensors that are copied are checked against it first, as the C ABI sees only the copies.
  void read(const trimul_tensor* out) {
    x_view = view("x", x.get());
    make_contiguous("x", x, x_view, out);
    if (mask) {
      // Masks of dtypes that the C ABI has no number for (the wider unsigned integers, fp8) are converted.
      if (!has_known_dtype(mask.get()) && !is_complex(mask.get())) {
        mask_view = view_any("mask", mask.get());
        if (out != nullptr) check(trimul_tensor_check_disjoint("out", out, "mask", &mask_view));
        mask = fp32_copy("mask", mask, mask_view);
      }
      mask_view = view("mask", mask.get());
    }
    for (std::size_t k = 0; k < kNumParameters; ++k) {
      if (!parameters[k]) continue;
      parameter_views[k] = view(kParameterNames[k], parameters[k].get());
      make_contiguous(kParameterNames[k], parameters[k], parameter_views[k], out);
    }
  }

  [[nodiscard]] trimul_parameters parameter_table() const {
    const auto at = [this](std::size_t k) { return parameters[k] ? &parameter_views[k] : nullptr; };
    return {sizeof(trimul_parameters), at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8), at(9), at(10), at(11)};
  }

 private:
  static void make_contiguous(const char* name, TensorRef& tensor, trimul_tensor& tensor_view, const trimul_tensor* out) {
    if (is_contiguous(tensor_view)) return;
    if (out != nullptr) check(trimul_tensor_check_disjoint("out", out, name, &tensor_view));
    tensor = contiguous_copy(name, tensor, tensor_view);
    tensor_view = view(name, tensor.get());
  }
};

trimul_problem problem_of(const Tensors& tensors, const StableIValue* stack) {
  const trimul_tensor& x = tensors.x_view;
  if (x.ndim < 3)
    fail(TRIMUL_INVALID_ARGUMENT, "x: number of dimensions is " + std::to_string(x.ndim) + ", expected at least 3: [..., N, N, C_z]");
  const trimul_tensor& p_in = tensors.parameter_views[kPIn];
  if (p_in.ndim != 2)
    fail(TRIMUL_INVALID_ARGUMENT, "p_in_weight: number of dimensions is " + std::to_string(p_in.ndim) + ", expected 2: [2C, C_z]");
  if (p_in.sizes[0] < 2 || p_in.sizes[0] % 2 != 0)
    fail(TRIMUL_INVALID_ARGUMENT, "p_in_weight: dimension 2C is " + std::to_string(p_in.sizes[0]) + ", expected even and at least 2");
  // Before a plan is asked for, so that no implementation declines widths that do not belong together.
  if (p_in.sizes[1] != x.sizes[x.ndim - 1])
    fail(TRIMUL_INVALID_ARGUMENT, "p_in_weight: dimension C_z (1 of [" + std::to_string(p_in.sizes[0]) + ", " +
                                      std::to_string(p_in.sizes[1]) + "]) is " + std::to_string(p_in.sizes[1]) + ", expected " +
                                      std::to_string(x.sizes[x.ndim - 1]) + " (from x)");
  trimul_problem problem = TRIMUL_PROBLEM_INIT;
  for (int32_t d = 0; d + 3 < x.ndim; ++d) problem.batch *= x.sizes[d];
  problem.tokens = x.sizes[x.ndim - 3];
  problem.c_z = x.sizes[x.ndim - 1];
  problem.c_hidden = p_in.sizes[0] / 2;
  problem.device = x.device;
  problem.direction = static_cast<int32_t>(torch::stable::detail::to<std::int64_t>(stack[kDirection]));
  problem.x_dtype = x.dtype;
  problem.precision = static_cast<int32_t>(torch::stable::detail::to<std::int64_t>(stack[kPrecision]));
  problem.eps = static_cast<float>(torch::stable::detail::to<double>(stack[kEps]));
  problem.has_mask = tensors.mask ? 1 : 0;
  problem.has_in_bias = tensors.parameters[kPInBias] || tensors.parameters[kGInBias] ? 1 : 0;
  problem.has_out_bias = tensors.parameters[kPOutBias] || tensors.parameters[kGOutBias] ? 1 : 0;
  problem.residual = torch::stable::detail::to<bool>(stack[kResidual]) ? 1 : 0;
  return problem;
}

/// A plan of the cache. On the CPU it takes no more threads than torch does.
PlanRef acquire_plan(const trimul_problem& problem) {
  trimul_plan_options options = TRIMUL_PLAN_OPTIONS_INIT;
  if (problem.device.type == TRIMUL_CPU) {
    uint32_t threads = 0;
    check_torch(torch_get_num_threads(&threads), "reading torch's number of threads");
    options.max_threads = threads;
  }
  trimul_plan* plan = nullptr;
  check(trimul_plan_acquire(&problem, &options, &plan));
  return PlanRef(plan);
}

/// The drop-in call. `out`: where the result goes; empty: allocated here. Returns the allocated result.
TensorRef update(StableIValue* stack, Tensors& tensors, const TensorRef& out) {
  trimul_tensor out_view{};
  if (out) out_view = view("out", out.get());
  tensors.read(out ? &out_view : nullptr);
  const trimul_problem problem = problem_of(tensors, stack);
  const PlanRef plan = acquire_plan(problem);
  TensorRef result;
  if (!out) {
    trimul_dtype dtype{};
    check(trimul_problem_out_dtype(&problem, &dtype));
    result = allocate_like("out", tensors.x_view, torch_dtype_of(dtype));
    out_view = view("out", result.get());
  }
  trimul_execute_args args = TRIMUL_EXECUTE_ARGS_INIT;
  args.x = &tensors.x_view;
  args.mask = tensors.mask ? &tensors.mask_view : nullptr;
  args.out = &out_view;
  args.workspace_bytes = trimul_plan_workspace_bytes_with_parameters(plan.get());
  const Workspace workspace(args.workspace_bytes, problem.device);
  args.workspace = workspace.data();
  args.stream = current_stream(problem.device);
  const trimul_parameters parameters = tensors.parameter_table();
  check(trimul_execute_parameters(plan.get(), &args, &parameters));
  return result;
}

void boxed_update(StableIValue* stack, uint64_t /*num_args*/, uint64_t /*num_outputs*/) {
  Tensors tensors(stack);
  stack[0] = torch::stable::detail::from(update(stack, tensors, {}).release());
}

void boxed_update_out(StableIValue* stack, uint64_t /*num_args*/, uint64_t /*num_outputs*/) {
  Tensors tensors(stack);
  const TensorRef out = take(stack[kOut]);
  (void)update(stack, tensors, out);
}

/// A caller's buffer as workspace. torch aligns memory of the CPU to 64 bytes only: there it is kSlackBytes (CPU_SLACK_BYTES of
/// python/trimul/_library.py) larger than what is needed, whatever its address is, and what lies before the next multiple of 256 is left
/// out.
void bind_workspace(const trimul_plan* plan, AtenTensorHandle workspace, trimul_execute_args& args) {
  constexpr std::uintptr_t kTorchAlignmentBytes = 64, kAlignmentBytes = 256;
  constexpr std::size_t kSlackBytes = kAlignmentBytes - kTorchAlignmentBytes;
  const trimul_tensor buffer = view("workspace", workspace);
  if (!is_contiguous(buffer)) fail(TRIMUL_INVALID_ARGUMENT, "workspace: is not contiguous, expected a contiguous buffer");
  std::size_t bytes = trimul_dtype_bytes(static_cast<trimul_dtype>(buffer.dtype));
  for (int32_t d = 0; d < buffer.ndim; ++d) bytes *= static_cast<std::size_t>(buffer.sizes[d]);
  const trimul_device& device = args.x->device;
  if (buffer.device.type != device.type || buffer.device.index != device.index)
    fail(TRIMUL_INVALID_ARGUMENT, "workspace: is on another device than x, expected the same");
  args.workspace = buffer.data;
  args.workspace_bytes = bytes;
  const std::size_t needed = plan == nullptr ? 0 : trimul_plan_workspace_bytes(plan);
  if (device.type != TRIMUL_CPU || needed == 0) return;
  if (bytes < needed + kSlackBytes)
    fail(TRIMUL_INVALID_ARGUMENT,
         "workspace: size is " + std::to_string(bytes) + " bytes, expected at least " + std::to_string(needed + kSlackBytes));
  const auto address = reinterpret_cast<std::uintptr_t>(buffer.data);
  // Any other address is the C ABI's to refuse.
  if (address % kTorchAlignmentBytes != 0) return;
  const std::uintptr_t skipped = (kAlignmentBytes - address % kAlignmentBytes) % kAlignmentBytes;
  args.workspace = static_cast<char*>(buffer.data) + skipped;
  args.workspace_bytes = bytes - skipped;
}

/// Plan and weights are handles of the C ABI that Python keeps alive.
void boxed_execute(StableIValue* stack, uint64_t /*num_args*/, uint64_t /*num_outputs*/) {
  using torch::stable::detail::to;
  const TensorRef x = take(stack[1]);
  const TensorRef mask = take_optional(stack[2]);
  const TensorRef out = take(stack[4]);
  const TensorRef workspace = take_optional(stack[5]);
  const auto stream = to<std::optional<std::int64_t>>(stack[6]);
  const auto* const plan = std::bit_cast<const trimul_plan*>(to<std::int64_t>(stack[0]));
  const trimul_tensor x_view = view("x", x.get());
  const trimul_tensor out_view = view("out", out.get());
  const trimul_tensor mask_view = mask ? view("mask", mask.get()) : trimul_tensor{};
  trimul_execute_args args = TRIMUL_EXECUTE_ARGS_INIT;
  args.x = &x_view;
  args.mask = mask ? &mask_view : nullptr;
  args.weights = std::bit_cast<const trimul_weights*>(to<std::int64_t>(stack[3]));
  args.out = &out_view;
  if (workspace) bind_workspace(plan, workspace.get(), args);
  if (stream && x_view.device.type == TRIMUL_CPU)
    fail(TRIMUL_INVALID_ARGUMENT, "current_stream: is given, but x is on the CPU, expected x on a GPU");
  args.stream = stream ? std::bit_cast<void*>(*stream) : current_stream(x_view.device);
  check(trimul_execute(plan, &args));
}

/// For a tensor that torch negates when it is read. torch's own answer, to copy and write back, needs operators that return what they
/// write: without a result it reads beyond its stack. Python's side names the tensor.
void boxed_refuse_negated(StableIValue* stack, uint64_t /*num_args*/, uint64_t /*num_outputs*/) {
  const TensorRef x = take(stack[1]);
  const TensorRef mask = take_optional(stack[2]);
  const TensorRef out = take(stack[4]);
  const TensorRef workspace = take_optional(stack[5]);
  fail(TRIMUL_INVALID_ARGUMENT, "execute: a tensor is a view that negates what it refers to, expected plain tensors");
}

}  // namespace

void refuse_negated(torch::stable::detail::StableLibrary& library) {
  library.impl("execute", boxed_refuse_negated);
}

void implement(torch::stable::detail::StableLibrary& library) {
  library.impl("update", boxed_update);
  library.impl("_update", boxed_update);
  library.impl("update_out", boxed_update_out);
  library.impl("execute", boxed_execute);
}

}  // namespace trimul::torch_binding

#define TRIMUL_UPDATE_ARGUMENTS                                                                                                       \
  "Tensor x, Tensor? mask, Tensor? norm_in_weight, Tensor? norm_in_bias, Tensor p_in_weight, Tensor? p_in_bias, Tensor g_in_weight, " \
  "Tensor? g_in_bias, Tensor? norm_out_weight, Tensor? norm_out_bias, Tensor p_out_weight, Tensor? p_out_bias, Tensor g_out_weight, " \
  "Tensor? g_out_bias, int direction, float eps, int precision, bool residual"

STABLE_TORCH_LIBRARY(trimul, m) {
  m.def("update(" TRIMUL_UPDATE_ARGUMENTS ") -> Tensor");
  m.def("_update(" TRIMUL_UPDATE_ARGUMENTS ") -> Tensor");
  m.def("update_out(" TRIMUL_UPDATE_ARGUMENTS ", *, Tensor(a!) out) -> ()");
  m.def("execute(int plan, Tensor x, Tensor? mask, int weights, Tensor(a!) out, Tensor(b!)? workspace, int? stream) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(trimul, CPU, m) {
  trimul::torch_binding::implement(m);
}

STABLE_TORCH_LIBRARY_IMPL(trimul, CUDA, m) {
  trimul::torch_binding::implement(m);
}

STABLE_TORCH_LIBRARY_IMPL(trimul, Negative, m) {
  trimul::torch_binding::refuse_negated(m);
}
