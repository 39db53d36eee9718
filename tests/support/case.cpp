// SPDX-License-Identifier: Apache-2.0
#include "support/case.hpp"

#include <cmath>
#include <cstdlib>
#include <sstream>

#include "support/random.hpp"

namespace trimul::testing {
namespace {

struct ParameterInfo {
  const char* name;
  const trimul_tensor* trimul_parameters::*slot;
};
constexpr std::array<ParameterInfo, kNumParameters> kParameters{{
    {"norm_in_weight", &trimul_parameters::norm_in_weight},
    {"norm_in_bias", &trimul_parameters::norm_in_bias},
    {"p_in_weight", &trimul_parameters::p_in_weight},
    {"p_in_bias", &trimul_parameters::p_in_bias},
    {"g_in_weight", &trimul_parameters::g_in_weight},
    {"g_in_bias", &trimul_parameters::g_in_bias},
    {"norm_out_weight", &trimul_parameters::norm_out_weight},
    {"norm_out_bias", &trimul_parameters::norm_out_bias},
    {"p_out_weight", &trimul_parameters::p_out_weight},
    {"p_out_bias", &trimul_parameters::p_out_bias},
    {"g_out_weight", &trimul_parameters::g_out_weight},
    {"g_out_bias", &trimul_parameters::g_out_bias},
}};

Sizes parameter_sizes(ParameterId id, std::int64_t c_z, std::int64_t c) {
  switch (id) {
    case kNormInWeight:
    case kNormInBias:
    case kPOutBias:
    case kGOutBias: return {c_z};
    case kPInWeight:
    case kGInWeight: return {2 * c, c_z};
    case kPInBias:
    case kGInBias: return {2 * c};
    case kPOutWeight: return {c_z, c};
    case kGOutWeight: return {c_z, c_z};
    default: return {c};
  }
}

/// Row strides of a mask form over `sizes`, which are what the C call sees.
Sizes mask_strides(MaskForm form, const Sizes& sizes, std::int64_t n) {
  Sizes strides = contiguous_strides(sizes);
  const std::size_t rank = sizes.size();
  switch (form) {
    case MaskForm::kTransposed: std::swap(strides[rank - 1], strides[rank - 2]); break;
    case MaskForm::kExpanded:
      for (std::size_t d = 0; d + 2 < rank; ++d) strides[d] = 0;
      break;
    case MaskForm::kReversed:
      strides[rank - 1] = -1;
      strides[rank - 2] = -n;
      break;
    case MaskForm::kSpread:
      for (std::int64_t& stride : strides) stride *= 3;
      break;
    default: break;
  }
  return strides;
}

bool is_integer(DType dtype) {
  return !core::is_floating(dtype);
}

}  // namespace

std::uint64_t base_seed() {
  const char* text = std::getenv("TRIMUL_TEST_SEED");
  return text != nullptr && *text != '\0' ? std::strtoull(text, nullptr, 10) : 20261130U;
}
std::uint64_t Spec::base_seed_default() {
  return base_seed();
}

const char* mask_kind_name(MaskKind kind) {
  constexpr std::array names{"no mask", "random 0/1 mask", "padded mask", "fractional mask", "all-zero mask", "one-token-off mask"};
  return names[static_cast<std::size_t>(kind)];
}
const char* mask_form_name(MaskForm form) {
  constexpr std::array names{"full", "shared", "trailing one", "transposed", "expanded", "reversed", "spread"};
  return names[static_cast<std::size_t>(form)];
}

std::string describe(const Spec& spec) {
  std::ostringstream line;
  line << "x [";
  for (const std::int64_t size : spec.lead) line << size << ", ";
  line << spec.n << ", " << spec.n << ", " << spec.c_z << "] C=" << spec.c << ' ' << core::dtype_name(spec.x_dtype)
       << (spec.direction == TRIMUL_OUTGOING ? " outgoing" : " incoming") << " precision=" << spec.precision << " eps=" << spec.eps << ", "
       << mask_kind_name(spec.mask);
  if (spec.mask != MaskKind::kNone) line << " (" << core::dtype_name(spec.mask_dtype) << ", " << mask_form_name(spec.mask_form) << ")";
  line << ", weights " << (spec.mixed_weights ? "mixed" : core::dtype_name(spec.weight_dtype.value_or(spec.x_dtype)))
       << ", absent parameters 0x" << std::hex << spec.absent << std::dec << (spec.residual ? ", residual" : "") << ", offset "
       << spec.offset << ", x ~ " << spec.x_mean << " +- " << spec.x_std << ", seed " << spec.seed;
  return line.str();
}

Case::Case(const Spec& given) : spec(given) {
  // At N = 1 the last two sizes of [B, 1, 1, 1] are N, N already: taken as is, its B would be one dimension too far left.
  if (spec.n == 1 && spec.mask_form == MaskForm::kTrailingOne) spec.mask_form = MaskForm::kFull;
  Random random(spec.seed);
  Sizes sizes = spec.lead;
  sizes.insert(sizes.end(), {spec.n, spec.n, spec.c_z});
  x = HostTensor(spec.x_dtype, sizes, spec.offset);
  x.fill([&] { return random.normal() * spec.x_std + spec.x_mean; });
  if (spec.mask != MaskKind::kNone) make_mask();
  make_parameters();
}

void Case::make_mask() {
  Random random(spec.seed + 1);
  const std::int64_t n = spec.n;
  Sizes sizes = spec.mask_form == MaskForm::kShared ? Sizes{} : spec.lead;
  sizes.insert(sizes.end(), {n, n});
  if (spec.mask_form == MaskForm::kTrailingOne) sizes.push_back(1);
  mask.emplace(spec.mask_dtype, sizes, mask_strides(spec.mask_form, sizes, n), spec.offset);
  const std::int64_t samples = spec.mask_form == MaskForm::kShared || spec.mask_form == MaskForm::kExpanded ? 1 : spec.batch();
  for (std::int64_t b = 0; b < samples; ++b) {
    // Rows and columns end at different tokens, so that a transposed mask is another mask.
    const std::int64_t rows = random.integer((n + 1) / 2, n);
    const std::int64_t columns = n > 1 && rows == n ? n - 1 : random.integer((n + 1) / 2, n);
    const std::int64_t off = random.integer(0, n - 1);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double value = 1.0;
        switch (spec.mask) {
          case MaskKind::kRandom01: value = random.coin(0.7) ? 1.0 : 0.0; break;
          case MaskKind::kPadded: value = i < rows && j < columns ? 1.0 : 0.0; break;
          case MaskKind::kFractional:
            // Negative, above 1, and exact zeros as well. Integer masks take whole numbers of both signs.
            value = random.coin(0.15) ? 0.0 : random.uniform(-1.5, 2.5);
            if (is_integer(spec.mask_dtype)) value = static_cast<double>(random.integer(spec.mask_dtype == DType::kU8 ? 0 : -2, 3));
            break;
          case MaskKind::kAllZero: value = 0.0; break;
          case MaskKind::kOneTokenOff: value = i == off ? 0.0 : 1.0; break;
          case MaskKind::kNone: break;
        }
        set_mask(b, i, j, value);
      }
  }
}

