// SPDX-License-Identifier: Apache-2.0
#include "tensors.hpp"

#include <dlfcn.h>
#include <torch/csrc/stable/ops.h>

#include <array>
#include <stdexcept>
#include <vector>

namespace trimul::torch_binding {
namespace {

constexpr std::size_t kAlignmentBytes = 256;
constexpr std::size_t kNumTorchDtypes = 64;

/// torch's dtype number -> trimul_dtype, 0 where there is none.
std::array<int32_t, kNumTorchDtypes> map_dtypes() {
  std::array<int32_t, kNumTorchDtypes> map{};
  const auto set = [&map](int32_t torch_dtype, trimul_dtype dtype) { map.at(static_cast<std::size_t>(torch_dtype)) = dtype; };
  set(aoti_torch_dtype_float64(), TRIMUL_F64);
  set(aoti_torch_dtype_float32(), TRIMUL_F32);
  set(aoti_torch_dtype_float16(), TRIMUL_F16);
  set(aoti_torch_dtype_bfloat16(), TRIMUL_BF16);
  set(aoti_torch_dtype_bool(), TRIMUL_BOOL);
  set(aoti_torch_dtype_uint8(), TRIMUL_U8);
  set(aoti_torch_dtype_int8(), TRIMUL_I8);
  set(aoti_torch_dtype_int16(), TRIMUL_I16);
  set(aoti_torch_dtype_int32(), TRIMUL_I32);
  set(aoti_torch_dtype_int64(), TRIMUL_I64);
  return map;
}

/// 0 for a dtype without a number.
int32_t trimul_dtype_of(int32_t torch_dtype) {
  static const auto dtypes = map_dtypes();
  return torch_dtype >= 0 && static_cast<std::size_t>(torch_dtype) < kNumTorchDtypes ? dtypes[static_cast<std::size_t>(torch_dtype)] : 0;
}

int32_t integer_of_width(std::size_t bytes) {
  switch (bytes) {
    case 1: return TRIMUL_I8;
    case 2: return TRIMUL_I16;
    case 4: return TRIMUL_I32;
    default: return TRIMUL_I64;
  }
}

int32_t torch_dtype_of_tensor(AtenTensorHandle tensor) {
  int32_t dtype = 0;
  check_torch(aoti_torch_get_dtype(tensor, &dtype), "reading a dtype");
  return dtype;
}

int32_t torch_device_type(const trimul_device& device) {
  return device.type == TRIMUL_CUDA ? aoti_torch_device_type_cuda() : aoti_torch_device_type_cpu();
}

std::int64_t bytes_of(int32_t torch_dtype, const std::vector<std::int64_t>& sizes) {
  auto bytes = static_cast<std::int64_t>(trimul_dtype_bytes(static_cast<trimul_dtype>(trimul_dtype_of(torch_dtype))));
  for (const std::int64_t size : sizes) bytes *= size;
  return bytes;
}

[[noreturn]] void fail_out_of_memory(const char* what, std::int64_t bytes, const trimul_device& device) {
  fail(TRIMUL_OUT_OF_MEMORY, std::string(what) + ": out of memory, torch could not allocate " + std::to_string(bytes) + " bytes on " +
                                 (device.type == TRIMUL_CUDA ? "cuda:" + std::to_string(device.index) : "cpu"));
}

TensorRef allocate_sizes(const char* what, const std::int64_t* sizes, std::size_t ndim, int32_t torch_dtype, const trimul_device& device) {
  std::array<std::int64_t, TRIMUL_MAX_NDIM> strides{};
  std::int64_t stride = 1;
  for (std::size_t d = ndim; d-- > 0;) {
    strides[d] = stride;
    stride *= sizes[d] > 0 ? sizes[d] : 1;
  }
  AtenTensorHandle made = nullptr;
  const AOTITorchError error = aoti_torch_empty_strided(static_cast<std::int64_t>(ndim), sizes, strides.data(), torch_dtype,
                                                        torch_device_type(device), device.index, &made);
  if (error != AOTI_TORCH_SUCCESS) fail_out_of_memory(what, bytes_of(torch_dtype, {sizes, sizes + ndim}), device);
  return TensorRef(made);
}

/// A tensor of torch's own class that shares what `tensor` refers to.
torch::stable::Tensor shared(const TensorRef& tensor) {
  AtenTensorHandle again = nullptr;
  check_torch(aoti_torch_new_tensor_handle(tensor.get(), &again), "sharing a tensor");
  return torch::stable::Tensor(again);
}

/// torch's own copying operators allocate inside, and a failure to would lose what it was on its way through torch's ABI.
TensorRef copy(const char* name, const TensorRef& tensor, const trimul_tensor& tensor_view, int32_t torch_dtype) {
  TensorRef made = allocate_like(name, tensor_view, torch_dtype);
  torch::stable::Tensor target = shared(made);
  (void)torch::stable::copy_(target, shared(tensor));
  return made;
}

/// Functions of torch's ABI that lie in its CUDA library, which a torch for the CPU lacks.
class CudaPart {
 public:
  CudaPart() : library_(dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD)) {
    find("aoti_torch_get_current_cuda_stream", get_stream_);
    find("aoti_torch_create_cuda_guard", create_guard_);
    find("aoti_torch_delete_cuda_guard", delete_guard_);
    find("aoti_torch_cuda_caching_allocator_raw_alloc", allocate_);
    find("aoti_torch_cuda_caching_allocator_raw_delete", free_);
  }

