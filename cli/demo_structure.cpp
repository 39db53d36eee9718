// SPDX-License-Identifier: Apache-2.0
#include "demo_structure.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <locale>
#include <sstream>
#include <string_view>

#include "failure.hpp"
#include "options.hpp"

namespace trimul::cli {
namespace {

constexpr std::string_view kColumns = "chain,number,residue,n_x,n_y,n_z,ca_x,ca_y,ca_z,c_x,c_y,c_z,cb_x,cb_y,cb_z";
constexpr std::size_t kNumFields = 15;
constexpr std::size_t kMostResidues = 20'000;

/// Where the named structures lie: beside this command in an install tree, or up from the build folder in a checkout.
std::optional<std::filesystem::path> find_named(const std::string& name) {
  std::error_code ignored;
  std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (int level = 0; level < 4 && folder.has_relative_path(); ++level, folder = folder.parent_path())
    for (const char* place : {"share/trimul/data", "examples/data"})
      if (const auto file = folder / place / (name + ".csv"); std::filesystem::is_regular_file(file, ignored)) return file;
  return std::nullopt;
}

std::filesystem::path find_structure(const std::string& file_or_name) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(file_or_name, ignored)) return file_or_name;
  const bool is_name = !file_or_name.empty() &&
                       std::ranges::all_of(file_or_name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; });
  if (is_name)
    if (const auto found = find_named(file_or_name)) return *found;
  fail_invalid("structure {}: is neither a file nor the name of one in examples/data (1ubi, 1ake_A, 3enl, 3o21)", in_quotes(file_or_name));
}

/// "1ake_A" is PDB entry 1AKE, chain A.
std::string title_of(const std::string& stem) {
  const auto is_alnum = [](unsigned char c) { return std::isalnum(c) != 0; };
  const bool is_entry = stem.size() >= 4 && std::isdigit(static_cast<unsigned char>(stem[0])) != 0 &&
                        std::all_of(stem.begin(), stem.begin() + 4, is_alnum) && (stem.size() == 4 || (stem.size() == 6 && stem[4] == '_'));
  if (!is_entry) return stem;
  std::string entry = stem.substr(0, 4);
  std::ranges::transform(entry, entry.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return "PDB " + entry + (stem.size() == 6 ? ", chain " + stem.substr(5) : "");
}

class LineReader {
 public:
  LineReader(const std::string& file, std::size_t line, std::vector<std::string_view> fields)
      : file_(file), line_(line), fields_(std::move(fields)) {}

  [[nodiscard]] std::string_view text(std::size_t field) const { return fields_[field]; }

  [[nodiscard]] double number(std::size_t field) const {
    std::istringstream stream{std::string(fields_[field])};
    stream.imbue(std::locale::classic());
    double value = 0;
    stream >> value;
    if (!stream || stream.peek() != std::istringstream::traits_type::eof() || !std::isfinite(value) || std::abs(value) > 1e5)
      fail_invalid("{}: line {}, field {} is {}, expected a number", file_, line_, field + 1, in_quotes(fields_[field]));
    return value;
  }

  [[nodiscard]] std::optional<Point> atom(std::size_t first_field) const {
    const auto missing =
        std::count_if(fields_.begin() + static_cast<std::ptrdiff_t>(first_field),
                      fields_.begin() + static_cast<std::ptrdiff_t>(first_field + 3), [](std::string_view field) { return field.empty(); });
    if (missing == 3) return std::nullopt;
    return Point{number(first_field), number(first_field + 1), number(first_field + 2)};
  }

 private:
  const std::string& file_;
  std::size_t line_;
  std::vector<std::string_view> fields_;
};

}  // namespace

double distance(const Point& left, const Point& right) {
  return std::hypot(left[0] - right[0], left[1] - right[1], left[2] - right[2]);
}

std::optional<Point> Residue::pseudo_beta() const {
  if (cb) return cb;
  if (!has_backbone()) return std::nullopt;
  Point to_ca, to_c, result;
  for (std::size_t k = 0; k < 3; ++k) {
    to_ca[k] = (*ca)[k] - (*n)[k];
    to_c[k] = (*c)[k] - (*ca)[k];
  }
  for (std::size_t k = 0; k < 3; ++k) {
    const double cross = to_ca[(k + 1) % 3] * to_c[(k + 2) % 3] - to_ca[(k + 2) % 3] * to_c[(k + 1) % 3];
    // CB of an ideal tetrahedral CA with the usual bond length, in terms of the two backbone bonds and their cross product.
    result[k] = (*ca)[k] - 0.58273431 * cross + 0.56802827 * to_ca[k] - 0.54067466 * to_c[k];
  }
  return result;
}

Structure read_structure(const std::string& file_or_name) {
  const std::filesystem::path path = find_structure(file_or_name);
  const std::string file = one_line(path.string());
  std::ifstream stream(path);
  std::string line;
  const auto next_line = [&] {
    if (!std::getline(stream, line)) return false;
    if (line.ends_with('\r')) line.pop_back();
    return true;
  };
  if (!next_line() || line != kColumns) fail_invalid("{}: line 1 is {}, expected the columns {}", file, in_quotes(line), kColumns);

  Structure structure{.name = path.stem().string(), .title = title_of(path.stem().string()), .residues = {}};
  for (std::size_t number = 2; next_line(); ++number) {
    if (line.empty()) continue;
    std::vector<std::string_view> fields = split(line, ',');
    if (fields.size() != kNumFields) fail_invalid("{}: line {} has {} fields, expected {}", file, number, fields.size(), kNumFields);
    const LineReader reader(file, number, std::move(fields));
    structure.residues.push_back({.chain = std::string(reader.text(0)),
                                  .number = static_cast<std::int32_t>(reader.number(1)),
                                  .type = std::string(reader.text(2)),
                                  .n = reader.atom(3),
                                  .ca = reader.atom(6),
                                  .c = reader.atom(9),
                                  .cb = reader.atom(12)});
    if (structure.residues.size() > kMostResidues) fail_invalid("{}: has more than {} residues", file, kMostResidues);
  }
  if (stream.bad()) fail_invalid("{}: cannot be read to its end", file);
  if (structure.residues.empty()) fail_invalid("{}: holds no residue", file);
  return structure;
}

}  // namespace trimul::cli
