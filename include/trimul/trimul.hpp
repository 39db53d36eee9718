// SPDX-License-Identifier: Apache-2.0
/// trimul for C++20: ownership, exceptions and standard types over trimul.h. Header only, nothing beyond the standard library.
///
/// Letters as in docs/op.md: B batch, N tokens, C_z pair width, C hidden width. Every function that can fail throws
/// trimul::Error, whose code() says which kind of failure it was and whose what() names tensor, dimension, got and expected.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "trimul/trimul.h"

namespace trimul {

enum class DType : std::int32_t {
  kF64 = TRIMUL_F64,
  kF32 = TRIMUL_F32,
  kF16 = TRIMUL_F16,
  kBf16 = TRIMUL_BF16,
  kBool = TRIMUL_BOOL,  // masks only, as all below
  kU8 = TRIMUL_U8,
  kI8 = TRIMUL_I8,
  kI16 = TRIMUL_I16,
  kI32 = TRIMUL_I32,
  kI64 = TRIMUL_I64
};

enum class Direction : std::int32_t { kOutgoing = TRIMUL_OUTGOING, kIncoming = TRIMUL_INCOMING };

/// Meanings: trimul_precision, and docs/op.md "Precision".
enum class Precision : std::int32_t {
  kDefault = TRIMUL_PRECISION_DEFAULT,
  kTf32 = TRIMUL_PRECISION_TF32,
  kTf32x3 = TRIMUL_PRECISION_TF32X3,
  kIeee = TRIMUL_PRECISION_IEEE,
  kMxfp8 = TRIMUL_PRECISION_MXFP8,
  kBf16 = TRIMUL_PRECISION_BF16
};

enum class Rounding { kNone = TRIMUL_ROUNDING_NONE, kKernel = TRIMUL_ROUNDING_KERNEL };

using Device = trimul_device;
inline constexpr Device kCpu{TRIMUL_CPU, 0};

/// What every function here throws.
class Error : public std::runtime_error {
 public:
  Error(trimul_status code, const std::string& message) : std::runtime_error(message), code_(code) {}
  /// INVALID_ARGUMENT, UNSUPPORTED, OUT_OF_MEMORY, DEVICE_ERROR or INTERNAL; never OK.
  [[nodiscard]] trimul_status code() const noexcept { return code_; }

 private:
  trimul_status code_;
};

/// Throws the calling thread's last failure unless `status` is TRIMUL_OK.
inline void check(trimul_status status) {
  if (status != TRIMUL_OK) throw Error(status, trimul_last_error());
}

namespace detail {

template <typename... Types>
struct TypeList {
  template <typename T>
  static constexpr bool contains = (std::is_same_v<T, Types> || ...);
};
using Elements = TypeList<double, float, bool, std::uint8_t, std::int8_t, std::int16_t, std::int32_t, std::int64_t>;

/// A contiguous range of elements that does not die with the expression it stands in.
template <typename Range>
concept ElementRange = std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range> && std::ranges::borrowed_range<Range> &&
    Elements::contains<std::ranges::range_value_t<Range>>;

template <typename T>
consteval DType dtype_of() {
  if constexpr (std::is_same_v<T, double>) return DType::kF64;
  if constexpr (std::is_same_v<T, float>) return DType::kF32;
  if constexpr (std::is_same_v<T, bool>) return DType::kBool;
  if constexpr (std::is_same_v<T, std::uint8_t>) return DType::kU8;
  if constexpr (std::is_same_v<T, std::int8_t>) return DType::kI8;
  if constexpr (std::is_same_v<T, std::int16_t>) return DType::kI16;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::kI32;
  if constexpr (std::is_same_v<T, std::int64_t>) return DType::kI64;
}

/// sizes multiplied out; nothing when a size is negative or the product exceeds 63 bits.
inline std::optional<std::size_t> element_count(std::span<const std::int64_t> sizes) {
  if (std::ranges::any_of(sizes, [](std::int64_t size) { return size < 0; })) return std::nullopt;
  if (std::ranges::find(sizes, 0) != sizes.end()) return 0;
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) {
    if (product > INT64_MAX / size) return std::nullopt;
    product *= size;
  }
  return static_cast<std::size_t>(product);
}

}  // namespace detail

