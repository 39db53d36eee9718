// SPDX-License-Identifier: Apache-2.0
// trimul verify: does every implementation compute the right numbers on this machine?
#include <random>
#include <set>

#include "commands.hpp"
#include "contender.hpp"
#include "failure.hpp"
#include "known_answer.hpp"
#include "options.hpp"
#include "plan_choice.hpp"
#include "progress.hpp"
#include "standard_streams.hpp"

namespace trimul::cli {
namespace {

struct VerifyOptions {
  std::string device = "auto";
  std::string implementation = "all";
  std::string shapes;
  std::string seed;
  bool json = false;
};

/// Without --shapes: what models use, tails of every kind, every mask, bias and dtype; seconds in all.
constexpr const char* kBuiltInProblems[] = {
    "1 1 32 32 fp32 outgoing",
    "1 2 128 128 bf16 incoming random all",
    "2 9 32 32 fp32 incoming random",
    "2 17 64 128 fp16 outgoing fractional p_in",
    "3 33 48 48 bf16 outgoing padded g_in residual",
    "1 40 96 160 fp32 incoming one_off p_out",
    "1 31 384 256 fp16 incoming random g_out residual",
    "2 23 40 24 bf16 outgoing random all",
    "1 19 7 5 fp32 incoming fractional all residual",
    "2 16 128 128 bf16 outgoing zero",
    "1 16 64 64 fp32 incoming zero all",
    "1 12 32 32 fp64 outgoing random all",
    "1 64 128 128 bf16 outgoing",
    "1 65 128 128 bf16 incoming random",
    "1 97 128 128 fp32 outgoing random all",
    "1 101 64 64 fp16 incoming padded",
    "1 129 64 64 bf16 outgoing one_off all residual",
    "1 65 64 128 fp32 incoming random tf32",
    "2 33 48 48 fp32 outgoing fractional all ieee",
    "1 40 128 64 fp32 outgoing padded p_in bfloat16",
    "1 27 256 256 bf16 incoming random g_out ieee",
    "1 19 7 5 fp32 outgoing random all tf32",
};

struct Outcome {
  std::string problem;
  CheckResult check;
};

const char* status_word(CheckResult::Status status) {
  switch (status) {
    case CheckResult::Status::kPassed: return "passed";
    case CheckResult::Status::kFailed: return "failed";
    case CheckResult::Status::kSkipped: return "skipped";
  }
  return "unknown";
}

/// Runs checks and collects what came of them.
class Session {
 public:
  explicit Session(const VerifyOptions& options)
      : json_(options.json),
        forced_(options.implementation != "all"),
        devices_(candidate_devices(parse_device(options.device))),
        implementations_(requested_implementations(options.implementation)),
        seed_(options.seed.empty() ? std::random_device{}() : static_cast<std::uint64_t>(parse_count("--seed", options.seed, 0))) {
    if (!json_) fmt::print("seed {}\n", seed_);
  }

  void known_answers() {
    for (const trimul_direction direction : {TRIMUL_OUTGOING, TRIMUL_INCOMING})
      for (const trimul_dtype dtype : {TRIMUL_BF16, TRIMUL_F16, TRIMUL_F32}) {
        const ProblemLine line = known_answer_problem(direction, dtype);
        for (const std::string& name : implementations_)
          record(fmt::format("known answer, {} {}", trimul_dtype_name(dtype), direction_name(direction)), name, [&] {
            if (const auto reason = reason_to_decline(name, line, devices_)) throw Failure(kUnsupported, *reason);
            return check_known_answer(line, name, devices_);
          });
      }
  }

  void problems(const std::vector<ProblemLine>& lines) {
    Progress progress("verifying");
    for (std::size_t k = 0; k < lines.size(); ++k) {
      progress.set_label(fmt::format("verifying problem {} of {}: {}", k + 1, lines.size(), format_problem_line(lines[k])));
      problem(lines[k], seed_ + k);
    }
  }

  int report(const std::string& device) const {
    int counts[3] = {};
    for (const Outcome& outcome : outcomes_) ++counts[static_cast<int>(outcome.check.status)];
    if (json_)
      print_json(to_json(device, counts));
    else
      fmt::print("{} passed, {} failed, {} skipped\n", counts[0], counts[1], counts[2]);
    // Nothing checked is not a pass.
    if (counts[0] + counts[1] == 0)
      fail(kUnsupported, "no problem was served by {}: {}", outcomes_.front().check.implementation, outcomes_.front().check.reason);
    return counts[1];
  }

