// SPDX-License-Identifier: Apache-2.0
// One function per command: adds it and its options to the application. The work happens in the command's callback, which
// throws Failure when it cannot be done.
#pragma once

#include <CLI/CLI.hpp>

namespace trimul::cli {

void add_run_command(CLI::App& app);      // command_run.cpp
void add_info_command(CLI::App& app);     // command_info.cpp
void add_explain_command(CLI::App& app);  // command_explain.cpp
void add_verify_command(CLI::App& app);   // command_verify.cpp
void add_bench_command(CLI::App& app);    // command_bench.cpp
void add_demo_command(CLI::App& app);     // command_demo.cpp

}  // namespace trimul::cli
