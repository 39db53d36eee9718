// SPDX-License-Identifier: Apache-2.0
// Problems as lines of text (shapes/README.md), and random inputs for them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "inputs.hpp"

namespace trimul::cli {

enum class MaskKind { kNone, kRandom, kPadded, kFractional, kZero, kOneOff };
enum class BiasKind { kNoBias, kAll, kPIn, kGIn, kPOut, kGOut };

struct ProblemLine {
  std::int64_t batch = 1;
  std::int64_t tokens = 0;
  std::int64_t c_z = 0;
  std::int64_t c_hidden = 0;
  trimul_dtype dtype = TRIMUL_F32;
  trimul_direction direction = TRIMUL_OUTGOING;
  MaskKind mask = MaskKind::kNone;
  BiasKind bias = BiasKind::kNoBias;
  bool residual = false;
  trimul_precision precision = TRIMUL_PRECISION_DEFAULT;
};

/// "B N C_z C dtype direction [mask] [bias] [residual] [precision]", of sizes whose products fit. `where` names the line in failures
/// (kInvalid).
ProblemLine parse_problem_line(std::string_view text, std::string_view where);
/// The line that parses to `line`, defaults left out.
std::string format_problem_line(const ProblemLine& line);
/// Problems of a shapes file: one a line, # starts a comment. A file without any is kInvalid.
std::vector<ProblemLine> read_shapes_file(const std::string& path);

/// Fresh inputs: x = 1.3 normal + 0.2, every parameter random and not zero, masks asymmetric. The same on every machine for
/// one seed.
Inputs random_inputs(const ProblemLine& line, std::uint64_t seed);
Settings settings_of(const ProblemLine& line);
/// The problem that random_inputs(line) has, on the CPU.
trimul_problem problem_of(const ProblemLine& line);

/// dtype of the result.
trimul_dtype out_dtype_of(const ProblemLine& line);

/// Multiply-adds of the matrix products; what an fp64 reference costs too.
double multiply_adds(const ProblemLine& line);

}  // namespace trimul::cli
