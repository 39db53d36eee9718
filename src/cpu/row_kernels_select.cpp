// SPDX-License-Identifier: Apache-2.0
#include "cpu/row_kernels.hpp"

namespace trimul::cpu {

const RowKernels& row_kernels_baseline();
#if defined(TRIMUL_CPU_X86)
const RowKernels& row_kernels_avx2();
const RowKernels& row_kernels_avx512();
#endif

namespace {

const RowKernels& select() {
#if defined(TRIMUL_CPU_X86)
  // The feature lists of x86-64-v4 and -v3 beyond what every processor with the named extension has.
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return row_kernels_avx512();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) return row_kernels_avx2();
#endif
  return row_kernels_baseline();
}

}  // namespace

const RowKernels& row_kernels() {
  static const RowKernels& selected = select();
  return selected;
}

}  // namespace trimul::cpu
