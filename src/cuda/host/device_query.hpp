// SPDX-License-Identifier: Apache-2.0
// The machine's GPUs. No CUDA header, so that the core may ask.
#pragma once

#include "core/device.hpp"

namespace trimul::cuda {

/// GPUs of this process; 0 without a driver or device. Never throws.
int device_count();

/// Resources of GPU `index`. INVALID_ARGUMENT past the end, UNSUPPORTED without any GPU, DEVICE_ERROR when the driver fails.
core::DeviceInfo query_device(int index);

}  // namespace trimul::cuda
