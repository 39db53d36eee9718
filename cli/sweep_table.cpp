// SPDX-License-Identifier: Apache-2.0
#include "sweep_table.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "failure.hpp"
#include "options.hpp"

namespace trimul::cli {
namespace {

/// A best that gains less than this on the present choice is not told from noise: on an H200, values of a knob that do nothing in a graph
/// of one call (the input projection's overlap) came out up to 0.8 per cent apart.
constexpr double kNoise = 0.01;
/// Tiles change their fit at multiples of this.
constexpr std::int64_t kTileEdge = 64;

double gain_percent(double from_us, double to_us) {
  return 100 * (from_us / to_us - 1);
}

/// "ping_pong_128x128" -> "kPingPong128x128", the enumerator of that name.
std::string enumerator(std::string_view name) {
  std::string text = "k";
  bool is_upper = true;
  for (const char c : name) {
    if (c == '_')
      is_upper = true;
    else
      text += is_upper && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    if (c != '_') is_upper = false;
  }
  return text;
}

}  // namespace

void SweptProblem::add_names(const KnobValues& values, const std::vector<trimul_knob_range>& ranges, std::string_view explanation) {
  for (const std::string_view entry : split(explanation, '\n'))
    for (std::size_t k = 0; k < ranges.size(); ++k) {
      const std::string start = fmt::format("{}: {} (", ranges[k].name, values[k]);
      if (entry.starts_with(start) && entry.ends_with(')'))
        names[{k, values[k]}] = entry.substr(start.size(), entry.size() - start.size() - 1);
    }
}

SweepTable::SweepTable(std::vector<SweptProblem> problems, const std::vector<trimul_knob_range>& ranges) : problems_(std::move(problems)) {
  std::sort(problems_.begin(), problems_.end(),
            [](const SweptProblem& left, const SweptProblem& right) { return left.line.tokens < right.line.tokens; });
  for (const trimul_knob_range& range : ranges) knobs_.emplace_back(range.name);
  fixed_ = least_loss();
  make_rows();
}

KnobValues SweepTable::choice(const SweptProblem& problem) {
  const auto median = [&](const KnobValues& values) { return problem.times.at(values).median_us(); };
  const auto order = [&](const KnobValues& left, const KnobValues& right) { return median(left) < median(right); };
  const double best_us = median(*std::min_element(problem.finalists.begin(), problem.finalists.end(), order));
  // Differing bits: a knob may be a set of flags.
  const auto distance = [&](const KnobValues& values) {
    int bits = 0;
    for (std::size_t k = 0; k < values.size(); ++k) bits += std::popcount(static_cast<std::uint64_t>(values[k] ^ problem.present[k]));
    return bits;
  };
  std::vector<KnobValues> equal;
  for (const KnobValues& values : problem.finalists)
    if (median(values) <= (1 + kNoise) * best_us) equal.push_back(values);
  return *std::min_element(equal.begin(), equal.end(), [&](const KnobValues& left, const KnobValues& right) {
    return std::pair(distance(left), median(left)) < std::pair(distance(right), median(right));
  });
}

KnobValues SweepTable::least_loss() const {
  KnobValues least;
  double least_loss = std::numeric_limits<double>::infinity();
  for (const auto& [values, us] : problems_.front().screening) {
    double loss = 0;
    for (const SweptProblem& problem : problems_) {
      const auto best = std::min_element(problem.screening.begin(), problem.screening.end(),
                                         [](const auto& left, const auto& right) { return left.second < right.second; });
      loss += std::log(problem.screening.at(values) / best->second);
    }
    if (loss >= least_loss) continue;
    least_loss = loss;
    least = values;
  }
  return least;
}

void SweepTable::make_rows() {
  for (std::size_t k = 0; k < problems_.size(); ++k) {
    const KnobValues values = choice(problems_[k]);
    if (!rows_.empty() && rows_.back().values == values) continue;
    // Between two measured N the choice changes where tiles do.
    const std::int64_t before = k == 0 ? 0 : problems_[k - 1].line.tokens;
    const std::int64_t edge = (before + kTileEdge - 1) / kTileEdge * kTileEdge + 1;
    rows_.push_back({k == 0 ? 1 : std::min(edge, problems_[k].line.tokens), values});
  }
}

std::string SweepTable::values_text(const KnobValues& values) const {
  std::string text;
  for (std::size_t k = 0; k < values.size(); ++k) {
    const auto name = problems_.front().names.find({k, values[k]});
    text += (k == 0 ? "{" : ", ") + (name == problems_.front().names.end() ? std::to_string(values[k]) : enumerator(name->second));
  }
  return text + "}";
}

std::string SweepTable::text() const {
  const ProblemLine& line = problems_.front().line;
  std::string text = fmt::format("B = {}, {}, C_z = {}, C = {}; us, best against the table's choice and against {} for every N\n",
                                 line.batch, direction_name(line.direction), line.c_z, line.c_hidden, values_text(fixed_));
  text += fmt::format("{:>6} {:>9} {:>9} {:>7} {:>9}  {}\n", "N", "best", "table", "gain", "on fixed", "best choice (table's)");
  double log_present = 0, log_fixed = 0;
  for (const SweptProblem& problem : problems_) {
    const KnobValues best = choice(problem);
    const double best_us = problem.times.at(best).median_us();
    const double present_us = problem.times.at(problem.present).median_us();
    const double fixed_us = problem.screening.at(fixed_), table_us = problem.screening.at(problem.present);
    log_present += std::log(present_us / best_us);
    log_fixed += std::log(fixed_us / table_us);
    text += fmt::format("{:>6} {:>9.2f} {:>9.2f} {:>6.1f}% {:>8.1f}%  {}{}\n", problem.line.tokens, best_us, present_us,
                        gain_percent(present_us, best_us), gain_percent(fixed_us, table_us), values_text(best),
                        best == problem.present ? "" : " (" + values_text(problem.present) + ")");
  }
  const auto count = static_cast<double>(problems_.size());
  text += fmt::format("mean: the best choices gain {:.1f}% on the table, the table {:.1f}% on the fixed set\n",
                      100 * std::expm1(log_present / count), 100 * std::expm1(log_fixed / count));
  text += fmt::format("the table that follows; behind each row N and us, and us with {}:\n", values_text(fixed_));
  for (std::size_t k = 0; k < rows_.size(); ++k)
    text += fmt::format("    {{{}, {}}},  // {}\n", rows_[k].tokens_from, values_text(rows_[k].values), evidence(k));
  return text;
}

std::string SweepTable::evidence(std::size_t row) const {
  std::vector<std::string> figures;
  for (const SweptProblem& problem : problems_) {
    const bool is_before = problem.line.tokens < rows_[row].tokens_from;
    const bool is_behind = row + 1 < rows_.size() && problem.line.tokens >= rows_[row + 1].tokens_from;
    if (is_before || is_behind) continue;
    figures.push_back(
        fmt::format("{} {:.4g} / {:.4g}", problem.line.tokens, problem.screening.at(rows_[row].values), problem.screening.at(fixed_)));
  }
  // A row that serves many N shows its ends.
  if (figures.size() > 3) figures = {figures[0], figures[1], "..", figures.back()};
  return fmt::format("{}", fmt::join(figures, ", "));
}

nlohmann::ordered_json SweepTable::json() const {
  const auto object = [&](const KnobValues& values) {
    nlohmann::ordered_json json;
    for (std::size_t k = 0; k < values.size(); ++k) json[knobs_[k]] = values[k];
    return json;
  };
  const ProblemLine& line = problems_.front().line;
  nlohmann::ordered_json json{{"B", line.batch},
                              {"direction", direction_name(line.direction)},
                              {"C_z", line.c_z},
                              {"C", line.c_hidden},
                              {"fixed", object(fixed_)},
                              {"rows", nlohmann::ordered_json::array()},
                              {"problems", nlohmann::ordered_json::array()}};
  for (const SweepRow& row : rows_) json["rows"].push_back({{"tokens_from", row.tokens_from}, {"knobs", object(row.values)}});
  for (const SweptProblem& problem : problems_) {
    const KnobValues best = choice(problem);
    nlohmann::ordered_json entry{{"problem", format_problem_line(problem.line)},
                                 {"N", problem.line.tokens},
                                 {"floor_us", problem.floor_us},
                                 {"best", object(best)},
                                 {"best_us", problem.times.at(best).median_us()},
                                 {"present", object(problem.present)},
                                 {"present_us", problem.times.at(problem.present).median_us()},
                                 {"present_screening_us", problem.screening.at(problem.present)},
                                 {"fixed_screening_us", problem.screening.at(fixed_)},
                                 {"combinations", nlohmann::ordered_json::array()}};
    for (const auto& [values, times] : problem.times) {
      entry["combinations"].push_back({{"knobs", object(values)}});
      entry["combinations"].back().update(times.json());
    }
    json["problems"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace trimul::cli
