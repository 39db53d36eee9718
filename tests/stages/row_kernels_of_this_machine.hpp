// SPDX-License-Identifier: Apache-2.0
// Every instruction set's row kernels that this processor runs, not only the one that would be chosen.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cpu/row_kernels.hpp"

namespace trimul::cpu {

const RowKernels& row_kernels_baseline();
#if defined(TRIMUL_CPU_X86)
const RowKernels& row_kernels_avx2();
const RowKernels& row_kernels_avx512();
#endif

inline std::vector<const RowKernels*> row_kernels_of_this_machine() {
  std::vector<const RowKernels*> sets{&row_kernels_baseline()};
#if defined(TRIMUL_CPU_X86)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
    sets.push_back(&row_kernels_avx2());
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    sets.push_back(&row_kernels_avx512());
#endif
  return sets;
}

/// Parameterised over their names.
class RowKernelTest : public ::testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] const RowKernels& kernels() const {
    for (const RowKernels* set : row_kernels_of_this_machine())
      if (GetParam() == set->isa) return *set;
    return row_kernels_baseline();
  }
};

inline std::vector<std::string> instruction_sets_of_this_machine() {
  std::vector<std::string> names;
  for (const RowKernels* set : row_kernels_of_this_machine()) names.emplace_back(set->isa);
  return names;
}

#define TRIMUL_INSTANTIATE_ROW_KERNEL_TEST(Suite)                                                 \
  INSTANTIATE_TEST_SUITE_P(Every, Suite, ::testing::ValuesIn(instruction_sets_of_this_machine()), \
                           [](const auto& instance) { return instance.param; })

}  // namespace trimul::cpu