/// A view of memory that somebody else owns, which must outlive it: pointer, dtype, device, sizes and strides (elements).
class Tensor {
 public:
  /// CPU memory, contiguous (row-major): a span, or a vector or array that outlives the tensor. It must hold at least the elements
  /// of `sizes`, else INVALID_ARGUMENT. Const elements make a tensor that can be read but is refused as `out`.
  template <detail::ElementRange Range>
  Tensor(Range&& values, std::vector<std::int64_t> sizes)
      : Tensor(from_memory(std::ranges::data(values), detail::dtype_of<std::ranges::range_value_t<Range>>(), std::move(sizes))) {
    const std::optional<std::size_t> count = detail::element_count(sizes_);
    if (!count || *count > std::ranges::size(values))
      throw Error(TRIMUL_INVALID_ARGUMENT, "tensor: " + shape_text() + " needs " + (count ? std::to_string(*count) : "too many") +
                                               " elements, the memory holds " + std::to_string(std::ranges::size(values)));
  }

  /// Any memory, dtype, strides (empty: contiguous) and device; bf16 and fp16 come in this way. Nothing is checked here: the
  /// library checks where the tensor is used, except that `data` really is that long.
  static Tensor from_memory(void* data, DType dtype, std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides = {},
                            Device device = kCpu) {
    return {data, true, dtype, std::move(sizes), std::move(strides), device};
  }
  /// As above for memory that must not be written: refused as `out`.
  static Tensor from_memory(const void* data, DType dtype, std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides = {},
                            Device device = kCpu) {
    return {const_cast<void*>(data), false, dtype, std::move(sizes), std::move(strides), device};
  }

  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] bool is_writable() const noexcept { return is_writable_; }
  [[nodiscard]] std::span<const std::int64_t> sizes() const noexcept { return sizes_; }
  /// Empty for a contiguous tensor.
  [[nodiscard]] std::span<const std::int64_t> strides() const noexcept { return strides_; }
  /// "[1, 5, 5, 16]"
  [[nodiscard]] std::string shape_text() const {
    std::string line = "[";
    for (const std::int64_t size : sizes_) line += (line.size() > 1 ? ", " : "") + std::to_string(size);
    return line + "]";
  }
  /// The C form; it borrows from this object and must not outlive it.
  [[nodiscard]] trimul_tensor c_tensor() const {
    if (!strides_.empty() && strides_.size() != sizes_.size())
      throw Error(TRIMUL_INVALID_ARGUMENT, "tensor: " + shape_text() + " has " + std::to_string(strides_.size()) + " strides, expected " +
                                               std::to_string(sizes_.size()));
    return {data_,
            device_,
            static_cast<std::int32_t>(sizes_.size()),
            static_cast<std::int32_t>(dtype_),
            sizes_.data(),
            strides_.empty() ? nullptr : strides_.data()};
  }

 private:
  Tensor(void* data, bool is_writable, DType dtype, std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides, Device device)
      : data_(data), is_writable_(is_writable), dtype_(dtype), device_(device), sizes_(std::move(sizes)), strides_(std::move(strides)) {}

  void* data_;
  bool is_writable_;
  DType dtype_;
  Device device_;
  std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> strides_;
};

