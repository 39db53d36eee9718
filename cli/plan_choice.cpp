// SPDX-License-Identifier: Apache-2.0
#include "plan_choice.hpp"

#include <optional>

namespace trimul::cli {

std::vector<Rejected> rejections(const trimul_problem& problem, const std::string& arch) {
  std::vector<Rejected> rejected;
  for (std::size_t k = 0; k < trimul_implementation_count(); ++k) {
    const char* name = trimul_implementation_name(k);
    const char* reason = nullptr;
    check(trimul_implementation_can_run(name, &problem, arch.empty() ? nullptr : arch.c_str(), &reason));
    if (reason != nullptr) rejected.push_back({name, reason});
  }
  return rejected;
}

PlanChoice choose_plan(const trimul_problem& problem, const std::vector<trimul_device>& devices, const std::string& implementation,
                       const std::string& arch) {
  trimul_plan_options options = TRIMUL_PLAN_OPTIONS_INIT;
  options.implementation = implementation.empty() ? nullptr : implementation.c_str();
  options.arch = arch.empty() ? nullptr : arch.c_str();
  std::optional<Failure> declined;
  for (const trimul_device& device : devices) {
    PlanChoice choice{problem, nullptr};
    choice.problem.device = device;
    try {
      choice.plan = create_plan(choice.problem, options);
      return choice;
    } catch (const Failure& failure) {
      if (failure.exit_code() != kUnsupported) throw;
      if (!declined || !is_for_gpus(implementation)) declined = failure;
    }
  }
  throw declined.value_or(Failure(kUnsupported, "no device"));
}

nlohmann::ordered_json rejected_json(const std::vector<Rejected>& rejected) {
  auto list = nlohmann::ordered_json::array();
  for (const Rejected& entry : rejected) list.push_back({{"name", entry.name}, {"reason", entry.reason}});
  return list;
}

nlohmann::ordered_json plan_json(const PlanChoice& choice, const std::vector<Rejected>& rejected, const std::string& device) {
  const trimul_plan* plan = choice.plan.get();
  nlohmann::ordered_json json;
  json["implementation"] = nullptr;
  json["device"] = device;
  json["rejected"] = rejected_json(rejected);
  for (const char* field : {"workspace_bytes", "traffic_bytes", "floor_us"}) json[field] = nullptr;
  if (plan == nullptr) return json;
  json["implementation"] = trimul_plan_implementation(plan);
  json["workspace_bytes"] = trimul_plan_workspace_bytes(plan);
  json["traffic_bytes"] = trimul_plan_traffic_bytes(plan);
  if (const double floor_us = trimul_plan_floor_us(plan); floor_us > 0) json["floor_us"] = floor_us;
  return json;
}

void print_json(const nlohmann::ordered_json& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace trimul::cli
