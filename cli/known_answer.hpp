// SPDX-License-Identifier: Apache-2.0
// A small problem with fixed inputs and expected numbers that no code of this library computed.
#pragma once

#include <string>
#include <vector>

#include "contender.hpp"

namespace trimul::cli {

/// The known-answer test for one direction and dtype of x (the inputs are exact in all of them).
ProblemLine known_answer_problem(trimul_direction direction, trimul_dtype dtype);
CheckResult check_known_answer(const ProblemLine& line, const std::string& implementation, const std::vector<trimul_device>& devices);

}  // namespace trimul::cli