/// The twelve parameters, each a view in any float dtype, contiguous. The four projections are required; absent LayerNorm
/// weights mean ones, absent biases none.
struct Parameters {
  std::optional<Tensor> norm_in_weight = {};   // [C_z]
  std::optional<Tensor> norm_in_bias = {};     // [C_z]
  std::optional<Tensor> p_in_weight = {};      // [2C, C_z], rows [a; b]; required
  std::optional<Tensor> p_in_bias = {};        // [2C]
  std::optional<Tensor> g_in_weight = {};      // [2C, C_z], rows [a; b]; required
  std::optional<Tensor> g_in_bias = {};        // [2C]
  std::optional<Tensor> norm_out_weight = {};  // [C]
  std::optional<Tensor> norm_out_bias = {};    // [C]
  std::optional<Tensor> p_out_weight = {};     // [C_z, C]; required
  std::optional<Tensor> p_out_bias = {};       // [C_z]
  std::optional<Tensor> g_out_weight = {};     // [C_z, C_z]; required
  std::optional<Tensor> g_out_bias = {};       // [C_z]

  [[nodiscard]] bool has_in_bias() const noexcept { return p_in_bias || g_in_bias; }
  [[nodiscard]] bool has_out_bias() const noexcept { return p_out_bias || g_out_bias; }
};

namespace detail {

/// trimul_parameters with the storage its pointers need.
class CParameters {
 public:
  explicit CParameters(const Parameters& in) {
    struct Entry {
      const std::optional<Tensor>& given;
      const trimul_tensor*& place;
    };
    const std::array<Entry, 12> entries{{{in.norm_in_weight, view_.norm_in_weight},
                                         {in.norm_in_bias, view_.norm_in_bias},
                                         {in.p_in_weight, view_.p_in_weight},
                                         {in.p_in_bias, view_.p_in_bias},
                                         {in.g_in_weight, view_.g_in_weight},
                                         {in.g_in_bias, view_.g_in_bias},
                                         {in.norm_out_weight, view_.norm_out_weight},
                                         {in.norm_out_bias, view_.norm_out_bias},
                                         {in.p_out_weight, view_.p_out_weight},
                                         {in.p_out_bias, view_.p_out_bias},
                                         {in.g_out_weight, view_.g_out_weight},
                                         {in.g_out_bias, view_.g_out_bias}}};
    for (std::size_t k = 0; k < entries.size(); ++k) {
      if (!entries[k].given) continue;
      tensors_[k] = entries[k].given->c_tensor();
      entries[k].place = &tensors_[k];
    }
  }
  CParameters(const CParameters&) = delete;
  CParameters& operator=(const CParameters&) = delete;
  [[nodiscard]] const trimul_parameters* get() const noexcept { return &view_; }

 private:
  std::array<trimul_tensor, 12> tensors_{};
  trimul_parameters view_ = TRIMUL_PARAMETERS_INIT;
};

inline void require_writable(const Tensor& out) {
  if (!out.is_writable()) throw Error(TRIMUL_INVALID_ARGUMENT, "out: made from const memory, expected memory that may be written");
}

}  // namespace detail

/// What is to be computed. Fields as in trimul_problem; those a caller always sets come first.
struct Problem {
  std::int64_t tokens = 0;    // N >= 0
  std::int64_t c_z = 0;       // C_z >= 1
  std::int64_t c_hidden = 0;  // C >= 1
  std::int64_t batch = 1;     // B >= 0
  Direction direction = Direction::kOutgoing;
  DType x_dtype = DType::kF32;
  Precision precision = Precision::kDefault;
  float eps = 1e-5F;
  bool has_mask = false;
  bool has_in_bias = false;
  bool has_out_bias = false;
  bool residual = false;
  Device device = kCpu;

  [[nodiscard]] trimul_problem c_problem() const {
    trimul_problem out = TRIMUL_PROBLEM_INIT;
    out.batch = batch;
    out.tokens = tokens;
    out.c_z = c_z;
    out.c_hidden = c_hidden;
    out.device = device;
    out.direction = static_cast<std::int32_t>(direction);
    out.x_dtype = static_cast<std::int32_t>(x_dtype);
    out.precision = static_cast<std::int32_t>(precision);
    out.eps = eps;
    out.has_mask = has_mask ? 1 : 0;
    out.has_in_bias = has_in_bias ? 1 : 0;
    out.has_out_bias = has_out_bias ? 1 : 0;
    out.residual = residual ? 1 : 0;
    return out;
  }
  /// dtype of the result: x_dtype, or bf16 under Precision::kBf16. INVALID_ARGUMENT for a malformed problem.
  [[nodiscard]] DType out_dtype() const {
    trimul_dtype dtype{};
    const trimul_problem problem = c_problem();
    check(trimul_problem_out_dtype(&problem, &dtype));
    return static_cast<DType>(dtype);
  }
};

