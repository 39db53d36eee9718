// SPDX-License-Identifier: Apache-2.0
// Every instruction set's row kernels that this processor runs, not only the one that would be chosen.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cpu/row_kernels.hpp"

namespace trimul::cpu {

inline std::vector<const RowKernels*> row_kernels_of_this_machine() {
  std::vector<const RowKernels*> sets;
  for (int index = 0; supported_row_kernels(index) != nullptr; ++index) sets.push_back(supported_row_kernels(index));
  return sets;
}

/// Parameterised over their names.
class RowKernelTest : public ::testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] const RowKernels& kernels() const {
    for (const RowKernels* set : row_kernels_of_this_machine())
      if (GetParam() == set->isa) return *set;
    return row_kernels();
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
