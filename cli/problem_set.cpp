// SPDX-License-Identifier: Apache-2.0
#include "problem_set.hpp"

#include <array>
#include <fstream>
#include <optional>

#include "failure.hpp"
#include "library.hpp"
#include "options.hpp"

namespace trimul::cli {
namespace {

template <typename Kind>
struct Word {
  std::string_view word;
  Kind kind;
};
constexpr std::array kMaskWords{Word<MaskKind>{"none", MaskKind::kNone},     Word<MaskKind>{"random", MaskKind::kRandom},
                                Word<MaskKind>{"padded", MaskKind::kPadded}, Word<MaskKind>{"fractional", MaskKind::kFractional},
                                Word<MaskKind>{"zero", MaskKind::kZero},     Word<MaskKind>{"one_off", MaskKind::kOneOff}};
constexpr std::array kBiasWords{Word<BiasKind>{"nobias", BiasKind::kNoBias}, Word<BiasKind>{"all", BiasKind::kAll},
                                Word<BiasKind>{"p_in", BiasKind::kPIn},      Word<BiasKind>{"g_in", BiasKind::kGIn},
                                Word<BiasKind>{"p_out", BiasKind::kPOut},    Word<BiasKind>{"g_out", BiasKind::kGOut}};

constexpr std::array kPrecisionWords{
    Word<trimul_precision>{"tf32", TRIMUL_PRECISION_TF32}, Word<trimul_precision>{"tf32x3", TRIMUL_PRECISION_TF32X3},
    Word<trimul_precision>{"ieee", TRIMUL_PRECISION_IEEE}, Word<trimul_precision>{"bfloat16", TRIMUL_PRECISION_BF16}};

template <typename Words>
auto find_word(const Words& words, std::string_view text) {
  std::optional<decltype(words[0].kind)> kind;
  for (const auto& entry : words)
    if (entry.word == text) kind = entry.kind;
  return kind;
}

template <typename Words, typename Kind>
std::string_view word_of(const Words& words, Kind kind) {
  for (const auto& entry : words)
    if (entry.kind == kind) return entry.word;
  return "";
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  constexpr std::string_view kBlank = " \t\r";
  for (std::size_t at = text.find_first_not_of(kBlank); at != std::string_view::npos; at = text.find_first_not_of(kBlank)) {
    text.remove_prefix(at);
    words.push_back(text.substr(0, text.find_first_of(kBlank)));
    text.remove_prefix(words.back().size());
  }
  return words;
}

/// The words after the direction, each kind at most once.
void parse_extras(const std::vector<std::string_view>& words, ProblemLine& line) {
  bool has_mask = false;
  bool has_bias = false;
  for (const std::string_view word : words) {
    if (const auto mask = find_word(kMaskWords, word); mask && !has_mask) {
      line.mask = *mask;
      has_mask = true;
    } else if (const auto bias = find_word(kBiasWords, word); bias && !has_bias) {
      line.bias = *bias;
      has_bias = true;
    } else if (const auto precision = find_word(kPrecisionWords, word); precision && line.precision == TRIMUL_PRECISION_DEFAULT) {
      line.precision = *precision;
    } else if (word == "residual" && !line.residual) {
      line.residual = true;
    } else {
      fail_invalid(
          "got {}, expected at most one mask (none, random, padded, fractional, zero, one_off), one bias (nobias, all, p_in, g_in, p_out, "
          "g_out), "
          "one precision (tf32, tf32x3, ieee, bfloat16) and residual",
          in_quotes(word));
    }
  }
}

}  // namespace

ProblemLine parse_problem_line(std::string_view text, std::string_view where) {
  ProblemLine line;
  naming(where, [&] {
    const auto words = words_of(text);
    if (words.size() < 6)
      fail_invalid("got {} words, expected B N C_z C dtype direction [mask] [bias] [residual] [precision]", words.size());
    line.batch = parse_count("B", words[0], 0);
    line.tokens = parse_count("N", words[1], 0);
    line.c_z = parse_count("C_z", words[2], 1);
    line.c_hidden = parse_count("C", words[3], 1);
    line.dtype = parse_float_dtype(words[4]);
    line.direction = parse_direction(words[5]);
    parse_extras({words.begin() + 6, words.end()}, line);
    check_problem(problem_of(line));
  });
  return line;
}

std::string format_problem_line(const ProblemLine& line) {
  std::string text = fmt::format("{} {} {} {} {} {}", line.batch, line.tokens, line.c_z, line.c_hidden, trimul_dtype_name(line.dtype),
                                 direction_name(line.direction));
  if (line.mask != MaskKind::kNone) text += fmt::format(" {}", word_of(kMaskWords, line.mask));
  if (line.bias != BiasKind::kNoBias) text += fmt::format(" {}", word_of(kBiasWords, line.bias));
  if (line.residual) text += " residual";
  if (line.precision != TRIMUL_PRECISION_DEFAULT) text += fmt::format(" {}", word_of(kPrecisionWords, line.precision));
  return text;
}

std::vector<ProblemLine> read_shapes_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail_invalid("{}: cannot be opened", path);
  std::vector<ProblemLine> lines;
  std::string text;
  for (int number = 1; std::getline(file, text); ++number) {
    const std::string_view content = std::string_view(text).substr(0, text.find('#'));
    if (!words_of(content).empty()) lines.push_back(parse_problem_line(content, fmt::format("{}:{}", path, number)));
  }
  if (file.bad()) fail_invalid("{}: cannot be read", path);
  if (lines.empty())
    fail_invalid("{}: holds no problem, expected lines B N C_z C dtype direction [mask] [bias] [residual] [precision]", path);
  return lines;
}

Settings settings_of(const ProblemLine& line) {
  return {.direction = line.direction, .precision = line.precision, .eps = 1e-5F, .residual = line.residual};
}

trimul_problem problem_of(const ProblemLine& line) {
  const auto is_one_of = [&line](auto... kinds) { return ((line.bias == kinds) || ...) ? 1 : 0; };
  trimul_problem problem = TRIMUL_PROBLEM_INIT;
  problem.batch = line.batch;
  problem.tokens = line.tokens;
  problem.c_z = line.c_z;
  problem.c_hidden = line.c_hidden;
  problem.x_dtype = line.dtype;
  problem.direction = line.direction;
  problem.has_mask = line.mask != MaskKind::kNone ? 1 : 0;
  problem.has_in_bias = is_one_of(BiasKind::kAll, BiasKind::kPIn, BiasKind::kGIn);
  problem.has_out_bias = is_one_of(BiasKind::kAll, BiasKind::kPOut, BiasKind::kGOut);
  problem.residual = line.residual ? 1 : 0;
  problem.precision = line.precision;
  return problem;
}

trimul_dtype out_dtype_of(const ProblemLine& line) {
  return line.precision == TRIMUL_PRECISION_BF16 ? TRIMUL_BF16 : line.dtype;
}

double multiply_adds(const ProblemLine& line) {
  const auto n = static_cast<double>(line.tokens);
  const auto c = static_cast<double>(line.c_hidden);
  const auto c_z = static_cast<double>(line.c_z);
  return static_cast<double>(line.batch) * n * n * (n * c + 4 * c * c_z + c_z * (c + c_z));
}

}  // namespace trimul::cli
