// SPDX-License-Identifier: Apache-2.0
// From the times of every combination of knobs over N to a table of choices. No GPU, no clock: arithmetic on what was measured.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "problem_set.hpp"
#include "times.hpp"
#include "trimul/trimul.h"

namespace trimul::cli {

/// One value for each knob of an implementation, in its order.
using KnobValues = std::vector<std::int64_t>;

/// What was measured of one problem.
struct SweptProblem {
  ProblemLine line;
  double floor_us = 0;
  KnobValues present;                      // what the library's own table chooses
  std::map<KnobValues, double> screening;  // median of the rounds that all combinations were in; of fewer where one was hopeless
  std::map<KnobValues, Times> times;       // of finalists those of the final rounds, of the others those of the screening
  std::vector<KnobValues> finalists;       // the best of the screening, and the present
  std::map<std::pair<std::size_t, std::int64_t>, std::string> names;  // of a knob's value: (knob, value) -> "ping_pong_128x128"

  /// Takes names out of a plan's explanation, whose lines read "knob: value (name)".
  void add_names(const KnobValues& values, const std::vector<trimul_knob_range>& ranges, std::string_view explanation);
};

/// A row of the table: the choice from this N on.
struct SweepRow {
  std::int64_t tokens_from;
  KnobValues values;
};

class SweepTable {
 public:
  /// Problems that differ in N alone, at least one.
  SweepTable(std::vector<SweptProblem> problems, const std::vector<trimul_knob_range>& ranges);

  [[nodiscard]] const std::vector<SweepRow>& rows() const { return rows_; }
  /// The combination that loses least over all N, if one had to serve them all.
  [[nodiscard]] const KnobValues& fixed() const { return fixed_; }
  /// Lines as heuristics.cpp holds them, and what the table gains.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] nlohmann::ordered_json json() const;

 private:
  /// Of the combinations that the noise does not tell from the best, the one most like the present.
  [[nodiscard]] static KnobValues choice(const SweptProblem& problem);
  [[nodiscard]] KnobValues least_loss() const;
  /// "64 13.47 / 16.67, 100 20.8 / 22": N, us by this row and by the fixed set, in the rounds that all combinations were in.
  [[nodiscard]] std::string evidence(std::size_t row) const;
  void make_rows();
  /// "{1, kPingPong128x128, 5}"
  [[nodiscard]] std::string values_text(const KnobValues& values) const;

  std::vector<SweptProblem> problems_;  // by ascending N
  std::vector<std::string> knobs_;
  std::vector<SweepRow> rows_;
  KnobValues fixed_;
};

}  // namespace trimul::cli
