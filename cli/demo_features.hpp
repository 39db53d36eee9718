// SPDX-License-Identifier: Apache-2.0
// The pair features of a template embedder, and their projection to the pair representation.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "demo_random.hpp"
#include "demo_structure.hpp"

namespace trimul::cli {

// The channels of the pair features, AlphaFold's template pair features in their order.
inline constexpr std::size_t kNumBins = 39;   // CB-CB distogram, bins of 1.25 A from 3.25 A, the last one open
inline constexpr std::size_t kNumTypes = 22;  // 20 residue types, unknown, gap
inline constexpr std::size_t kBins = 0;
inline constexpr std::size_t kBetaMask = kBins + kNumBins;
inline constexpr std::size_t kTypeOfJ = kBetaMask + 1;
inline constexpr std::size_t kTypeOfI = kTypeOfJ + kNumTypes;
inline constexpr std::size_t kUnitVector = kTypeOfI + kNumTypes;
inline constexpr std::size_t kBackboneMask = kUnitVector + 3;
inline constexpr std::size_t kNumFeatures = kBackboneMask + 1;

/// What the pair features need to know about one residue.
struct ResidueFeatures {
  std::size_t type = 0;             // in [0, kNumTypes)
  std::optional<Point> beta;        // CB or its ideal place
  std::optional<Point> ca;          // present when the backbone is complete, as is frame
  std::array<Point, 3> frame = {};  // axes: CA to C; N in the plane of the first two
  [[nodiscard]] bool is_complete() const { return beta && ca; }
};

std::vector<ResidueFeatures> residue_features(const Structure& structure);

/// 0..19 for the amino acids in the order of their one-letter codes' usual table, 20 for anything else.
std::size_t residue_type_index(std::string_view three_letters);

/// Bin of a CB-CB distance, nothing below the first bin.
std::optional<std::size_t> distance_bin(double distance);

/// Direction from CA of i to CA of j in the backbone frame of i; zero for i == j.
Point unit_vector(const ResidueFeatures& i, const ResidueFeatures& j);

/// The seeded linear layer from pair features to C_z channels. Distances speak loudest and residue types softly, so that the
/// norm of the result shows the fold.
class FeatureProjection {
 public:
  FeatureProjection(std::size_t c_z, NormalGenerator& random);
  /// pair[C_z] = W features(i, j).
  void project(const ResidueFeatures& i, const ResidueFeatures& j, float* pair) const;

 private:
  void add_channel(std::size_t feature, double value, float* pair) const;

  std::size_t c_z_;
  std::vector<float> weight_;  // [kNumFeatures, C_z]: one row of C_z values for each feature
};

}  // namespace trimul::cli
