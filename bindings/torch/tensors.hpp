// SPDX-License-Identifier: Apache-2.0
// torch's tensors as the C ABI takes them, over torch's stable ABI alone. torch's own classes serve the rare paths; the usual call takes
// borrowed handles, whose fields cost a function call each.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "trimul/trimul.h"

namespace trimul::torch_binding {

/// Throws what Python's side turns into the exception of a status: "[INVALID_ARGUMENT] mask: ...".
[[noreturn]] void fail(trimul_status status, const std::string& message);
/// The same for a call of the C ABI, with its message.
inline void check(trimul_status status) {
  if (status != TRIMUL_OK) fail(status, trimul_last_error());
}
/// A call of torch's ABI. It keeps the reason to itself before torch 2.13; `what` says what was tried.
void check_torch(AOTITorchError error, const char* what);

/// A tensor that this call owns a reference to; empty for None.
class TensorRef {
 public:
  TensorRef() = default;
  explicit TensorRef(AtenTensorHandle handle) : handle_(handle) {}
  TensorRef(TensorRef&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  TensorRef& operator=(TensorRef&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~TensorRef() {
    if (handle_ != nullptr) (void)aoti_torch_delete_tensor_object(handle_);
  }
  [[nodiscard]] AtenTensorHandle get() const { return handle_; }
  [[nodiscard]] AtenTensorHandle release() { return std::exchange(handle_, nullptr); }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  AtenTensorHandle handle_ = nullptr;
};

/// Takes over a `Tensor` or, with `take_optional`, a `Tensor?` from the stack of a boxed call.
inline TensorRef take(StableIValue value) {
  return TensorRef(torch::stable::detail::to<AtenTensorHandle>(value));
}
inline TensorRef take_optional(StableIValue value) {
  const auto handle = torch::stable::detail::to<std::optional<AtenTensorHandle>>(value);
  return handle ? TensorRef(*handle) : TensorRef();
}

/// The device of a tensor. INVALID_ARGUMENT for one that is neither on the CPU nor on a GPU.
trimul_device device_of(const char* name, AtenTensorHandle tensor);

/// Whether the C ABI has a number for the tensor's dtype.
bool has_known_dtype(AtenTensorHandle tensor);
bool is_complex(AtenTensorHandle tensor);

/// What the C ABI reads of a tensor; sizes and strides are the tensor's own and live as long as it does. INVALID_ARGUMENT for a dtype or
/// device that the C ABI has no number for.
trimul_tensor view(const char* name, AtenTensorHandle tensor);

[[nodiscard]] bool is_contiguous(const trimul_tensor& tensor);

/// The same for a tensor's memory alone: a dtype without a number counts as an integer of its width.
trimul_tensor view_any(const char* name, AtenTensorHandle tensor);

/// A new contiguous tensor on `device`, from torch's allocator on its current stream. OUT_OF_MEMORY naming `what` and its bytes.
TensorRef allocate(const char* what, std::initializer_list<std::int64_t> sizes, int32_t torch_dtype, const trimul_device& device);
TensorRef allocate_like(const char* what, const trimul_tensor& shape, int32_t torch_dtype);
/// A contiguous copy of a tensor; `tensor_view` is what view or view_any tells of it. The second in fp32. OUT_OF_MEMORY naming it.
TensorRef contiguous_copy(const char* name, const TensorRef& tensor, const trimul_tensor& tensor_view);
TensorRef fp32_copy(const char* name, const TensorRef& tensor, const trimul_tensor& tensor_view);

/// Scratch memory of torch's allocator on its current stream, for the length of a call: torch hands it out again only behind the work that
/// the call has put on the stream.
class Workspace {
 public:
  /// OUT_OF_MEMORY naming the bytes.
  Workspace(std::size_t bytes, const trimul_device& device);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  /// 256-byte aligned; null for no bytes.
  [[nodiscard]] void* data() const { return data_; }

 private:
  TensorRef tensor_;     // where it is a tensor
  void* raw_ = nullptr;  // where it is plain memory of a GPU, for which torch takes half the time
  void* data_ = nullptr;
};

/// torch's number of a dtype of the C ABI.
int32_t torch_dtype_of(trimul_dtype dtype);

/// The raw handle of torch's current stream; null on the CPU.
void* current_stream(const trimul_device& device);

}  // namespace trimul::torch_binding
