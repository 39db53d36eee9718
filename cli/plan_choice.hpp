// SPDX-License-Identifier: Apache-2.0
// Which device and implementation serve a problem, and why others do not.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "library.hpp"
#include "trimul/trimul.h"

namespace trimul::cli {

struct Rejected {
  std::string name;
  std::string reason;
};

/// Every implementation that declines `problem`, best first. `arch` as in trimul_plan_options, empty for the real device.
std::vector<Rejected> rejections(const trimul_problem& problem, const std::string& arch);

struct PlanChoice {
  trimul_problem problem;  // on the device that was chosen
  PlanHandle plan;
};

/// Names of implementations begin with the kind of device they are for, where that is a GPU.
inline bool is_for_gpus(std::string_view implementation) {
  return implementation.starts_with("cuda:");
}

/// A plan on the first of `devices` that serves `problem` with `implementation` (empty: any). When none does: kUnsupported, with
/// the last device's reasons, or the first one's where the implementation is for GPUs, which come first.
PlanChoice choose_plan(const trimul_problem& problem, const std::vector<trimul_device>& devices, const std::string& implementation,
                       const std::string& arch = "");

/// The fields that every --json of a plan has: implementation, device, rejected, workspace_bytes, traffic_bytes, floor_us. Null
/// where there is no plan, floor_us also where the device's ceilings are unknown.
nlohmann::ordered_json plan_json(const PlanChoice& choice, const std::vector<Rejected>& rejected, const std::string& device);
nlohmann::ordered_json rejected_json(const std::vector<Rejected>& rejected);

/// Prints `json` on stdout, whatever bytes its strings hold.
void print_json(const nlohmann::ordered_json& json);

}  // namespace trimul::cli
