// SPDX-License-Identifier: Apache-2.0
// The trimul command. Exit codes: 0 ok, 2 invalid input or usage, 3 unsupported, 4 device error or out of memory, 1 anything else.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

#include "commands.hpp"
#include "failure.hpp"
#include "output_file.hpp"
#include "trimul/trimul.h"

namespace {

using namespace trimul::cli;

int report(ExitCode exit_code, std::string_view message) {
  std::fflush(stdout);  // what was printed before stands before the message where both go to one place
  fmt::print(stderr, "trimul: error: {}\n", one_line(message));
  return exit_code;
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
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return report(kInvalid, std::string(error.what()) + " (see trimul --help)");
  } catch (const std::bad_alloc&) {
    return report(kDevice, "host memory: an allocation failed");
  } catch (const std::exception& error) {
    return report(kOther, error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
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
  const int exit_code = parse_and_run(app, argc, argv);
  // A full disk or a closed pipe behind stdout shows here at the latest.
  errno = 0;
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && exit_code == kOk)
    return report(kOther, fmt::format("standard output cannot be written: {}", std::strerror(errno)));
  return exit_code;
}
