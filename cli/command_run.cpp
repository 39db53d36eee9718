// SPDX-License-Identifier: Apache-2.0
// trimul run: one update from a file to a file.
#include <optional>

#include "bound_call.hpp"
#include "commands.hpp"
#include "device_memory.hpp"
#include "failure.hpp"
#include "inputs.hpp"
#include "options.hpp"
#include "output_file.hpp"
#include "plan_choice.hpp"
#include "progress.hpp"
#include "safetensors_header.hpp"
#include "standard_streams.hpp"

namespace trimul::cli {
namespace {

struct RunOptions {
  std::string input;
  std::string output;
  std::string weights;
  std::string direction = "outgoing";
  std::string device = "auto";
  std::string implementation;
  std::string precision = "default";
  std::string eps = "1e-5";
  std::string repeat = "1";
  bool residual = false;
  bool json = false;
};

HostTensor allocate_result(const trimul_problem& problem, const HostTensor& x) {
  trimul_dtype dtype = TRIMUL_F32;
  check(trimul_problem_out_dtype(&problem, &dtype));
  return allocate_tensor(dtype, x.shape);
}

/// Executes `repeat` times on unchanged input and leaves the result in `out`; returns the time of each in microseconds.
std::vector<double> execute(const PlanChoice& choice, const Inputs& inputs, const HostTensor& out, std::int64_t repeat) {
  const trimul_device& device = choice.problem.device;
  const DeviceMemory workspace(device, trimul_plan_workspace_bytes(choice.plan.get()));
  std::optional<DeviceMemory> device_out;
  if (!is_host(device)) device_out.emplace(device, out.bytes());
  const CallMemory memory{.out = device_out ? device_out->data() : out.data.get(), .out_dtype = out.dtype, .workspace = workspace.data()};
  Progress progress("computing");
  const BoundCall call(choice, inputs, memory);
  std::vector<double> times_us;
  for (std::int64_t k = 0; k < repeat; ++k) {
    if (repeat > 1) progress.set_label(fmt::format("computing, run {} of {}", k + 1, repeat));
    times_us.push_back(call.execute());
  }
  if (device_out) device_out->download(out.data.get(), 0, out.bytes());
  return times_us;
}

void write_result(const OutputFile& file, const HostTensor& out) {
  const Progress progress("writing");
  const std::string header = format_header({{.name = "out", .dtype = out.dtype, .shape = out.shape, .begin = 0, .end = out.bytes()}});
  std::array<std::byte, kLengthBytes> length{};
  for (std::size_t k = 0; k < kLengthBytes; ++k) length[k] = static_cast<std::byte>(header.size() >> (8 * k) & 0xff);
  file.write(
      {std::span<const std::byte>(length), std::as_bytes(std::span(header)), std::span<const std::byte>(out.data.get(), out.bytes())});
}

void run(const RunOptions& options) {
  const Settings settings{.direction = parse_direction(options.direction),
                          .precision = parse_precision(options.precision),
                          .eps = parse_eps(options.eps),
                          .residual = options.residual};
  const std::int64_t repeat = parse_count("--repeat", options.repeat, 1);
  check_implementation_name(options.implementation);
  const auto devices = candidate_devices(parse_device(options.device));

  std::optional<Progress> progress(std::in_place, "reading");
  const Inputs inputs = read_inputs(options.input, options.weights);
  progress.reset();
  const PlanChoice choice = choose_plan(problem_of(inputs, settings), devices, options.implementation);
  const OutputFile output(options.output);
  if (output.is_standard_output()) send_output_to_stderr();
  const HostTensor out = allocate_result(choice.problem, inputs.find("x")->second);
  const std::vector<double> times_us = execute(choice, inputs, out, repeat);
  write_result(output, out);

  const std::string device = device_name(choice.problem.device);
  if (options.json) {
    auto json = plan_json(choice, rejections(choice.problem, ""), device);
    json["times_us"] = times_us;
    print_json(json);
    return;
  }
  fmt::print("{}: out {} {}, by {} on {}", one_line(options.output), trimul_dtype_name(out.dtype), shape_text(out.shape),
             trimul_plan_implementation(choice.plan.get()), device);
  for (const double time_us : times_us) fmt::print(" {:.3f} ms", time_us / 1e3);
  fmt::print("\n");
}

}  // namespace

void add_run_command(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "One update: tensors from a safetensors file, the result to another");
  command->add_option("input", options->input, "safetensors file with x, mask, p_in_weight, ...")->required()->type_name("IN");
  command->add_option("-o,--output", options->output, "safetensors file for `out`; replaced when the result is complete")
      ->required()
      ->type_name("OUT");
  command->add_option("--weights", options->weights, "safetensors file whose tensors add to IN's or override them")->type_name("FILE");
  command->add_option("--direction", options->direction, "outgoing or incoming")->capture_default_str()->type_name("D");
  command->add_option("--device", options->device, "auto, cpu, cuda or cuda:INDEX")->capture_default_str()->type_name("DEV");
  command->add_option("--impl", options->implementation, "implementation, as listed by trimul info")->type_name("NAME");
  command->add_option("--precision", options->precision, "none, default, tf32, tf32x3, ieee, mxfp8, bfloat16, or -1..5")
      ->capture_default_str()
      ->type_name("P");
  command->add_option("--eps", options->eps, "added to both LayerNorm variances")->capture_default_str()->type_name("E");
  command->add_flag("--residual", options->residual, "x + update instead of the update");
  command->add_option("--repeat", options->repeat, "runs on unchanged input, each timed")->capture_default_str()->type_name("K");
  command->add_flag("--json", options->json, "print implementation, reasons, sizes and times as one JSON object");
  command->callback([options] { run(*options); });
}

}  // namespace trimul::cli
