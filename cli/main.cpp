// SPDX-License-Identifier: Apache-2.0
// The trimul command. Exit codes: 0 ok, 2 invalid input or usage, 3 unsupported, 4 device error or out of memory, 1 anything else.
#include <cstdio>
#include <cstring>
#include <new>
#include <sstream>
#include <system_error>

#include "commands.hpp"
#include "failure.hpp"
#include "output_file.hpp"
#include "standard_streams.hpp"
#include "trimul/trimul.h"

namespace {

using namespace trimul::cli;

int report(ExitCode exit_code, std::string_view message) {
  (void)output_error();  // what was printed before stands before the message where both go to one place
  print_error("trimul: error: " + one_line(message) + "\n");
  return exit_code;
}

int report_output_error(const char* what) {
  return report(kOther, fmt::format("standard output cannot be written: {}", what));
}

/// --help and --version, by way of our own stream: the parser would flush it and lose the reason of a failure.
int print_help(const CLI::App& app, const CLI::ParseError& request) {
  std::ostringstream text;
  const int exit_code = app.exit(request, text, text);
  print_output(text.str());
  return exit_code;
}

/// An option that is given has a value: an empty one, from a variable that is not set, must not pass for an option that is not given.
void refuse_empty_values(CLI::App& app) {
  const CLI::Validator not_empty([](const std::string& value) { return value.empty() ? "got '', expected a value" : ""; }, "");
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    for (CLI::Option* option : command->get_options())
      if (option->get_expected_min() > 0 && option->get_type_size_min() > 0) option->check(not_empty);
}

/// A first word that is no command; the parser would only say that one is missing.
void check_command_name(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::string known;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == argv[1]) return;
    known += (known.empty() ? "" : ", ") + command->get_name();
  }
  fail_invalid("got the command {}, expected one of {}", in_quotes(argv[1]), known);
}

/// Runs the commands' callbacks, which throw Failure.
int parse_and_run(CLI::App& app, int argc, char** argv) {
  try {
    check_command_name(app, argc, argv);
    app.parse(argc, argv);
    return kOk;
  } catch (const Failure& failure) {
    return report(failure.exit_code(), failure.what());
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return print_help(app, error);
    return report(kInvalid, std::string(error.what()) + " (see trimul --help)");
  } catch (const std::bad_alloc&) {
    return report(kDevice, "host memory: an allocation failed");
  } catch (const std::system_error& error) {
    if (std::ferror(stdout) != 0) return report_output_error(error.code().message().c_str());
    return report(kOther, error.what());
  } catch (const std::exception& error) {
    return report(kOther, error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  prepare_standard_streams();
  remove_temporary_output_on_signals();
  CLI::App app("trimul: the triangle multiplicative update of AlphaFold-class models", "trimul");
  app.set_version_flag("--version", std::string("trimul ") + trimul_version());
  app.require_subcommand(1);
  add_run_command(app);
  add_info_command(app);
  add_explain_command(app);
  add_verify_command(app);
  add_bench_command(app);
  add_demo_command(app);
  refuse_empty_values(app);
  const int exit_code = parse_and_run(app, argc, argv);
  // A full disk or a closed pipe behind stdout shows here at the latest.
  const int error = output_error();
  return error != 0 && exit_code == kOk ? report_output_error(std::strerror(error)) : exit_code;
}
