// SPDX-License-Identifier: Apache-2.0
// The yardstick of host time. In builds with CUDA alone.
#pragma once

namespace trimul::cli {

/// Launches a kernel that does nothing on a stream: `blocks` blocks of 512 threads, programmatically dependent on the one before it, with
/// 640 bytes of parameters, as the operator's kernels have. Returns a cudaError_t.
int launch_empty_kernel(int blocks, void* stream);

}  // namespace trimul::cli