  [[nodiscard]] void* current_stream(int32_t device_index) const {
    if (get_stream_ == nullptr) fail(TRIMUL_UNSUPPORTED, "x: is on a GPU, but this torch has no CUDA part that tells its current stream");
    void* stream = nullptr;
    check_torch(get_stream_(device_index, &stream), "reading torch's current stream");
    return stream;
  }

  [[nodiscard]] bool can_allocate() const {
    return create_guard_ != nullptr && delete_guard_ != nullptr && allocate_ != nullptr && free_ != nullptr;
  }
  /// Of torch's allocator, on its current stream of that device; null when it has none left.
  [[nodiscard]] void* allocate(std::size_t bytes, int32_t device_index) const {
    void* guard = nullptr;
    check_torch(create_guard_(device_index, &guard), "switching to a device");
    void* memory = nullptr;
    const AOTITorchError error = allocate_(bytes, &memory);
    check_torch(delete_guard_(guard), "switching back from a device");
    return error == AOTI_TORCH_SUCCESS ? memory : nullptr;
  }
  void free(void* memory) const { (void)free_(memory); }

 private:
  template <typename Function>
  void find(const char* name, Function*& function) const {
    if (library_ != nullptr) function = reinterpret_cast<Function*>(dlsym(library_, name));
  }

  void* library_;
  AOTITorchError (*get_stream_)(int32_t device_index, void** stream) = nullptr;
  AOTITorchError (*create_guard_)(int32_t device_index, void** guard) = nullptr;
  AOTITorchError (*delete_guard_)(void* guard) = nullptr;
  AOTITorchError (*allocate_)(uint64_t bytes, void** memory) = nullptr;
  AOTITorchError (*free_)(void* memory) = nullptr;
};

const CudaPart& cuda_part() {
  static const CudaPart part;
  return part;
}

}  // namespace

void fail(trimul_status status, const std::string& message) {
  throw std::runtime_error("[" + std::string(trimul_status_name(status)) + "] " + message);
}

void check_torch(AOTITorchError error, const char* what) {
  if (error != AOTI_TORCH_SUCCESS) fail(TRIMUL_INTERNAL, std::string(what) + ": torch reported an error");
}

trimul_device device_of(const char* name, AtenTensorHandle tensor) {
  static const int32_t cpu = aoti_torch_device_type_cpu();
  static const int32_t cuda = aoti_torch_device_type_cuda();
  int32_t type = 0;
  int32_t index = 0;
  check_torch(aoti_torch_get_device_type(tensor, &type), name);
  if (type == cpu) return {TRIMUL_CPU, 0};
  if (type != cuda)
    fail(TRIMUL_UNSUPPORTED, std::string(name) + ": is on a device of torch's type " + std::to_string(type) + ", expected cpu or cuda");
  check_torch(aoti_torch_get_device_index(tensor, &index), name);
  return {TRIMUL_CUDA, index};
}

bool has_known_dtype(AtenTensorHandle tensor) {
  return trimul_dtype_of(torch_dtype_of_tensor(tensor)) != 0;
}

bool is_complex(AtenTensorHandle tensor) {
  const int32_t dtype = torch_dtype_of_tensor(tensor);
  return dtype == aoti_torch_dtype_complex32() || dtype == aoti_torch_dtype_complex64() || dtype == aoti_torch_dtype_complex128();
}

