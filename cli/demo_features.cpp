// SPDX-License-Identifier: Apache-2.0
#include "demo_features.hpp"

#include <algorithm>
#include <cmath>
#include <span>

namespace trimul::cli {
namespace {

constexpr double kFirstBin = 3.25;  // angstrom
constexpr double kBinWidth = 1.25;

double dot(const Point& left, const Point& right) {
  return left[0] * right[0] + left[1] * right[1] + left[2] * right[2];
}

Point minus(const Point& left, const Point& right) {
  return {left[0] - right[0], left[1] - right[1], left[2] - right[2]};
}

Point normalized(const Point& vector) {
  const double length = std::sqrt(dot(vector, vector) + 1e-12);
  return {vector[0] / length, vector[1] / length, vector[2] / length};
}

/// Gram-Schmidt on CA-C and CA-N.
std::array<Point, 3> backbone_frame(const Point& n, const Point& ca, const Point& c) {
  const Point first = normalized(minus(c, ca));
  const Point to_n = minus(n, ca);
  const double along = dot(first, to_n);
  const Point second = normalized({to_n[0] - along * first[0], to_n[1] - along * first[1], to_n[2] - along * first[2]});
  const Point third = {first[1] * second[2] - first[2] * second[1], first[2] * second[0] - first[0] * second[2],
                       first[0] * second[1] - first[1] * second[0]};
  return {first, second, third};
}

/// Weights of one distance bin: a blend of its neighbours' values, so that similar distances look alike, louder for near pairs.
void fill_bin(std::size_t bin, std::span<const float> independent, std::span<float> weight) {
  constexpr double kBlendWidth = 3.0;   // bins
  constexpr double kDecayLength = 8.0;  // angstrom
  constexpr double kLeastLoudness = 0.15;
  const std::size_t c_z = weight.size();
  std::array<double, kNumBins> share{};
  double squares = 0;
  for (std::size_t k = 0; k < kNumBins; ++k) {
    const double away = (static_cast<double>(k) - static_cast<double>(bin)) / kBlendWidth;
    share[k] = std::exp(-0.5 * away * away);
    squares += share[k] * share[k];
  }
  const double loudness = kLeastLoudness + std::exp(-kBinWidth * (static_cast<double>(bin) + 0.5) / kDecayLength);
  for (std::size_t channel = 0; channel < c_z; ++channel) {
    double sum = 0;
    for (std::size_t k = 0; k < kNumBins; ++k) sum += share[k] * static_cast<double>(independent[k * c_z + channel]);
    weight[channel] = static_cast<float>(loudness * sum / std::sqrt(squares));
  }
}

}  // namespace

std::size_t residue_type_index(std::string_view three_letters) {
  constexpr std::array<std::string_view, 20> kTypes{"ALA", "ARG", "ASN", "ASP", "CYS", "GLN", "GLU", "GLY", "HIS", "ILE",
                                                    "LEU", "LYS", "MET", "PHE", "PRO", "SER", "THR", "TRP", "TYR", "VAL"};
  return static_cast<std::size_t>(std::ranges::find(kTypes, three_letters) - kTypes.begin());
}

std::vector<ResidueFeatures> residue_features(const Structure& structure) {
  std::vector<ResidueFeatures> features;
  for (const Residue& residue : structure.residues) {
    ResidueFeatures entry{.type = residue_type_index(residue.type), .beta = residue.pseudo_beta(), .ca = std::nullopt, .frame = {}};
    if (residue.has_backbone()) {
      entry.ca = residue.ca;
      entry.frame = backbone_frame(*residue.n, *residue.ca, *residue.c);
    }
    features.push_back(entry);
  }
  return features;
}

std::optional<std::size_t> distance_bin(double distance) {
  if (distance <= kFirstBin) return std::nullopt;
  return std::min(kNumBins - 1, static_cast<std::size_t>((distance - kFirstBin) / kBinWidth));
}

Point unit_vector(const ResidueFeatures& i, const ResidueFeatures& j) {
  const Point to_j = minus(*j.ca, *i.ca);
  const Point local{dot(i.frame[0], to_j), dot(i.frame[1], to_j), dot(i.frame[2], to_j)};
  const double length = std::sqrt(dot(local, local) + 1e-6);
  return {local[0] / length, local[1] / length, local[2] / length};
}

FeatureProjection::FeatureProjection(std::size_t c_z, NormalGenerator& random) : c_z_(c_z), weight_(kNumFeatures * c_z) {
  const std::vector<float> independent = random.values(kNumBins * c_z, 1.0);
  for (std::size_t bin = 0; bin < kNumBins; ++bin)
    fill_bin(bin, std::span(independent), std::span(weight_).subspan((kBins + bin) * c_z, c_z));
  const auto fill = [&](std::size_t first, std::size_t count, double standard_deviation) {
    std::ranges::copy(random.values(count * c_z, standard_deviation), weight_.begin() + static_cast<std::ptrdiff_t>(first * c_z));
  };
  fill(kBetaMask, 1, 0.8);
  fill(kTypeOfJ, kNumTypes, 0.05);
  fill(kTypeOfI, kNumTypes, 0.05);
  fill(kUnitVector, 3, 0.1);
  fill(kBackboneMask, 1, 0.8);
}

void FeatureProjection::add_channel(std::size_t feature, double value, float* pair) const {
  const float* row = weight_.data() + feature * c_z_;
  for (std::size_t channel = 0; channel < c_z_; ++channel) pair[channel] += static_cast<float>(value) * row[channel];
}

void FeatureProjection::project(const ResidueFeatures& i, const ResidueFeatures& j, float* pair) const {
  std::fill_n(pair, c_z_, 0.0F);
  add_channel(kTypeOfJ + j.type, 1.0, pair);
  add_channel(kTypeOfI + i.type, 1.0, pair);
  if (i.beta && j.beta) {
    add_channel(kBetaMask, 1.0, pair);
    if (const auto bin = distance_bin(distance(*i.beta, *j.beta))) add_channel(kBins + *bin, 1.0, pair);
  }
  if (i.ca && j.ca) {
    add_channel(kBackboneMask, 1.0, pair);
    const Point direction = unit_vector(i, j);
    for (std::size_t axis = 0; axis < 3; ++axis) add_channel(kUnitVector + axis, direction[axis], pair);
  }
}

}  // namespace trimul::cli
