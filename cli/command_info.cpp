// SPDX-License-Identifier: Apache-2.0
// trimul info: what this build is and what this machine has.
#include "commands.hpp"
#include "failure.hpp"
#include "options.hpp"
#include "plan_choice.hpp"

namespace trimul::cli {
namespace {

std::vector<trimul_device> all_devices() {
  std::vector<trimul_device> devices{{TRIMUL_CPU, 0}};
  for (std::int32_t index = 0; index < trimul_cuda_device_count(); ++index) devices.push_back({TRIMUL_CUDA, index});
  return devices;
}

/// One line, or why there is none.
std::string description_of(const trimul_device& device) {
  const char* text = trimul_device_description(device);
  return text == nullptr ? trimul_last_error() : text;
}

/// What is wrong has been shown in the description's place: with the CPU, a variable; with a GPU, its driver.
void check_devices() {
  for (const trimul_device& device : all_devices())
    if (trimul_device_description(device) == nullptr && *trimul_last_error() != '\0')
      throw Failure(device.type == TRIMUL_CPU ? kInvalid : kDevice, trimul_last_error());
}

/// The library's "key: value" lines as an object.
nlohmann::ordered_json build_json() {
  nlohmann::ordered_json build = nlohmann::ordered_json::object();
  for (const std::string_view line : split(trimul_build_info(), '\n')) {
    const std::size_t colon = line.find(": ");
    if (colon != std::string_view::npos) build[std::string(line.substr(0, colon))] = line.substr(colon + 2);
  }
  return build;
}

/// GPU architectures that kernels were compiled for: the "cuda" line of the build, a list unless it is "none".
nlohmann::ordered_json architectures_json(const nlohmann::ordered_json& build) {
  auto list = nlohmann::ordered_json::array();
  const std::string cuda = build.value("cuda", "none");
  if (cuda == "none") return list;
  std::string separated = cuda;
  for (char& c : separated)
    if (c == ',' || c == ';') c = ' ';
  for (const std::string_view name : split(separated, ' '))
    if (!name.empty()) list.push_back(name);
  return list;
}

void print_info_json() {
  nlohmann::ordered_json json;
  json["version"] = trimul_version();
  json["devices"] = nlohmann::ordered_json::array();
  for (const trimul_device& device : all_devices())
    json["devices"].push_back({{"device", device_name(device)}, {"description", description_of(device)}});
  const auto build = build_json();
  json["architectures"] = architectures_json(build);
  json["implementations"] = nlohmann::ordered_json::array();
  for (std::size_t k = 0; k < trimul_implementation_count(); ++k)
    json["implementations"].push_back({{"name", trimul_implementation_name(k)}, {"description", trimul_implementation_description(k)}});
  json["build"] = build;
  print_json(json);
}

void print_info() {
  fmt::print("trimul {}\n\nDevices\n", trimul_version());
  for (const trimul_device& device : all_devices()) fmt::print("  {:<12} {}\n", device_name(device), description_of(device));
  fmt::print("\nImplementations, in the order in which they are tried\n");
  for (std::size_t k = 0; k < trimul_implementation_count(); ++k)
    fmt::print("  {:<12} {}\n", trimul_implementation_name(k), trimul_implementation_description(k));
  fmt::print("\nBuild\n");
  for (const std::string_view line : split(trimul_build_info(), '\n'))
    if (!line.empty()) fmt::print("  {}\n", line);
}

}  // namespace

void add_info_command(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("info", "Version, devices, compiled architectures, implementations");
  command->add_flag("--json", *json, "print one JSON object");
  command->callback([json] {
    *json ? print_info_json() : print_info();
    check_devices();
  });
}

}  // namespace trimul::cli
