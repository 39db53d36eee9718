// SPDX-License-Identifier: Apache-2.0
// trimul demo: the pair representation of real proteins through a few triangle multiplicative updates.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "demo_blocks.hpp"
#include "demo_features.hpp"
#include "demo_structure.hpp"
#include "device_memory.hpp"
#include "failure.hpp"
#include "float_formats.hpp"
#include "host_tensor.hpp"
#include "options.hpp"
#include "output_file.hpp"
#include "plan_choice.hpp"
#include "progress.hpp"
#include "safetensors_header.hpp"
#include "standard_streams.hpp"

namespace trimul::cli {
namespace {

constexpr std::uint64_t kSeed = 20'260'101;

struct DemoOptions {
  std::vector<std::string> structures{"1ubi", "1ake_A", "3enl"};
  std::string blocks = "4";
  std::string c_z = "128";
  std::string device = "auto";
  std::string dtype = "auto";
  std::string out = "build/demo";
  bool json = false;
};

/// A named map that goes to the output file.
struct Map {
  std::string name;
  HostTensor tensor;
};

/// fp32 [n, n] of value(i, j).
HostTensor square_map(std::int64_t n, const std::function<double(std::int64_t, std::int64_t)>& value) {
  HostTensor tensor = allocate_tensor(TRIMUL_F32, {n, n});
  for (std::int64_t k = 0; k < n * n; ++k) store_number(tensor.data.get(), TRIMUL_F32, k, value(k / n, k % n));
  return tensor;
}

HostTensor vector_tensor(const std::vector<std::int32_t>& values) {
  HostTensor tensor = allocate_tensor(TRIMUL_I32, {static_cast<std::int64_t>(values.size())});
  std::memcpy(tensor.data.get(), values.data(), tensor.bytes());
  return tensor;
}

/// [N, N] of the Euclidean norms of z's rows.
HostTensor pair_norm(const HostTensor& z) {
  return square_map(z.shape[0], [&](std::int64_t i, std::int64_t j) {
    double squares = 0;
    for (std::int64_t channel = 0; channel < z.shape[2]; ++channel) {
      const double value = load_number(z.data.get(), z.dtype, (i * z.shape[1] + j) * z.shape[2] + channel);
      squares += value * value;
    }
    return std::sqrt(squares);
  });
}

double mean_of(const HostTensor& map) {
  double sum = 0;
  for (std::int64_t k = 0; k < map.elements(); ++k) sum += load_number(map.data.get(), TRIMUL_F32, k);
  return sum / static_cast<double>(map.elements());
}

HostTensor embed(const std::vector<ResidueFeatures>& residues, trimul_dtype dtype, std::int64_t c_z) {
  NormalGenerator random(kSeed);
  const FeatureProjection projection(static_cast<std::size_t>(c_z), random);
  const auto n = static_cast<std::int64_t>(residues.size());
  HostTensor z = allocate_tensor(dtype, {n, n, c_z});
  std::vector<float> pair(static_cast<std::size_t>(c_z));
  std::int64_t next = 0;
  for (const ResidueFeatures& i : residues)
    for (const ResidueFeatures& j : residues) {
      projection.project(i, j, pair.data());
      for (const float value : pair) store_number(z.data.get(), dtype, next++, static_cast<double>(value));
    }
  return z;
}

void write_maps(const std::string& path, const std::vector<Map>& maps) {
  std::vector<TensorEntry> entries;
  std::uint64_t offset = 0;
  for (const Map& map : maps) {
    entries.push_back(
        {.name = map.name, .dtype = map.tensor.dtype, .shape = map.tensor.shape, .begin = offset, .end = offset + map.tensor.bytes()});
    offset += map.tensor.bytes();
  }
  const std::string header = format_header(entries);
  std::array<std::byte, kLengthBytes> length{};
  for (std::size_t k = 0; k < kLengthBytes; ++k) length[k] = static_cast<std::byte>(header.size() >> (8 * k) & 0xff);
  std::vector<std::span<const std::byte>> parts{length, std::as_bytes(std::span(header))};
  for (const Map& map : maps) parts.emplace_back(map.tensor.data.get(), map.tensor.bytes());
  OutputFile(path).write(parts);
}

void write_text(const std::string& path, const std::string& text) {
  OutputFile(path).write({std::as_bytes(std::span(text))});
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::string description_or_name(const trimul_device& device) {
  const char* text = trimul_device_description(device);
  return text == nullptr ? device_name(device) : text;
}

nlohmann::ordered_json demo_structure(const std::string& name, const DemoOptions& options, trimul_dtype dtype, std::int64_t c_z,
                                      std::int64_t blocks, const trimul_device& device) {
  const Structure structure = read_structure(name);
  Progress progress(structure.name + ": pair features");
  const std::vector<ResidueFeatures> residues = residue_features(structure);
  const auto n = static_cast<std::int64_t>(residues.size());
  const auto residue = [&](std::int64_t k) -> const ResidueFeatures& { return residues[static_cast<std::size_t>(k)]; };
  std::vector<Map> maps;
  maps.push_back({"distance", square_map(n, [&](std::int64_t i, std::int64_t j) {
                    return residue(i).beta && residue(j).beta ? distance(*residue(i).beta, *residue(j).beta)
                                                              : std::numeric_limits<double>::quiet_NaN();
                  })});
  maps.push_back({"mask", square_map(n, [&](std::int64_t i, std::int64_t j) {
                    return residue(i).is_complete() && residue(j).is_complete() ? 1.0 : 0.0;
                  })});
  const HostTensor z = embed(residues, dtype, c_z);
  maps.push_back({"pair_norm_before", pair_norm(z)});
  const BlocksResult result = run_blocks(z, maps[1].tensor, blocks, device, kSeed + 1,
                                         [&](const std::string& what) { progress.set_label(structure.name + ": " + what); });
  maps.push_back({"pair_norm_after", pair_norm(z)});
  std::vector<std::int32_t> numbers;
  std::vector<std::int32_t> chains;
  for (const Residue& entry : structure.residues) {
    const bool is_new_chain = !chains.empty() && entry.chain != structure.residues[chains.size() - 1].chain;
    chains.push_back(chains.empty() ? 0 : chains.back() + (is_new_chain ? 1 : 0));
    numbers.push_back(entry.number);
  }
  maps.push_back({"residue_number", vector_tensor(numbers)});
  maps.push_back({"chain_index", vector_tensor(chains)});

  const double median_us = median(result.times_us);
  nlohmann::ordered_json summary{{"name", structure.name},
                                 {"title", structure.title},
                                 {"residues", n},
                                 {"complete_residues", std::ranges::count_if(residues, &ResidueFeatures::is_complete)},
                                 {"chains", chains.back() + 1},
                                 {"blocks", blocks},
                                 {"c_z", c_z},
                                 {"dtype", trimul_dtype_name(dtype)},
                                 {"implementation", result.implementation},
                                 {"device", device_name(device)},
                                 {"device_description", description_or_name(device)},
                                 {"workspace_bytes", result.workspace_bytes},
                                 {"flop_per_update", result.flop},
                                 {"times_us", result.times_us},
                                 {"median_us", median_us},
                                 {"gflop_per_s", result.flop / median_us / 1e3},
                                 {"checked_cells", result.checked_cells},
                                 {"relative_rms_error", result.relative_rms_error},
                                 {"relative_worst_error", result.relative_worst_error},
                                 {"allowed_rms_error", allowed_error(dtype, device)},
                                 {"mean_pair_norm_before", mean_of(maps[2].tensor)},
                                 {"mean_pair_norm_after", mean_of(maps[3].tensor)}};
  progress.set_label(structure.name + ": writing");
  const std::string stem = (std::filesystem::path(options.out) / structure.name).string();
  write_maps(stem + ".safetensors", maps);
  write_text(stem + ".json", summary.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  return summary;
}

void print_row(const nlohmann::ordered_json& row) {
  fmt::print("{:<18} {:>8} {:>12.3f} {:>10.1f} {:>11.1e} {:>11.1e} {:>8.2f} {:>8.2f}\n", row["title"].get<std::string>(),
             row["residues"].get<std::int64_t>(), row["median_us"].get<double>() / 1e3, row["gflop_per_s"].get<double>(),
             row["relative_rms_error"].get<double>(), row["relative_worst_error"].get<double>(), row["mean_pair_norm_before"].get<double>(),
             row["mean_pair_norm_after"].get<double>());
  flush_output();
}

struct Setting {
  trimul_device device;
  trimul_dtype dtype;
};

/// The first device that serves the updates. Without a dtype: bf16 on a GPU that serves it, which is what models run there, else fp32.
Setting choose_setting(const DemoOptions& options, std::int64_t c_z) {
  const auto devices = candidate_devices(parse_device(options.device));
  for (const trimul_device& device : devices) {
    const trimul_dtype dtype = options.dtype != "auto" ? parse_float_dtype(options.dtype) : is_host(device) ? TRIMUL_F32 : TRIMUL_BF16;
    if (serves_blocks(device, dtype, c_z)) return {device, dtype};
  }
  fail(kUnsupported, "--device {}: no implementation there serves the demo's updates at C_z = C = {} in --dtype {}", options.device, c_z,
       options.dtype);
}

void demo(const DemoOptions& options) {
  const std::int64_t blocks = parse_count("--blocks", options.blocks, 1);
  const std::int64_t c_z = parse_count("--c-z", options.c_z, 1);
  if (options.dtype != "auto") (void)parse_float_dtype(options.dtype);
  const auto [device, dtype] = choose_setting(options, c_z);
  std::error_code error;
  std::filesystem::create_directories(options.out, error);
  if (error) fail(kOther, "--out {}: cannot be created: {}", in_quotes(options.out), error.message());

  if (!options.json) {
    fmt::print("z += update_outgoing(z); z += update_incoming(z), {} times; C_z = C = {}, {}, on {}\n\n", blocks, c_z,
               trimul_dtype_name(dtype), description_or_name(device));
    fmt::print("{:<18} {:>8} {:>12} {:>10} {:>23} {:>17}\n", "structure", "residues", "ms / update", "GFLOP/s", "error against fp64",
               "mean pair norm");
    fmt::print("{:<18} {:>8} {:>12} {:>10} {:>11} {:>11} {:>8} {:>8}\n", "", "", "(median)", "", "rms", "worst", "before", "after");
  }
  std::vector<nlohmann::ordered_json> rows;
  for (const std::string& name : options.structures) {
    rows.push_back(demo_structure(name, options, dtype, c_z, blocks, device));
    if (!options.json) print_row(rows.back());
  }
  if (options.json)
    print_json({{"structures", rows}});
  else
    fmt::print(
        "\nerrors: {} sampled cells of the last update, relative to the RMS of the fp64 reference (allowed: {:.1e} rms)\nmaps and times: "
        "{}\n",
        rows.front()["checked_cells"].get<std::int64_t>(), allowed_error(dtype, device),
        (std::filesystem::path(options.out) / "*.{safetensors,json}").string());
  for (const auto& row : rows)
    if (!(row["relative_rms_error"].get<double>() <= allowed_error(dtype, device)))
      fail(kOther, "{}: the result is off the fp64 reference by {:.2e}, allowed are {:.1e}", row["title"].get<std::string>(),
           row["relative_rms_error"].get<double>(), allowed_error(dtype, device));
}

}  // namespace

void add_demo_command(CLI::App& app) {
  auto options = std::make_shared<DemoOptions>();
  CLI::App* command = app.add_subcommand("demo", "The pair representation of real proteins through a few updates");
  command->add_option("--structure", options->structures, "a CSV file, or 1ubi, 1ake_A, 3enl, 3o21 (minutes on a CPU); may be repeated")
      ->capture_default_str()
      ->type_name("FILE|NAME");
  command->add_option("--blocks", options->blocks, "blocks of an outgoing and an incoming update")->capture_default_str()->type_name("K");
  command->add_option("--c-z", options->c_z, "pair width, also the hidden width")->capture_default_str()->type_name("C_z");
  command->add_option("--device", options->device, "auto, cpu, cuda or cuda:INDEX")->capture_default_str()->type_name("DEV");
  command
      ->add_option("--dtype", options->dtype,
                   "dtype of the pair representation: bf16, fp16, fp32, fp64, or auto: bf16 on a GPU, fp32 on a CPU")
      ->capture_default_str()
      ->type_name("T");
  command->add_option("--out", options->out, "directory for <name>.safetensors and <name>.json")->capture_default_str()->type_name("DIR");
  command->add_flag("--json", options->json, "print one JSON object");
  command->callback([options] { demo(*options); });
}

}  // namespace trimul::cli