void Case::make_parameters() {
  constexpr std::array kDTypes{DType::kF32, DType::kBf16, DType::kF64, DType::kF16};
  for (unsigned k = 0; k < kNumParameters; ++k) {
    const auto id = static_cast<ParameterId>(k);
    if ((spec.absent & bit(id)) != 0) continue;
    Random random(spec.seed + 2 + k);
    const DType dtype = spec.mixed_weights ? kDTypes[(k + spec.seed) % kDTypes.size()] : spec.weight_dtype.value_or(spec.x_dtype);
    const Sizes sizes = parameter_sizes(id, spec.c_z, spec.c);
    HostTensor& tensor = parameters[k].emplace(dtype, sizes, spec.offset);
    const bool is_norm_weight = id == kNormInWeight || id == kNormOutWeight;
    const double scale = sizes.size() == 2 ? 1.0 / std::sqrt(static_cast<double>(sizes[1])) : 0.3;
    tensor.fill([&] { return (is_norm_weight ? 1.0 : 0.0) + random.normal() * scale * (id == kPInWeight ? spec.in_scale : 1.0); });
  }
}

Sizes Case::lead_index(std::int64_t sample) const {
  Sizes index(spec.lead.size());
  for (std::size_t d = spec.lead.size(); d-- > 0; sample /= spec.lead[d]) index[d] = sample % spec.lead[d];
  return index;
}

