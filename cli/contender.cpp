// SPDX-License-Identifier: Apache-2.0
#include "contender.hpp"

#include <cmath>

#include "accuracy.hpp"
#include "float_formats.hpp"
#include "narrow_rule.hpp"
#include "options.hpp"
#include "plan_choice.hpp"

namespace trimul::cli {
namespace {

/// Index of the first value that is not finite, or -1. Inputs are finite, so every output must be: cells that no sample looks at
/// are at least known to have been written.
std::int64_t first_not_finite(const void* data, trimul_dtype dtype, std::int64_t count) {
  for (std::int64_t k = 0; k < count; ++k)
    if (!std::isfinite(load_number(data, dtype, k))) return k;
  return -1;
}

std::string describe_error(const ErrorFigures& figures, double bound, const char* to) {
  return fmt::format("{} RMS error to the reference ({}) is {:.3e}, expected at most {:.3e}", figures.is_absolute ? "absolute" : "relative",
                     to, figures.relative_rms, bound);
}

/// Fills in error figures; returns what is wrong, or nothing.
std::string judge(CheckResult& result, const std::vector<double>& got, const ProblemLine& line, Oracle& oracle) {
  const ErrorFigures to_none = compare(got, oracle.none());
  const Bounds bounds = bounds_of(result.implementation, line);
  const bool narrow = line.c_hidden < kNarrowWidth && line.dtype != TRIMUL_F64;
  result.error = to_none.relative_rms;
  const bool on_gpu = is_for_gpus(result.implementation);
  const Products products = products_of(on_gpu, line.dtype, line.precision);
  const std::vector<double>* const kernel = narrow && on_gpu ? &oracle.kernel() : nullptr;
  result.bound = narrow ? narrow_bound(oracle.plain(products), kernel, oracle.none()) : bounds.to_none;
  if (!to_none.mismatch.empty()) return to_none.mismatch;
  if (!(result.error <= result.bound)) return describe_error(to_none, result.bound, "without rounding points");
  if (narrow) return judge_narrow_cells(got, oracle.none(), oracle.plain(products), kernel);
  if (!bounds.to_kernel) return "";
  const ErrorFigures to_kernel = compare(got, oracle.kernel());
  result.kernel_error = to_kernel.relative_rms;
  result.kernel_bound = bounds.to_kernel;
  if (!(to_kernel.relative_rms <= *bounds.to_kernel))
    return describe_error(to_kernel, *bounds.to_kernel, "with the kernels' rounding points");
  return judge_cells(got, oracle.kernel());
}

}  // namespace

Contender::Contender(const ProblemLine& line, const Inputs& inputs, const std::string& implementation,
                     const std::vector<trimul_device>& devices)
    : implementation_(implementation), choice_(choose_plan(problem_of(inputs, settings_of(line)), devices, implementation)) {
  check(trimul_problem_out_dtype(&choice_.problem, &out_dtype_));
  const auto out_elements = static_cast<std::size_t>(line.batch * line.tokens * line.tokens * line.c_z);
  out_ = std::make_unique<GuardedBuffer>(device(), out_elements * trimul_dtype_bytes(out_dtype_));
  workspace_ = std::make_unique<GuardedBuffer>(device(), trimul_plan_workspace_bytes(plan()));
  const CallMemory memory{.out = out_->data(), .out_dtype = out_dtype_, .workspace = workspace_->data()};
  call_ = std::make_unique<BoundCall>(choice_, inputs, memory);
}

CheckResult check_contender(const Contender& contender, const ProblemLine& line, Oracle& oracle) {
  CheckResult result{.implementation = contender.implementation(), .reason = "", .kernel_error = {}, .kernel_bound = {}};
  result.is_sampled = oracle.is_sampled();
  try {
    contender.execute();
    const std::int64_t count = line.batch * line.tokens * line.tokens * line.c_z;
    const void* out = contender.out();
    const std::int64_t bad = first_not_finite(out, contender.out_dtype(), count);
    result.reason = judge(result, oracle.select(out, contender.out_dtype()), line, oracle);
    if (bad >= 0) result.reason = fmt::format("element {} of out is not finite (or was not written)", bad);
    if (!contender.guard_bands_are_intact()) result.reason = "wrote outside out or the workspace";
  } catch (const Failure& failure) {
    if (failure.exit_code() == kDevice) throw;
    result.reason = failure.what();
  }
  if (!result.reason.empty()) result.status = CheckResult::Status::kFailed;
  return result;
}

std::optional<std::string> reason_to_decline(const std::string& implementation, const ProblemLine& line,
                                             const std::vector<trimul_device>& devices) {
  std::optional<std::string> declined;
  trimul_problem problem = problem_of(line);
  for (const trimul_device& device : devices) {
    problem.device = device;
    const char* reason = nullptr;
    check(trimul_implementation_can_run(implementation.c_str(), &problem, nullptr, &reason));
    if (reason == nullptr) return std::nullopt;
    if (!declined || !is_for_gpus(implementation)) declined = reason;
  }
  return declined;
}

std::optional<std::string> reason_to_skip(const std::string& implementation, const ProblemLine& line,
                                          const std::vector<trimul_device>& devices) {
  constexpr double kMostMultiplyAdds = 2e10;  // some ten seconds on two cores
  if (auto declined = reason_to_decline(implementation, line, devices)) return declined;
  if (implementation != "reference" || multiply_adds(line) <= kMostMultiplyAdds) return std::nullopt;
  return fmt::format("more than {:.0e} multiply-adds in fp64 loops; --impl reference insists", kMostMultiplyAdds);
}

std::vector<std::string> requested_implementations(const std::string& requested) {
  if (!requested.empty() && requested != "all") {
    check_implementation_name(requested);
    return {requested};
  }
  std::vector<std::string> names;
  for (std::size_t k = 0; k < trimul_implementation_count(); ++k) names.emplace_back(trimul_implementation_name(k));
  return names;
}

}  // namespace trimul::cli