 private:
  void problem(const ProblemLine& line, std::uint64_t seed) {
    std::optional<Inputs> inputs;
    std::optional<Oracle> oracle;
    for (const std::string& name : implementations_)
      record(format_problem_line(line), name, [&] {
        const auto reason = forced_ ? reason_to_decline(name, line, devices_) : reason_to_skip(name, line, devices_);
        if (reason) throw Failure(kUnsupported, *reason);
        if (!inputs) inputs = random_inputs(line, seed);
        const Contender contender(line, *inputs, name, devices_);
        if (!oracle) oracle.emplace(line, *inputs, seed);
        return check_contender(contender, line, *oracle);
      });
  }

  /// A decline is a skip with its reason, a bug a failed check. Invalid input and a lack of memory say nothing about an implementation and
  /// end the command.
  template <typename Check>
  void record(const std::string& problem, const std::string& implementation, const Check& check) {
    CheckResult result{.implementation = implementation, .reason = "", .kernel_error = {}, .kernel_bound = {}};
    try {
      result = check();
    } catch (const Failure& failure) {
      if (failure.exit_code() == kInvalid) throw;
      if (failure.exit_code() == kDevice) throw Failure(kDevice, fmt::format("{}, {}: {}", problem, implementation, failure.what()));
      result.status = failure.exit_code() == kUnsupported ? CheckResult::Status::kSkipped : CheckResult::Status::kFailed;
      result.reason = failure.what();
    } catch (const std::bad_alloc&) {
      fail(kDevice, "{}, {}: host memory: an allocation failed", problem, implementation);
    }
    if (!json_) print(problem, result);
    outcomes_.push_back({problem, std::move(result)});
  }

  void print(const std::string& problem, const CheckResult& result) {
    if (result.status == CheckResult::Status::kSkipped) {
      // An implementation that is absent skips every problem for one reason, which is said once.
      const std::string line = fmt::format("skipped  {:<10} {}", result.implementation, one_line(result.reason));
      if (printed_skips_.insert(line).second) fmt::print("{} (from here on)\n", line);
    } else {
      fmt::print("{:<8} {:<10} {:<48} error {:.2e}, bound {:.2e}", status_word(result.status), result.implementation, problem, result.error,
                 result.bound);
      if (result.kernel_error) fmt::print("; to the kernels' rounding {:.2e}, bound {:.2e}", *result.kernel_error, *result.kernel_bound);
      fmt::print("{}{}{}\n", result.is_sampled ? " (sampled)" : "", result.reason.empty() ? "" : ": ", one_line(result.reason));
    }
    flush_output();
  }

  nlohmann::ordered_json to_json(const std::string& device, const int (&counts)[3]) const {
    nlohmann::ordered_json json{{"device", device},    {"seed", seed_},        {"passed", counts[0]},
                                {"failed", counts[1]}, {"skipped", counts[2]}, {"results", nlohmann::ordered_json::array()}};
    for (const auto& [problem, check] : outcomes_) {
      nlohmann::ordered_json entry{{"problem", problem}, {"implementation", check.implementation}, {"status", status_word(check.status)}};
      if (!check.reason.empty()) entry["reason"] = one_line(check.reason);
      if (check.status != CheckResult::Status::kSkipped) {
        entry["error"] = check.error;
        entry["bound"] = check.bound;
        entry["sampled"] = check.is_sampled;
      }
      if (check.kernel_error) entry["kernel_error"] = *check.kernel_error;
      if (check.kernel_bound) entry["kernel_bound"] = *check.kernel_bound;
      json["results"].push_back(std::move(entry));
    }
    return json;
  }

  bool json_;
  bool forced_;
  std::vector<trimul_device> devices_;
  std::vector<std::string> implementations_;
  std::uint64_t seed_;
  std::vector<Outcome> outcomes_;
  std::set<std::string> printed_skips_;
};

void verify(const VerifyOptions& options) {
  std::vector<ProblemLine> lines;
  if (options.shapes.empty())
    for (const char* text : kBuiltInProblems) lines.push_back(parse_problem_line(text, "built-in problems"));
  else
    lines = read_shapes_file(options.shapes);
  Session session(options);
  if (options.shapes.empty()) session.known_answers();
  session.problems(lines);
  if (const int num_failed = session.report(options.device); num_failed > 0) fail(kOther, "{} checks failed", num_failed);
}

}  // namespace

void add_verify_command(CLI::App& app) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App* command = app.add_subcommand("verify", "Known-answer and reference checks of every implementation on this machine");
  command->add_option("--device", options->device, "auto, cpu, cuda or cuda:INDEX")->capture_default_str()->type_name("DEV");
  command->add_option("--impl", options->implementation, "one implementation, or all")->capture_default_str()->type_name("NAME");
  command->add_option("--shapes", options->shapes, "problems from a file (shapes/README.md) instead of the built-in ones")
      ->type_name("FILE");
  command->add_option("--seed", options->seed, "of the random inputs; printed, random by default")->type_name("S");
  command->add_flag("--json", options->json, "print one JSON object");
  command->callback([options] { verify(*options); });
}

}  // namespace trimul::cli