Sizes Case::mask_index(std::int64_t b, std::int64_t i, std::int64_t j) const {
  Sizes index = spec.mask_form == MaskForm::kShared ? Sizes{} : lead_index(b);
  index.insert(index.end(), {i, j});
  if (spec.mask_form == MaskForm::kTrailingOne) index.push_back(0);
  return index;
}

double Case::mask_at(std::int64_t b, std::int64_t i, std::int64_t j) const {
  return mask ? mask->at(mask_index(b, i, j)) : 1.0;
}

void Case::set_mask(std::int64_t b, std::int64_t i, std::int64_t j, double value) {
  mask->set(mask_index(b, i, j), value);
}

void Case::set_x(std::int64_t b, std::int64_t i, std::int64_t j, std::int64_t k, double value) {
  Sizes index = lead_index(b);
  index.insert(index.end(), {i, j, k});
  x.set(index, value);
}

trimul_problem Case::problem() const {
  trimul_problem problem = TRIMUL_PROBLEM_INIT;
  problem.batch = spec.batch();
  problem.tokens = spec.n;
  problem.c_z = spec.c_z;
  problem.c_hidden = spec.c;
  problem.direction = spec.direction;
  problem.x_dtype = static_cast<std::int32_t>(spec.x_dtype);
  problem.precision = spec.precision;
  problem.eps = spec.eps;
  problem.has_mask = mask.has_value() ? 1 : 0;
  problem.has_in_bias = parameters[kPInBias] || parameters[kGInBias] ? 1 : 0;
  problem.has_out_bias = parameters[kPOutBias] || parameters[kGOutBias] ? 1 : 0;
  problem.residual = spec.residual ? 1 : 0;
  return problem;
}

std::vector<std::byte> Case::input_bytes() const {
  std::vector<std::byte> all = x.buffer().copy();
  const auto append = [&all](const std::optional<HostTensor>& tensor) {
    if (!tensor) return;
    const auto bytes = tensor->buffer().copy();
    all.insert(all.end(), bytes.begin(), bytes.end());
  };
  append(mask);
  for (const auto& parameter : parameters) append(parameter);
  return all;
}

bool Case::guards_are_intact() const {
  bool intact = x.buffer().guards_are_intact() && (!mask || mask->buffer().guards_are_intact());
  for (const auto& parameter : parameters) intact = intact && (!parameter || parameter->buffer().guards_are_intact());
  return intact;
}

Case sample_of(const Case& batch, std::int64_t b) {
  Spec spec = batch.spec;
  spec.lead = {};
  Case alone(spec);
  const std::size_t bytes = static_cast<std::size_t>(alone.x.elements()) * core::dtype_bytes(spec.x_dtype);
  std::memcpy(alone.x.buffer().data(), batch.x.buffer().data() + static_cast<std::size_t>(b) * bytes, bytes);
  for (std::int64_t i = 0; i < spec.n; ++i)
    for (std::int64_t j = 0; j < spec.n; ++j) alone.set_mask(0, i, j, batch.mask_at(b, i, j));
  return alone;
}

Bound::Bound(const Case& data) : x(data.x.view()), has_mask(data.mask.has_value()) {
  if (has_mask) mask = data.mask->view();
  for (unsigned k = 0; k < kNumParameters; ++k) {
    if (!data.parameters[k]) continue;
    tensors[k] = data.parameters[k]->view();
    slot(parameters, static_cast<ParameterId>(k)) = &tensors[k];
  }
}

trimul_update_args Bound::update_args(const Case& data) const {
  trimul_update_args args = TRIMUL_UPDATE_ARGS_INIT;
  args.x = &x;
  args.mask = mask_or_null();
  args.parameters = &parameters;
  args.direction = data.spec.direction;
  args.precision = data.spec.precision;
  args.eps = data.spec.eps;
  args.residual = data.spec.residual ? 1 : 0;
  return args;
}

const trimul_tensor*& slot(trimul_parameters& parameters, ParameterId id) {
  return parameters.*kParameters[id].slot;
}
const char* parameter_name(ParameterId id) {
  return kParameters[id].name;
}

}  // namespace trimul::testing
