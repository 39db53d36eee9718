// SPDX-License-Identifier: Apache-2.0
// One problem with its inputs: everything random and non-zero, so that no operand can be confused with another unnoticed.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/host_tensor.hpp"
#include "trimul/trimul.h"

namespace trimul::testing {

/// The twelve parameters in the operator's order.
enum ParameterId : unsigned {
  kNormInWeight,
  kNormInBias,
  kPInWeight,
  kPInBias,
  kGInWeight,
  kGInBias,
  kNormOutWeight,
  kNormOutBias,
  kPOutWeight,
  kPOutBias,
  kGOutWeight,
  kGOutBias,
  kNumParameters
};
constexpr unsigned bit(ParameterId id) {
  return 1U << id;
}
/// The four projection biases, and the four LayerNorm vectors.
inline constexpr unsigned kProjectionBiases = bit(kPInBias) | bit(kGInBias) | bit(kPOutBias) | bit(kGOutBias);
inline constexpr unsigned kNormVectors = bit(kNormInWeight) | bit(kNormInBias) | bit(kNormOutWeight) | bit(kNormOutBias);

enum class MaskKind { kNone, kRandom01, kPadded, kFractional, kAllZero, kOneTokenOff };
inline constexpr std::array kAllMaskKinds{MaskKind::kNone,       MaskKind::kRandom01, MaskKind::kPadded,
                                          MaskKind::kFractional, MaskKind::kAllZero,  MaskKind::kOneTokenOff};
const char* mask_kind_name(MaskKind kind);

enum class MaskForm {
  kFull,         // [..., N, N]
  kShared,       // [N, N] for every sample
  kTrailingOne,  // [..., N, N, 1]
  kTransposed,   // [..., N, N] whose second token dimension is the slow one in memory
  kExpanded,     // [..., N, N] with stride 0 over the samples
  kReversed,     // [..., N, N] with negative token strides
  kSpread        // [..., N, N] that skips elements in memory
};
inline constexpr std::array kAllMaskForms{MaskForm::kFull,     MaskForm::kShared,   MaskForm::kTrailingOne, MaskForm::kTransposed,
                                          MaskForm::kExpanded, MaskForm::kReversed, MaskForm::kSpread};
const char* mask_form_name(MaskForm form);

struct Spec {
  Sizes lead = {};  // x's leading dimensions
  std::int64_t n = 5;
  std::int64_t c_z = 32;
  std::int64_t c = 32;
  DType x_dtype = DType::kF32;
  std::int32_t direction = TRIMUL_OUTGOING;
  std::int32_t precision = TRIMUL_PRECISION_DEFAULT;
  float eps = 1e-5F;
  MaskKind mask = MaskKind::kRandom01;
  MaskForm mask_form = MaskForm::kFull;
  DType mask_dtype = DType::kF32;
  unsigned absent = 0;                     // bits of parameters that are not given
  std::optional<DType> weight_dtype = {};  // nothing: x's dtype
  bool mixed_weights = false;              // every parameter another dtype
  bool residual = false;
  std::int64_t offset = 0;  // elements that every tensor lies off a 256-byte boundary
  double x_mean = 0.2;
  double x_std = 1.3;
  double in_scale = 1.0;  // factor on p_in_weight: y grows with its square
  std::uint64_t seed = base_seed_default();

  [[nodiscard]] std::int64_t batch() const { return product(lead); }
  static std::uint64_t base_seed_default();
};
/// For tests of what surrounds the arithmetic.
const inline Spec kSmall{.n = 3, .c_z = 8, .c = 6};
/// One line that repeats the case: sizes, dtypes, mask, seed.
std::string describe(const Spec& spec);

class Case {
 public:
  explicit Case(const Spec& spec);

  Spec spec;
  HostTensor x;
  std::optional<HostTensor> mask;
  std::array<std::optional<HostTensor>, kNumParameters> parameters;

  [[nodiscard]] DType out_dtype() const { return spec.precision == TRIMUL_PRECISION_BF16 ? DType::kBf16 : spec.x_dtype; }
  [[nodiscard]] std::int64_t num_outputs() const { return x.elements(); }
  [[nodiscard]] trimul_problem problem() const;
  /// Mask value of sample b at (i, j); 1 without a mask.
  [[nodiscard]] double mask_at(std::int64_t b, std::int64_t i, std::int64_t j) const;
  void set_mask(std::int64_t b, std::int64_t i, std::int64_t j, double value);
  void set_x(std::int64_t b, std::int64_t i, std::int64_t j, std::int64_t k, double value);
  /// Every byte of the inputs, to see that a call leaves them alone.
  [[nodiscard]] std::vector<std::byte> input_bytes() const;
  [[nodiscard]] bool guards_are_intact() const;

 private:
  void make_mask();
  void make_parameters();
  [[nodiscard]] Sizes lead_index(std::int64_t sample) const;
  [[nodiscard]] Sizes mask_index(std::int64_t b, std::int64_t i, std::int64_t j) const;
};

/// Sample b of a batch as a case of its own: its x and mask, the same parameters.
Case sample_of(const Case& batch, std::int64_t b);

/// The C structs of a case. They point into it and into themselves: neither may move.
class Bound {
 public:
  explicit Bound(const Case& data);
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;

  trimul_tensor x{};
  trimul_tensor mask{};
  bool has_mask = false;
  std::array<trimul_tensor, kNumParameters> tensors{};
  trimul_parameters parameters = TRIMUL_PARAMETERS_INIT;
  [[nodiscard]] const trimul_tensor* mask_or_null() const { return has_mask ? &mask : nullptr; }
  /// A one-call update without `out`.
  [[nodiscard]] trimul_update_args update_args(const Case& data) const;
};

/// The slot of parameter `id` in the C struct.
const trimul_tensor*& slot(trimul_parameters& parameters, ParameterId id);
const char* parameter_name(ParameterId id);

}  // namespace trimul::testing
