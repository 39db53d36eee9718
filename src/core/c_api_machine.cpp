// SPDX-License-Identifier: Apache-2.0
// The part of the C ABI that is about the machine and the build: memory, devices. Contracts stand in trimul.h.
#include "core/build_info.hpp"
#include "core/c_api_boundary.hpp"
#include "core/device.hpp"
#include "core/error.hpp"
#include "core/memory.hpp"
#include "trimul/trimul.h"

namespace core = trimul::core;

namespace {

using core::guarded;

thread_local std::string description_text;  // what a `const char*` result points at

}  // namespace

extern "C" {

trimul_status trimul_memory_allocate(trimul_device device, size_t bytes, void** memory) {
  return guarded([&] {
    if (memory == nullptr) core::fail_invalid("memory: is NULL, expected a place for the result");
    *memory = nullptr;
    *memory = core::allocate_memory(core::check_device(device), bytes);
  });
}

void trimul_memory_free(trimul_device device, void* memory) {
  if (memory != nullptr) (void)guarded([&] { core::free_memory(core::check_device(device), memory); });
}

trimul_status trimul_memory_copy(trimul_device to_device, void* to, trimul_device from_device, const void* from, size_t bytes,
                                 void* stream) {
  return guarded([&] {
    if (bytes > 0 && to == nullptr) core::fail_invalid("to: is NULL, expected ", bytes, " bytes");
    if (bytes > 0 && from == nullptr) core::fail_invalid("from: is NULL, expected ", bytes, " bytes");
    core::copy_memory(core::check_device(to_device), to, core::check_device(from_device), from, bytes, stream);
  });
}

int32_t trimul_cuda_device_count(void) {
  return core::cuda_device_count();
}

const char* trimul_device_description(trimul_device device) {
  const bool is_cpu = device.type == TRIMUL_CPU && device.index == 0;
  const bool is_gpu = device.type == TRIMUL_CUDA && device.index >= 0 && device.index < core::cuda_device_count();
  if (!is_cpu && !is_gpu) return nullptr;
  const trimul_status status = guarded([&] {
    description_text = is_cpu ? core::cpu_description() : core::gpu_description(core::describe_device(core::check_device(device)));
  });
  return status == TRIMUL_OK ? description_text.c_str() : nullptr;
}

trimul_status trimul_device_ceilings(trimul_device device, double* bytes_per_us, double* flop_per_us) {
  return guarded([&] {
    if (bytes_per_us == nullptr || flop_per_us == nullptr)
      core::fail_invalid(bytes_per_us == nullptr ? "bytes_per_us" : "flop_per_us", ": is NULL, expected a place for the result");
    const core::DeviceInfo info = core::describe_device(core::check_device(device));
    *bytes_per_us = info.bytes_per_us;
    *flop_per_us = info.flop_per_us;
  });
}

const char* trimul_build_info(void) {
  static const std::string info = core::build_info();
  return info.c_str();
}

}  // extern "C"
