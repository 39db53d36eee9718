// SPDX-License-Identifier: Apache-2.0
#include "known_answer.hpp"

#include <array>

#include "accuracy.hpp"
#include "failure.hpp"
#include "float_formats.hpp"

namespace trimul::cli {
namespace {

constexpr std::int64_t kTokens = 9;
constexpr std::int64_t kWidth = 32;   // C_z and C
constexpr std::int64_t kStride = 83;  // every 83rd value of out is in the tables

// From tests/cli/known_answer.py, which computes the formula with numpy in float64; a test compares the two.
constexpr std::array kOutgoing{-0.016309283, -0.103418541, 0.767134798,  -0.032510742, -1.617812801, 0.050355737,  0.066133918,
                               0.094446800,  0.745826367,  0.425574707,  -0.054281627, -0.199407210, -0.032274759, 1.966181048,
                               -1.726286253, 0.067644530,  0.489187192,  -0.042695032, 0.625859680,  0.127247461,  0.092782786,
                               -1.741442008, 0.762690030,  -0.618473936, 0.093499899,  0.224814158,  0.579755412,  -0.673742321,
                               0.612216768,  -0.781971533, 0.886326125,  -0.857231353};
constexpr std::array kIncoming{-0.052126329, -0.620998408, 0.980063404,  -0.043864153, -1.698979118, 0.134792702,  -0.435533395,
                               0.429745809,  0.595033499,  0.297901090,  -0.263350861, -0.147040625, -2.467906599, -0.498711249,
                               2.724970856,  -0.026696753, 0.892097846,  -0.016575063, -0.959212871, -1.017153700, 0.149916070,
                               -0.769853815, 0.362358319,  -0.098255950, -0.096778794, -1.027885506, -1.712046764, 0.912335084,
                               -0.080770070, -2.651298710, -0.714506036, -1.023913002};
static_assert(kOutgoing.size() == (kTokens * kTokens * kWidth + kStride - 1) / kStride && kIncoming.size() == kOutgoing.size());

/// Multiples of `scale` from the top bits of a linear congruential generator, exact in bf16 and fp16.
HostTensor fixed_tensor(trimul_dtype dtype, std::uint32_t seed, std::vector<std::int64_t> shape, double scale, double offset = 0.0) {
  HostTensor tensor = allocate_tensor(dtype, std::move(shape));
  std::uint32_t state = seed;
  for (std::int64_t k = 0; k < tensor.elements(); ++k) {
    state = state * 1664525U + 1013904223U;
    store_number(tensor.data.get(), dtype, k, (static_cast<double>(state >> 24) - 128.0) * scale + offset);
  }
  return tensor;
}

HostTensor fixed_mask() {
  HostTensor mask = fixed_tensor(TRIMUL_F32, 99, {kTokens, kTokens}, 1.0);
  for (std::int64_t k = 0; k < mask.elements(); ++k)
    store_number(mask.data.get(), TRIMUL_F32, k, load_number(mask.data.get(), TRIMUL_F32, k) > -64.0 ? 1.0 : 0.0);
  return mask;
}

Inputs fixed_inputs(trimul_dtype dtype) {
  constexpr double kScale = 1.0 / 256;
  Inputs inputs;
  inputs.emplace("x", fixed_tensor(dtype, 1, {kTokens, kTokens, kWidth}, 1.0 / 64));
  inputs.emplace("mask", fixed_mask());
  inputs.emplace("norm_in_weight", fixed_tensor(TRIMUL_F32, 2, {kWidth}, kScale, 1.0));
  inputs.emplace("norm_in_bias", fixed_tensor(TRIMUL_F32, 3, {kWidth}, kScale));
  inputs.emplace("p_in_weight", fixed_tensor(dtype, 4, {2 * kWidth, kWidth}, kScale));
  inputs.emplace("p_in_bias", fixed_tensor(TRIMUL_F32, 5, {2 * kWidth}, kScale));
  inputs.emplace("g_in_weight", fixed_tensor(dtype, 6, {2 * kWidth, kWidth}, kScale));
  inputs.emplace("g_in_bias", fixed_tensor(TRIMUL_F32, 7, {2 * kWidth}, kScale));
  inputs.emplace("norm_out_weight", fixed_tensor(TRIMUL_F32, 8, {kWidth}, kScale, 1.0));
  inputs.emplace("norm_out_bias", fixed_tensor(TRIMUL_F32, 9, {kWidth}, kScale));
  inputs.emplace("p_out_weight", fixed_tensor(dtype, 10, {kWidth, kWidth}, kScale));
  inputs.emplace("p_out_bias", fixed_tensor(TRIMUL_F32, 11, {kWidth}, kScale));
  inputs.emplace("g_out_weight", fixed_tensor(dtype, 12, {kWidth, kWidth}, kScale));
  inputs.emplace("g_out_bias", fixed_tensor(TRIMUL_F32, 13, {kWidth}, kScale));
  return inputs;
}

}  // namespace

ProblemLine known_answer_problem(trimul_direction direction, trimul_dtype dtype) {
  return {.batch = 1,
          .tokens = kTokens,
          .c_z = kWidth,
          .c_hidden = kWidth,
          .dtype = dtype,
          .direction = direction,
          .mask = MaskKind::kRandom,
          .bias = BiasKind::kAll};
}

CheckResult check_known_answer(const ProblemLine& line, const std::string& implementation, const std::vector<trimul_device>& devices) {
  CheckResult result{.implementation = implementation, .reason = "", .kernel_error = {}, .kernel_bound = {}};
  result.is_sampled = true;
  // So few values scatter around the RMS that the bounds are about.
  result.bound = 2.0 * bounds_of(implementation, line).to_none;
  const Inputs inputs = fixed_inputs(line.dtype);
  const Contender contender(line, inputs, implementation, devices);
  try {
    contender.execute();
    const auto& table = line.direction == TRIMUL_OUTGOING ? kOutgoing : kIncoming;
    const void* out = contender.out();
    std::vector<double> got;
    for (std::size_t k = 0; k < table.size(); ++k)
      got.push_back(load_number(out, contender.out_dtype(), static_cast<std::int64_t>(k) * kStride));
    const ErrorFigures figures = compare(got, {table.begin(), table.end()});
    result.error = figures.relative_rms;
    result.reason = figures.mismatch;
    if (result.reason.empty() && !(result.error <= result.bound))
      result.reason = fmt::format("relative RMS error to the known answer is {:.3e}, expected at most {:.3e}", result.error, result.bound);
  } catch (const Failure& failure) {
    if (failure.exit_code() == kDevice) throw;
    result.reason = failure.what();
  }
  if (!result.reason.empty()) result.status = CheckResult::Status::kFailed;
  return result;
}

}  // namespace trimul::cli
