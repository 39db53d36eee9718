// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/device.hpp"
#include "trimul/trimul.h"

#define TRIMUL_STRINGIFY_(value) #value
#define TRIMUL_STRINGIFY(value) TRIMUL_STRINGIFY_(value)

namespace trimul::core {

inline constexpr char kVersion[] =
    TRIMUL_STRINGIFY(TRIMUL_VERSION_MAJOR) "." TRIMUL_STRINGIFY(TRIMUL_VERSION_MINOR) "." TRIMUL_STRINGIFY(TRIMUL_VERSION_PATCH);

/// Lines "key: value": version, compiler, oneDNN, CUDA.
std::string build_info();

/// "CPU, 2 threads, avx512, oneDNN 2.6.3"
std::string cpu_description();

/// "NVIDIA H200, compute capability 9.0, 132 multiprocessors"
std::string gpu_description(const DeviceInfo& device);

}  // namespace trimul::core