struct PlanOptions {
  std::string implementation = {};                               // empty: the first that accepts
  std::vector<std::pair<std::string, std::int64_t>> knobs = {};  // overrides; every value gives bitwise the same result
  std::string arch = {};                                         // empty: the problem's device; "sm90": plan as if for that GPU
  std::int32_t max_threads = 0;  // CPU: bounds what a plan takes by itself; 0: no bound; a knob goes before it
};

namespace detail {

/// trimul_plan_options with the storage its pointers need.
class CPlanOptions {
 public:
  explicit CPlanOptions(const PlanOptions& in) {
    for (const auto& [name, value] : in.knobs) knobs_.push_back({name.c_str(), value});
    view_.implementation = in.implementation.empty() ? nullptr : in.implementation.c_str();
    view_.knobs = knobs_.data();
    view_.num_knobs = knobs_.size();
    view_.arch = in.arch.empty() ? nullptr : in.arch.c_str();
    view_.max_threads = in.max_threads;
  }
  CPlanOptions(const CPlanOptions&) = delete;
  CPlanOptions& operator=(const CPlanOptions&) = delete;
  [[nodiscard]] const trimul_plan_options* get() const noexcept { return &view_; }

 private:
  std::vector<trimul_knob> knobs_;
  trimul_plan_options view_ = TRIMUL_PLAN_OPTIONS_INIT;
};

}  // namespace detail

