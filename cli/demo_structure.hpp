// SPDX-License-Identifier: Apache-2.0
// A protein structure as the demo reads it: backbone and CB atoms, residue by residue.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trimul::cli {

using Point = std::array<double, 3>;  // angstrom

struct Residue {
  std::string chain;
  std::int32_t number = 0;  // as in the entry
  std::string type;         // three letters, "ALA"
  std::optional<Point> n, ca, c, cb;

  [[nodiscard]] bool has_backbone() const { return n && ca && c; }
  /// CB, or where it would be on an ideal backbone (glycine); nothing when the backbone is incomplete too.
  [[nodiscard]] std::optional<Point> pseudo_beta() const;
};

struct Structure {
  std::string name;   // stem of the file: "1ake_A"
  std::string title;  // "PDB 1AKE, chain A" for a file named so, else the name
  std::vector<Residue> residues;
};

/// Reads a CSV file with the columns chain, number, residue and x, y, z of N, CA, C, CB; empty fields are missing atoms. `file_or_name`
/// is a path, or the stem of a file in examples/data of this checkout or install tree. Failures (kInvalid) name file and line.
Structure read_structure(const std::string& file_or_name);

double distance(const Point& left, const Point& right);

}  // namespace trimul::cli
