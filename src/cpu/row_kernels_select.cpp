// SPDX-License-Identifier: Apache-2.0
#include "cpu/row_kernels.hpp"

namespace trimul::cpu {

const RowKernels& row_kernels_baseline();
#if defined(TRIMUL_CPU_X86)
const RowKernels& row_kernels_avx2();
const RowKernels& row_kernels_avx512();
#endif

const RowKernels* supported_row_kernels(int index) {
  if (index == 0) return &row_kernels_baseline();
#if defined(TRIMUL_CPU_X86)
  // The feature lists of x86-64-v3 and -v4 beyond what every processor with the named extension has.
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (index == 1 && has_avx2) return &row_kernels_avx2();
  if (index == 2 && has_avx512) return &row_kernels_avx512();
#endif
  return nullptr;
}

const RowKernels& row_kernels() {
  static const RowKernels* const selected = [] {
    const RowKernels* best = supported_row_kernels(0);
    for (int index = 1; const RowKernels* better = supported_row_kernels(index); ++index) best = better;
    return best;
  }();
  return *selected;
}

}  // namespace trimul::cpu
