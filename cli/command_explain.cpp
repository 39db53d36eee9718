// SPDX-License-Identifier: Apache-2.0
// trimul explain: which implementation serves a problem, how, and why the others do not. Computes nothing.
#include "commands.hpp"
#include "failure.hpp"
#include "options.hpp"
#include "plan_choice.hpp"

namespace trimul::cli {
namespace {

struct ExplainOptions {
  std::string shape;
  std::string dtype = "bf16";
  std::string direction = "outgoing";
  std::string precision = "default";
  std::string device = "auto";
  std::string arch;
  bool json = false;
};

struct Explanation {
  PlanChoice choice;  // plan is empty when nothing serves
  std::vector<Rejected> rejected;
  std::string device;
  std::string refusal;  // why nothing serves
};

Explanation explain(const ExplainOptions& options) {
  trimul_problem problem = parse_shape(options.shape);
  problem.x_dtype = parse_float_dtype(options.dtype);
  problem.direction = parse_direction(options.direction);
  problem.precision = parse_precision(options.precision);
  problem.has_mask = 0;
  // With an architecture, the device is any GPU of that kind, whether or not this machine has one.
  const auto devices =
      options.arch.empty() ? candidate_devices(parse_device(options.device)) : std::vector<trimul_device>{{TRIMUL_CUDA, 0}};
  Explanation explanation;
  explanation.choice.problem = problem;
  explanation.choice.problem.device = devices.back();
  try {
    explanation.choice = choose_plan(problem, devices, "", options.arch);
  } catch (const Failure& failure) {
    if (failure.exit_code() != kUnsupported) throw;
    explanation.refusal = failure.what();
  }
  explanation.rejected = rejections(explanation.choice.problem, options.arch);
  explanation.device = options.arch.empty() ? device_name(explanation.choice.problem.device) : options.arch;
  return explanation;
}

void print_explanation(const Explanation& explanation, const ExplainOptions& options) {
  const trimul_plan* plan = explanation.choice.plan.get();
  if (options.json) {
    auto json = plan_json(explanation.choice, explanation.rejected, explanation.device);
    json["flop"] = json["explain"] = nullptr;
    if (plan != nullptr) json["flop"] = trimul_plan_flop(plan);
    if (plan != nullptr) json["explain"] = trimul_plan_explain(plan);
    print_json(json);
    return;
  }
  if (plan != nullptr) fmt::print("{}", trimul_plan_explain(plan));
  // The plan lists those before the chosen one; the user gets all.
  const std::string listed = plan == nullptr ? "" : trimul_plan_explain(plan);
  for (const Rejected& entry : explanation.rejected) {
    const std::string line = fmt::format("declined {}: {}\n", entry.name, entry.reason);
    if (listed.find(line) == std::string::npos) fmt::print("{}", line);
  }
}

}  // namespace

void add_explain_command(CLI::App& app) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command = app.add_subcommand("explain", "Which implementation serves a problem, with what, and why not a better one");
  command->add_option("--shape", options->shape, "batch, tokens, pair width, hidden width")->required()->type_name("B,N,C_z,C");
  command->add_option("--dtype", options->dtype, "dtype of x: bf16, fp16, fp32 or fp64")->capture_default_str()->type_name("T");
  command->add_option("--direction", options->direction, "outgoing or incoming")->capture_default_str()->type_name("D");
  command->add_option("--precision", options->precision, "as in trimul run")->capture_default_str()->type_name("P");
  CLI::Option* device =
      command->add_option("--device", options->device, "auto, cpu, cuda or cuda:INDEX")->capture_default_str()->type_name("DEV");
  command->add_option("--arch", options->arch, "a GPU architecture instead of a device: sm80, sm86, sm89, sm90, sm100 or sm120")
      ->excludes(device)
      ->type_name("ARCH");
  command->add_flag("--json", options->json, "print one JSON object");
  command->callback([options] {
    const Explanation explanation = explain(*options);
    print_explanation(explanation, *options);
    if (explanation.choice.plan == nullptr) throw Failure(kUnsupported, explanation.refusal);
  });
}

}  // namespace trimul::cli