/// Scratch memory, 256-byte aligned: its own on the CPU, or borrowed.
class Workspace {
 public:
  /// CPU memory, contents undefined. OUT_OF_MEMORY when there is not enough.
  explicit Workspace(std::size_t bytes) : bytes_(bytes), memory_(allocate(bytes), Deleter{.is_owner = true}) {}
  /// Memory on the plan's device that somebody else owns, which must outlive this object and, on a GPU, the work. Nothing is checked
  /// here: the library checks size and alignment where the workspace is used.
  static Workspace from_memory(void* memory, std::size_t bytes) { return {memory, bytes}; }
  [[nodiscard]] void* data() const noexcept { return memory_.get(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  static constexpr std::align_val_t kAlignment{256};
  struct Deleter {
    bool is_owner;
    void operator()(void* memory) const noexcept {
      if (is_owner) ::operator delete(memory, kAlignment);
    }
  };
  Workspace(void* borrowed, std::size_t bytes) : bytes_(bytes), memory_(borrowed, Deleter{.is_owner = false}) {}
  static void* allocate(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    // Beyond PTRDIFF_MAX the allocator's own rounding may wrap around.
    void* memory = bytes > static_cast<std::size_t>(PTRDIFF_MAX) ? nullptr : ::operator new(bytes, kAlignment, std::nothrow);
    if (memory == nullptr)
      throw Error(TRIMUL_OUT_OF_MEMORY, "workspace: allocating " + std::to_string(bytes) + " bytes of host memory failed");
    return memory;
  }

  std::size_t bytes_;
  std::unique_ptr<void, Deleter> memory_;
};

/// A plan's private copy of the parameters, made by Plan::prepare_weights or Plan::pack_weights. Immutable; shareable between threads and
/// plans.
class Weights {
 public:
  [[nodiscard]] std::size_t bytes() const noexcept { return trimul_weights_bytes(handle_.get()); }
  [[nodiscard]] const trimul_weights* c_weights() const noexcept { return handle_.get(); }

 private:
  friend class Plan;
  explicit Weights(trimul_weights* handle) : handle_(handle) {}
  struct Deleter {
    void operator()(trimul_weights* handle) const noexcept { trimul_weights_destroy(handle); }
  };
  std::unique_ptr<trimul_weights, Deleter> handle_;
};

/// One part of an execute. Fields as in trimul_stage_info.
struct StageInfo {
  std::string name;
  double flop = 0;
  std::int64_t traffic_bytes = 0;
  double floor_us = 0;  // 0 where no ceilings are known
};

/// A validated problem with the implementation that serves it. Immutable; any number of threads may execute one plan at a time,
/// each with its own workspace and out.
class Plan {
 public:
  /// INVALID_ARGUMENT for a malformed problem, an unknown implementation or knob; UNSUPPORTED, listing every implementation's
  /// reason, when none serves the problem (or the one that `options` names does not).
  explicit Plan(const Problem& problem, const PlanOptions& options = {}) : Plan(&trimul_plan_create, problem, options) {}

  /// The same through the process's cache: an equal problem with equal options gets the plan that is there, in well under a microsecond.
  /// Any number of threads may ask. The cache is bounded; a plan that makes room there lives on for as long as somebody holds it.
  [[nodiscard]] static Plan acquire(const Problem& problem, const PlanOptions& options = {}) {
    return {&trimul_plan_acquire, problem, options};
  }

  /// Bytes of scratch that execute needs, 256-byte aligned; constant.
  [[nodiscard]] std::size_t workspace_bytes() const noexcept { return trimul_plan_workspace_bytes(handle_.get()); }
  /// The same for execute_parameters.
  [[nodiscard]] std::size_t workspace_bytes_with_parameters() const noexcept {
    return trimul_plan_workspace_bytes_with_parameters(handle_.get());
  }
  /// Bytes of pack_weights' memory; 0 where packed weights lie in the host's own, as on the CPU.
  [[nodiscard]] std::size_t packed_bytes() const noexcept { return trimul_plan_packed_bytes(handle_.get()); }
  /// Name of the implementation that serves the plan.
  [[nodiscard]] std::string implementation() const { return trimul_plan_implementation(handle_.get()); }
  /// Compulsory traffic of the three-stage form in bytes.
  [[nodiscard]] std::int64_t traffic_bytes() const noexcept { return trimul_plan_traffic_bytes(handle_.get()); }
  /// Floating-point operations of the matrix products.
  [[nodiscard]] double flop() const noexcept { return trimul_plan_flop(handle_.get()); }
  /// Lower bound of the execution time from measured ceilings, microseconds; 0 where none are known, as on a CPU.
  [[nodiscard]] double floor_us() const noexcept { return trimul_plan_floor_us(handle_.get()); }
  /// Lines "key: value": how the plan runs, and why each better implementation declined.
  [[nodiscard]] std::string explain() const { return trimul_plan_explain(handle_.get()); }

  /// Packs the parameters. Shapes and bias presence must be the plan's, else INVALID_ARGUMENT naming the tensor. `stream`: on a
  /// GPU, the stream the parameters are ready on.
  [[nodiscard]] Weights prepare_weights(const Parameters& parameters, void* stream = nullptr) const {
    const detail::CParameters c_parameters(parameters);
    trimul_weights* handle = nullptr;
    check(trimul_weights_create(handle_.get(), c_parameters.get(), stream, &handle));
    return Weights(handle);
  }

  /// The same into the caller's memory: packed_bytes() on the plan's device, 256-byte aligned, which outlive the weights. Nothing is
  /// allocated there, so that a graph may capture it. INVALID_ARGUMENT for memory that is too small, misaligned or touches a parameter.
  [[nodiscard]] Weights pack_weights(const Parameters& parameters, void* memory, std::size_t memory_bytes, void* stream = nullptr) const {
    const detail::CParameters c_parameters(parameters);
    trimul_weights* handle = nullptr;
    check(trimul_weights_pack(handle_.get(), c_parameters.get(), memory, memory_bytes, stream, &handle));
    return Weights(handle);
  }

  /// x [..., N, N, C_z] contiguous; mask [..., N, N] or [..., N, N, 1], null exactly when the plan has none; out of x's shape in the
  /// result's dtype. Inputs and weights stay unchanged. out and workspace intersect nothing, except that a residual plan's out may be
  /// exactly x. Violations are INVALID_ARGUMENT before anything is written. Returns when done on the CPU, is asynchronous on a GPU.
  void execute(const Tensor& x, const Tensor* mask, const Weights& weights, const Tensor& out, const Workspace& workspace,
               void* stream = nullptr) const {
    with_execute_args(x, mask, weights.c_weights(), out, workspace, stream,
                      [this](const trimul_execute_args& args) { check(trimul_execute(handle_.get(), &args)); });
  }

  /// The same for parameters that may change from call to call: packs them in front of the work, into the workspace on a GPU, and keeps
  /// nothing. The workspace has workspace_bytes_with_parameters(); neither it nor out may intersect a parameter. Bitwise what
  /// prepare_weights and execute give. On a GPU the parameters are read when the stream gets there: they must live and stay until then.
  void execute_parameters(const Tensor& x, const Tensor* mask, const Parameters& parameters, const Tensor& out, const Workspace& workspace,
                          void* stream = nullptr) const {
    const detail::CParameters c_parameters(parameters);
    with_execute_args(x, mask, nullptr, out, workspace, stream,
                      [&](const trimul_execute_args& args) { check(trimul_execute_parameters(handle_.get(), &args, c_parameters.get())); });
  }

  /// The parts of an execute, in order; none where the implementation does not divide its work, as on the CPU.
  [[nodiscard]] std::vector<StageInfo> stages() const {
    std::vector<StageInfo> found;
    for (std::size_t index = 0; index < trimul_plan_num_stages(handle_.get()); ++index) {
      trimul_stage_info info = TRIMUL_STAGE_INFO_INIT;
      check(trimul_plan_stage(handle_.get(), index, &info));
      found.push_back({info.name, info.flop, info.traffic_bytes, info.floor_us});
    }
    return found;
  }

  /// Stage `index` of stages() alone, with the arguments of execute. All stages in order, on one stream and workspace, give bitwise what
  /// execute gives. INVALID_ARGUMENT for an index past the end.
  void execute_stage(std::size_t index, const Tensor& x, const Tensor* mask, const Weights& weights, const Tensor& out,
                     const Workspace& workspace, void* stream = nullptr) const {
    with_execute_args(x, mask, weights.c_weights(), out, workspace, stream,
                      [&](const trimul_execute_args& args) { check(trimul_execute_stage(handle_.get(), index, &args)); });
  }

  [[nodiscard]] const trimul_plan* c_plan() const noexcept { return handle_.get(); }

 private:
  using Make = decltype(&trimul_plan_create);
  Plan(Make make, const Problem& problem, const PlanOptions& options) {
    const trimul_problem c_problem = problem.c_problem();
    const detail::CPlanOptions c_options(options);
    trimul_plan* handle = nullptr;
    check(make(&c_problem, c_options.get(), &handle));
    handle_.reset(handle);
  }
  template <typename Function>
  static void with_execute_args(const Tensor& x, const Tensor* mask, const trimul_weights* weights, const Tensor& out,
                                const Workspace& workspace, void* stream, const Function& function) {
    detail::require_writable(out);
    const trimul_tensor c_x = x.c_tensor();
    const trimul_tensor c_out = out.c_tensor();
    const trimul_tensor c_mask = mask != nullptr ? mask->c_tensor() : trimul_tensor{};
    trimul_execute_args args = TRIMUL_EXECUTE_ARGS_INIT;
    args.x = &c_x;
    args.mask = mask != nullptr ? &c_mask : nullptr;
    args.weights = weights;
    args.out = &c_out;
    args.workspace = workspace.data();
    args.workspace_bytes = workspace.bytes();
    args.stream = stream;
    function(args);
  }
  struct Deleter {
    void operator()(trimul_plan* handle) const noexcept { trimul_plan_destroy(handle); }
  };
  std::unique_ptr<trimul_plan, Deleter> handle_;
};

/// What Plan::acquire has done. Fields as in trimul_plan_cache_info.
struct PlanCacheInfo {
  std::size_t hits = 0;
  std::size_t misses = 0;
  std::size_t entries = 0;
  std::size_t capacity = 0;
};

[[nodiscard]] inline PlanCacheInfo plan_cache_info() {
  trimul_plan_cache_info info = TRIMUL_PLAN_CACHE_INFO_INIT;
  check(trimul_plan_cache_get_info(&info));
  return {info.hits, info.misses, info.entries, info.capacity};
}

/// Forgets every plan of the cache and its counts. Plans that are held stay what they are.
inline void clear_plan_cache() noexcept {
  trimul_plan_cache_clear();
}

struct UpdateOptions {
  Direction direction = Direction::kOutgoing;
  Precision precision = Precision::kDefault;
  float eps = 1e-5F;
  bool residual = false;
  PlanOptions plan = {};
  void* stream = nullptr;
};

namespace detail {

/// Calls `function(args)` with the C form of one update. `out` may be null.
template <typename Function>
void with_update_args(const Tensor& x, const Tensor* mask, const Parameters& parameters, const Tensor* out, const UpdateOptions& options,
                      const Function& function) {
  const CParameters c_parameters(parameters);
  const CPlanOptions c_options(options.plan);
  const trimul_tensor c_x = x.c_tensor();
  const trimul_tensor c_mask = mask != nullptr ? mask->c_tensor() : trimul_tensor{};
  const trimul_tensor c_out = out != nullptr ? out->c_tensor() : trimul_tensor{};
  trimul_update_args args = TRIMUL_UPDATE_ARGS_INIT;
  args.x = &c_x;
  args.mask = mask != nullptr ? &c_mask : nullptr;
  args.parameters = c_parameters.get();
  args.out = out != nullptr ? &c_out : nullptr;
  args.direction = static_cast<std::int32_t>(options.direction);
  args.precision = static_cast<std::int32_t>(options.precision);
  args.eps = options.eps;
  args.residual = options.residual ? 1 : 0;
  args.options = c_options.get();
  args.stream = options.stream;
  function(args);
}

/// OUT_OF_MEMORY also for more than a vector can hold.
template <typename Element>
std::vector<Element> allocate_vector(std::size_t count, std::size_t width) {
  std::vector<Element> values;
  try {
    if (width > 0 && count > values.max_size() / width) throw std::bad_alloc();
    values.resize(count * width);
  } catch (const std::bad_alloc&) {
    throw Error(TRIMUL_OUT_OF_MEMORY, "result: allocating " + std::to_string(count) + " * " + std::to_string(width) + " values failed");
  }
  return values;
}

/// Checks the arguments of a reference: one at no cell.
inline void check_reference_args(const trimul_update_args& args, Rounding rounding) {
  const std::int64_t no_cell = 0;
  check(trimul_reference(&args, static_cast<trimul_rounding>(rounding), &no_cell, 0, nullptr));
}

}  // namespace detail

/// Plan, weights, workspace and execute in one call, sizes read from the tensors (C from p_in_weight). For programs that run an
/// update once. Shapes, aliasing and errors as in Plan::execute; `out` may not intersect a parameter either.
inline void update(const Tensor& x, const Tensor* mask, const Parameters& parameters, const Tensor& out,
                   const UpdateOptions& options = {}) {
  detail::require_writable(out);
  detail::with_update_args(x, mask, parameters, &out, options, [](const trimul_update_args& args) { check(trimul_update(&args)); });
}

/// One cell of the pair representation.
struct Cell {
  std::int64_t b, i, j;
};

/// The fp64 oracle over all cells: B * N * N * C_z values, row-major. CPU tensors only; options.plan and stream play no part.
[[nodiscard]] inline std::vector<double> reference(const Tensor& x, const Tensor* mask, const Parameters& parameters,
                                                   const UpdateOptions& options = {}, Rounding rounding = Rounding::kNone) {
  std::vector<double> result;
  detail::with_update_args(x, mask, parameters, nullptr, options, [&](const trimul_update_args& args) {
    detail::check_reference_args(args, rounding);
    result = detail::allocate_vector<double>(detail::element_count(x.sizes()).value_or(0), 1);
    check(trimul_reference(&args, static_cast<trimul_rounding>(rounding), nullptr, 0, result.data()));
  });
  return result;
}

/// The oracle at chosen cells, C_z values for each in the order given, at a cost of O(N C C_z) a cell. INVALID_ARGUMENT for a cell
/// outside x.
[[nodiscard]] inline std::vector<double> reference_at(std::span<const Cell> cells, const Tensor& x, const Tensor* mask,
                                                      const Parameters& parameters, const UpdateOptions& options = {},
                                                      Rounding rounding = Rounding::kNone) {
  std::vector<double> result;
  detail::with_update_args(x, mask, parameters, nullptr, options, [&](const trimul_update_args& args) {
    detail::check_reference_args(args, rounding);
    if (cells.empty()) return;  // a null pointer would ask for every cell
    auto triples = detail::allocate_vector<std::int64_t>(cells.size(), 3);
    for (std::size_t k = 0; k < cells.size(); ++k) {
      triples[3 * k] = cells[k].b;
      triples[3 * k + 1] = cells[k].i;
      triples[3 * k + 2] = cells[k].j;
    }
    result = detail::allocate_vector<double>(cells.size(), static_cast<std::size_t>(x.sizes().back()));
    check(trimul_reference(&args, static_cast<trimul_rounding>(rounding), triples.data(), cells.size(), result.data()));
  });
  return result;
}

/// Version of the library that is loaded, "0.1.0".
[[nodiscard]] inline std::string version() {
  return trimul_version();
}

/// Names of the implementations in the order in which they are tried, those absent from this build included.
[[nodiscard]] inline std::vector<std::string> implementations() {
  std::vector<std::string> names;
  for (std::size_t k = 0; k < trimul_implementation_count(); ++k) names.emplace_back(trimul_implementation_name(k));
  return names;
}

/// What a plan without knobs would use, as PlanOptions::knobs takes it; only implementation and arch of `options` play a part.
/// INVALID_ARGUMENT and UNSUPPORTED as Plan.
[[nodiscard]] inline std::vector<std::pair<std::string, std::int64_t>> recommended_knobs(const Problem& problem,
                                                                                         const PlanOptions& options = {}) {
  const trimul_problem c_problem = problem.c_problem();
  const detail::CPlanOptions c_options(options);
  std::array<trimul_knob, 16> knobs{};
  std::size_t count = 0;
  check(trimul_recommend_knobs(&c_problem, c_options.get()->implementation, c_options.get()->arch, knobs.data(), knobs.size(), &count));
  std::vector<std::pair<std::string, std::int64_t>> named;
  for (std::size_t k = 0; k < std::min(count, knobs.size()); ++k) named.emplace_back(knobs[k].name, knobs[k].value);
  return named;
}

/// Why an implementation declines a problem; nothing when it accepts. INVALID_ARGUMENT for an unknown name.
[[nodiscard]] inline std::optional<std::string> why_not(const std::string& implementation, const Problem& problem) {
  const trimul_problem c_problem = problem.c_problem();
  const char* reason = nullptr;
  check(trimul_implementation_can_run(implementation.c_str(), &c_problem, nullptr, &reason));
  return reason == nullptr ? std::nullopt : std::optional<std::string>(reason);
}

}  // namespace trimul
