// SPDX-License-Identifier: Apache-2.0
#include "core/build_info.hpp"

#include "commit.hpp"  // of the build: cmake/write_commit.cmake
#include "core/env.hpp"
#include "core/error.hpp"
#include "cpu/gemm.hpp"
#include "cpu/row_kernels.hpp"

namespace trimul::core {

std::string build_info() {
#if defined(__clang__)
  const char* compiler = "clang " __clang_version__;
#else
  const char* compiler = "gcc " __VERSION__;
#endif
#if defined(TRIMUL_HAVE_CUDA)
  const char* cuda = TRIMUL_CUDA_ARCHITECTURES;
#else
  const char* cuda = "none";
#endif
  return text("version: ", kVersion, "\ncommit: ", kCommit, "\ncompiler: ", compiler, "\nonednn: ", cpu::gemm_library(), "\ncuda: ", cuda,
              "\n");
}

std::string cpu_description() {
  return text("CPU, ", env::num_threads(), " threads, ", cpu::row_kernels().isa, ", matrix products by ", cpu::gemm_library());
}

std::string gpu_description(const DeviceInfo& device) {
  return text(device.name, ", compute capability ", device.sm / 10, ".", device.sm % 10, ", ", device.num_sms, " multiprocessors");
}

}  // namespace trimul::core
