// SPDX-License-Identifier: Apache-2.0
// The HTML page of a BenchReport: tables, a plot of time over N and a roofline, in one file without scripts or outside references.
#include "bench_plots.hpp"
#include "bench_report.hpp"
#include "failure.hpp"

namespace trimul::cli {
namespace {

std::string table_row(const BenchRow& row) {
  const std::string start = fmt::format("<tr><td>{}</td><td>{}</td>", escaped(format_problem_line(row.line)), escaped(row.implementation));
  if (!row.was_timed()) return fmt::format("{}<td colspan='7' class='reason'>{}</td></tr>\n", start, escaped(one_line(row.skipped)));
  return fmt::format(
      "{}<td><b>{:.3f}</b></td><td>{:.3f} &ndash; {:.3f}</td><td>{:.3f}</td><td>{:.1f}</td><td>{:.2f}</td><td>{}</td>"
      "<td>{:.1e}</td></tr>\n",
      start, row.times.median_us() / 1e3, row.times.quantile_us(0.25) / 1e3, row.times.quantile_us(0.75) / 1e3, row.times.min_us() / 1e3,
      row.gflop_per_s(), row.gb_per_s(), row.ceiling_percent(), row.error);
}

/// "12.3 (61 %)": median in us and the share of its floor.
std::string stage_cell(const Times& times, double floor_us) {
  if (times.empty()) return "<td>&ndash;</td>";
  if (floor_us <= 0) return fmt::format("<td>{:.1f}</td>", times.median_us());
  return fmt::format("<td>{:.1f} <span class='share'>{:.0f}&thinsp;%</span></td>", times.median_us(), 100 * floor_us / times.median_us());
}

/// What only a GPU has: stages, eager, rotated, rested, host.
std::string gpu_table(const BenchReport& report) {
  std::string rows;
  std::string stage_names;
  for (const BenchRow& row : report.rows) {
    if (!row.was_timed() || !row.gpu) continue;
    if (stage_names.empty())
      for (const StageRow& stage : row.gpu->stages) stage_names += fmt::format("<th>{}</th>", escaped(stage.name));
    rows += fmt::format("<tr><td>{}</td>{}", escaped(format_problem_line(row.line)), stage_cell(row.times, row.floor_us));
    for (const StageRow& stage : row.gpu->stages) rows += stage_cell(stage.times, stage.floor_us);
    for (const Times* times : {&row.gpu->eager, &row.gpu->rotated, &row.gpu->cool}) rows += stage_cell(*times, 0);
    rows += stage_cell(row.gpu->host, 0) + stage_cell(row.gpu->empty_kernels, 0);
    rows += fmt::format("<td>{}</td></tr>\n", row.gpu->sm_clock_mhz ? std::to_string(*row.gpu->sm_clock_mhz) : "&ndash;");
  }
  if (rows.empty()) return "";
  return fmt::format(
      "<h2>GPU, median &micro;s, and the share of the floor</h2>\n<table "
      "class='gpu'><thead><tr><th>problem</th><th>graph</th>{}<th>eager</th>"
      "<th>rotated</th><th>rested</th><th>host</th><th>3 empty, host</th><th>MHz</th></tr></thead><tbody>\n{}</tbody></table>\n"
      "<p>&ldquo;Graph&rdquo;: a CUDA graph of one execute, replayed back to back. Stages: a graph of that stage alone, replayed back to "
      "back, so "
      "that it finds in the L2 what it left there itself. &ldquo;Rotated&rdquo;: graphs over buffer sets in turn that exceed the L2 "
      "together. "
      "&ldquo;Rested&rdquo;: one replay after 20 ms of rest. &ldquo;Host&rdquo;: host time of an execute on an idle stream, beside three "
      "kernels that do nothing. MHz: the multiprocessors' clock while the graph is replayed.</p>\n",
      stage_names, rows);
}

std::string gpu_facts(const BenchReport& report) {
  if (!report.gpu) return "";
  return fmt::format("<br>GPU: {}, driver {}, CUDA runtime {} on a driver for {}", escaped(report.gpu->name),
                     escaped(report.gpu->driver.value_or("unknown")), report.gpu->cuda_runtime, report.gpu->cuda_driver);
}

constexpr const char* kStyle = R"(body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}th,td{padding:.3em .6em;border-bottom:1px solid #ddd;text-align:right}
th:first-child,td:first-child,th:nth-child(2),td:nth-child(2),.reason{text-align:left}code{background:#f3f3f3;padding:.1em .3em}
.gpu td:nth-child(2){text-align:right}.share{color:#777;font-size:85%}h2{font-size:1.15em;margin-top:2em}
svg{width:100%;height:auto;font-size:12px}.grid{stroke:#e2e2e2}.halo{paint-order:stroke;stroke:#fff;stroke-width:3px}.legend{list-style:none;padding:0;columns:2}.legend span{display:inline-block;width:.8em;height:.8em;margin-right:.5em}
)";

}  // namespace

std::string bench_html(const BenchReport& report) {
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><title>trimul bench</title><style>{}</style></head><body>\n"
      "<h1>trimul {}: triangle multiplicative update</h1>\n<p>Device: {}{}<br>CPU ceiling: {}<br>Commit: {}<br>Command: "
      "<code>{}</code></p>\n",
      kStyle, escaped(report.version), escaped(report.device), gpu_facts(report), escaped(ceiling_text(report.ceiling)),
      escaped(report.commit), escaped(report.command));
  html += time_plot(report) + roofline_plot(report);
  html +=
      "<h2>All</h2>\n<table><thead><tr><th>problem: B N C_z C dtype direction</th><th>implementation</th><th>median ms</th><th>quartiles, "
      "ms</th><th>min "
      "ms</th>"
      "<th>GFLOP/s</th><th>GB/s</th><th>of ceiling</th><th>error</th></tr></thead><tbody>\n";
  for (const BenchRow& row : report.rows) html += table_row(row);
  html +=
      "</tbody></table>\n<p>Bars in the first plot span the quartiles. GB/s counts the compulsory traffic of the three stages. &ldquo;Of "
      "ceiling&rdquo; is "
      "the larger of traffic / bandwidth and operations / rate, divided by the median time. &ldquo;Error&rdquo; is the relative RMS error "
      "to the fp64 "
      "reference, within its bound.</p>\n";
  html += gpu_table(report) + "</body></html>\n";
  return html;
}

}  // namespace trimul::cli