namespace {

trimul_tensor view_as(const char* name, AtenTensorHandle tensor, int32_t dtype) {
  std::int64_t ndim = 0;
  std::int64_t* sizes = nullptr;
  std::int64_t* strides = nullptr;
  const void* data = nullptr;
  trimul_tensor view{};
  view.device = device_of(name, tensor);
  view.dtype = dtype;
  check_torch(aoti_torch_get_dim(tensor, &ndim), name);
  check_torch(aoti_torch_get_sizes(tensor, &sizes), name);
  check_torch(aoti_torch_get_strides(tensor, &strides), name);
  check_torch(torch_get_const_data_ptr(tensor, &data), name);
  if (ndim > TRIMUL_MAX_NDIM)
    fail(TRIMUL_INVALID_ARGUMENT,
         std::string(name) + ": number of dimensions is " + std::to_string(ndim) + ", expected at most " + std::to_string(TRIMUL_MAX_NDIM));
  view.data = const_cast<void*>(data);
  view.ndim = static_cast<int32_t>(ndim);
  view.sizes = sizes;
  view.strides = strides;
  return view;
}

}  // namespace

trimul_tensor view(const char* name, AtenTensorHandle tensor) {
  const int32_t torch_dtype = torch_dtype_of_tensor(tensor);
  const int32_t dtype = trimul_dtype_of(torch_dtype);
  if (dtype == 0)
    fail(TRIMUL_INVALID_ARGUMENT, std::string(name) + ": dtype has torch's number " + std::to_string(torch_dtype) +
                                      ", expected float64, float32, float16 or bfloat16");
  return view_as(name, tensor, dtype);
}

trimul_tensor view_any(const char* name, AtenTensorHandle tensor) {
  const int32_t torch_dtype = torch_dtype_of_tensor(tensor);
  const int32_t dtype = trimul_dtype_of(torch_dtype);
  return view_as(name, tensor, dtype != 0 ? dtype : integer_of_width(aoti_torch_dtype_element_size(torch_dtype)));
}

bool is_contiguous(const trimul_tensor& tensor) {
  std::int64_t expected = 1;
  bool is_packed = true;
  for (int32_t d = tensor.ndim; d-- > 0;) {
    if (tensor.sizes[d] == 0) return true;
    is_packed = is_packed && (tensor.sizes[d] == 1 || tensor.strides[d] == expected);
    expected *= tensor.sizes[d];
  }
  return is_packed;
}

TensorRef allocate(const char* what, std::initializer_list<std::int64_t> sizes, int32_t torch_dtype, const trimul_device& device) {
  return allocate_sizes(what, sizes.begin(), sizes.size(), torch_dtype, device);
}

TensorRef allocate_like(const char* what, const trimul_tensor& shape, int32_t torch_dtype) {
  return allocate_sizes(what, shape.sizes, static_cast<std::size_t>(shape.ndim), torch_dtype, shape.device);
}

TensorRef contiguous_copy(const char* name, const TensorRef& tensor, const trimul_tensor& tensor_view) {
  return copy(name, tensor, tensor_view, torch_dtype_of_tensor(tensor.get()));
}

TensorRef fp32_copy(const char* name, const TensorRef& tensor, const trimul_tensor& tensor_view) {
  return copy(name, tensor, tensor_view, aoti_torch_dtype_float32());
}

Workspace::Workspace(std::size_t bytes, const trimul_device& device) {
  if (bytes == 0) return;
  if (device.type == TRIMUL_CUDA && cuda_part().can_allocate()) {
    raw_ = cuda_part().allocate(bytes, device.index);
    if (raw_ == nullptr) fail_out_of_memory("workspace", static_cast<std::int64_t>(bytes), device);
    data_ = raw_;  // torch's blocks begin at multiples of 512 bytes
    return;
  }
  tensor_ = allocate("workspace", {static_cast<std::int64_t>(bytes + kAlignmentBytes - 1)}, aoti_torch_dtype_uint8(), device);
  const void* data = nullptr;
  check_torch(torch_get_const_data_ptr(tensor_.get(), &data), "workspace");
  const std::uintptr_t beyond = reinterpret_cast<std::uintptr_t>(data) % kAlignmentBytes;
  data_ = static_cast<char*>(const_cast<void*>(data)) + (beyond == 0 ? 0 : kAlignmentBytes - beyond);
}

Workspace::~Workspace() {
  if (raw_ != nullptr) cuda_part().free(raw_);
}

int32_t torch_dtype_of(trimul_dtype dtype) {
  switch (dtype) {
    case TRIMUL_F64: return aoti_torch_dtype_float64();
    case TRIMUL_F16: return aoti_torch_dtype_float16();
    case TRIMUL_BF16: return aoti_torch_dtype_bfloat16();
    default: return aoti_torch_dtype_float32();
  }
}

void* current_stream(const trimul_device& device) {
  return device.type == TRIMUL_CUDA ? cuda_part().current_stream(device.index) : nullptr;
}

}  // namespace trimul::torch_binding
