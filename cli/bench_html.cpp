// SPDX-License-Identifier: Apache-2.0
// The HTML page of a BenchReport: a table and a plot of time over N, in one file without scripts or outside references.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "bench_report.hpp"
#include "failure.hpp"
#include "options.hpp"

namespace trimul::cli {
namespace {

std::string escaped(std::string_view text) {
  std::string html;
  for (const char c : text) switch (c) {
      case '&': html += "&amp;"; break;
      case '<': html += "&lt;"; break;
      case '>': html += "&gt;"; break;
      case '"': html += "&quot;"; break;
      default: html += c;
    }
  return html;
}

/// Logarithmic axis from data to pixels.
struct Axis {
  double low = 1.0;
  double high = 10.0;
  double pixel_low = 0.0;
  double pixel_high = 1.0;

  [[nodiscard]] double at(double value) const {
    return pixel_low + (std::log(value) - std::log(low)) / (std::log(high) - std::log(low)) * (pixel_high - pixel_low);
  }
  /// 1, 2 and 5 times powers of ten.
  [[nodiscard]] std::vector<double> ticks() const {
    std::vector<double> values;
    for (double power = std::pow(10.0, std::floor(std::log10(low))); power <= high; power *= 10)
      for (const double digit : {1.0, 2.0, 5.0})
        if (power * digit >= low && power * digit <= high) values.push_back(power * digit);
    return values;
  }
};

using Series = std::map<std::string, std::vector<const BenchRow*>>;

/// Rows that differ in N alone, by a title; sorted by N.
Series series_of(const BenchReport& report) {
  Series series;
  for (const BenchRow& row : report.rows) {
    if (!row.skipped.empty() || row.line.tokens == 0) continue;
    series[fmt::format("{} {} {}, B = {}, C_z = {}, C = {}", row.implementation, trimul_dtype_name(row.line.dtype),
                       direction_name(row.line.direction), row.line.batch, row.line.c_z, row.line.c_hidden)]
        .push_back(&row);
  }
  for (auto& [title, rows] : series)
    std::sort(rows.begin(), rows.end(), [](const BenchRow* left, const BenchRow* right) { return left->line.tokens < right->line.tokens; });
  return series;
}

constexpr double kWidth = 860;
constexpr double kHeight = 430;

struct Frame {
  Axis tokens{.pixel_low = 70, .pixel_high = kWidth - 20};
  Axis milliseconds{.pixel_low = kHeight - 50, .pixel_high = 20};
};

Frame frame_of(const Series& series) {
  double least_n = 1e300, most_n = 0, least_ms = 1e300, most_ms = 0;
  for (const auto& [title, rows] : series)
    for (const BenchRow* row : rows) {
      least_n = std::min(least_n, static_cast<double>(row->line.tokens));
      most_n = std::max(most_n, static_cast<double>(row->line.tokens));
      least_ms = std::min(least_ms, row->quantile_us(0.25) / 1e3);
      most_ms = std::max(most_ms, row->quantile_us(0.75) / 1e3);
    }
  Frame frame;
  frame.tokens.low = least_n / 1.15;
  frame.tokens.high = most_n * 1.15;
  frame.milliseconds.low = least_ms / 1.5;
  frame.milliseconds.high = most_ms * 1.5;
  return frame;
}

std::string grid(const Frame& frame) {
  std::string svg;
  const double left = frame.tokens.pixel_low, right = frame.tokens.pixel_high;
  const double bottom = frame.milliseconds.pixel_low, top = frame.milliseconds.pixel_high;
  for (const double n : frame.tokens.ticks()) {
    const double x = frame.tokens.at(n);
    svg += fmt::format(
        "<line x1='{0:.1f}' x2='{0:.1f}' y1='{1}' y2='{2}' class='grid'/><text x='{0:.1f}' y='{3}' text-anchor='middle'>{4}</text>\n", x,
        bottom, top, bottom + 18, n);
  }
  for (const double ms : frame.milliseconds.ticks()) {
    const double y = frame.milliseconds.at(ms);
    svg += fmt::format(
        "<line x1='{1}' x2='{2}' y1='{0:.1f}' y2='{0:.1f}' class='grid'/><text x='{3}' y='{4:.1f}' text-anchor='end'>{5}</text>\n", y, left,
        right, left - 6, y + 4, ms);
  }
  svg += fmt::format("<text x='{}' y='{}' text-anchor='middle'>N, tokens</text>\n", (left + right) / 2, bottom + 40);
  svg += fmt::format("<text transform='translate(16 {}) rotate(-90)' text-anchor='middle'>median time, ms</text>\n", (top + bottom) / 2);
  return svg;
}

constexpr std::array kColours{"#1b6ca8", "#d1495b", "#2e8b57", "#8e6c8a", "#c77d0a", "#4a4e69", "#00798c", "#9a3b3b"};

std::string plot(const BenchReport& report) {
  const Series series = series_of(report);
  if (series.empty()) return "";
  const Frame frame = frame_of(series);
  std::string svg = fmt::format("<svg viewBox='0 0 {} {}' role='img' aria-label='Median time over N'>\n{}", kWidth, kHeight, grid(frame));
  std::string legend = "<ul class='legend'>\n";
  std::size_t index = 0;
  for (const auto& [title, rows] : series) {
    const char* colour = kColours[index++ % kColours.size()];
    std::string points;
    for (const BenchRow* row : rows) {
      const double x = frame.tokens.at(static_cast<double>(row->line.tokens));
      const double y = frame.milliseconds.at(row->median_us() / 1e3);
      points += fmt::format("{:.1f},{:.1f} ", x, y);
      svg += fmt::format(
          "<line x1='{0:.1f}' x2='{0:.1f}' y1='{1:.1f}' y2='{2:.1f}' stroke='{3}'/><circle cx='{0:.1f}' cy='{4:.1f}' r='4' "
          "fill='{3}'><title>{5}: {6:.3f} ms</title></circle>\n",
          x, frame.milliseconds.at(row->quantile_us(0.25) / 1e3), frame.milliseconds.at(row->quantile_us(0.75) / 1e3), colour, y,
          escaped(format_problem_line(row->line)), row->median_us() / 1e3);
    }
    svg += fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-width='1.5'/>\n", points, colour);
    legend += fmt::format("<li><span style='background:{}'></span>{}</li>\n", colour, escaped(title));
  }
  return svg + "</svg>\n" + legend + "</ul>\n";
}

std::string table_row(const BenchRow& row) {
  const std::string start = fmt::format("<tr><td>{}</td><td>{}</td>", escaped(format_problem_line(row.line)), escaped(row.implementation));
  if (!row.skipped.empty()) return fmt::format("{}<td colspan='7' class='reason'>{}</td></tr>\n", start, escaped(one_line(row.skipped)));
  return fmt::format(
      "{}<td><b>{:.3f}</b></td><td>{:.3f} &ndash; {:.3f}</td><td>{:.3f}</td><td>{:.1f}</td><td>{:.2f}</td><td>{}</td>"
      "<td>{:.1e}</td></tr>\n",
      start, row.median_us() / 1e3, row.quantile_us(0.25) / 1e3, row.quantile_us(0.75) / 1e3, row.times_us.front() / 1e3, row.gflop_per_s(),
      row.gb_per_s(), row.ceiling_percent(), row.error);
}

constexpr const char* kStyle = R"(body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}th,td{padding:.3em .6em;border-bottom:1px solid #ddd;text-align:right}
th:first-child,td:first-child,th:nth-child(2),td:nth-child(2),.reason{text-align:left}code{background:#f3f3f3;padding:.1em .3em}
svg{width:100%;height:auto;font-size:12px}.grid{stroke:#e2e2e2}.legend{list-style:none;padding:0;columns:2}.legend span{display:inline-block;width:.8em;height:.8em;margin-right:.5em}
)";

}  // namespace

std::string bench_html(const BenchReport& report) {
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><title>trimul bench</title><style>{}</style></head><body>\n"
      "<h1>trimul {}: triangle multiplicative update</h1>\n<p>Device: {}<br>Ceiling: {}<br>Command: <code>{}</code></p>\n",
      kStyle, escaped(report.version), escaped(report.device), escaped(ceiling_text(report.ceiling)), escaped(report.command));
  html += plot(report);
  html +=
      "<table><thead><tr><th>problem: B N C_z C dtype direction</th><th>implementation</th><th>median ms</th><th>quartiles, ms</th><th>min "
      "ms</th>"
      "<th>GFLOP/s</th><th>GB/s</th><th>of ceiling</th><th>error</th></tr></thead><tbody>\n";
  for (const BenchRow& row : report.rows) html += table_row(row);
  html +=
      "</tbody></table>\n<p>Bars in the plot span the quartiles. GB/s counts the compulsory traffic of the three stages. &ldquo;Of "
      "ceiling&rdquo; is "
      "the larger of traffic / bandwidth and operations / rate, divided by the median time. &ldquo;Error&rdquo; is the relative RMS error "
      "to the fp64 "
      "reference, within its bound.</p>\n</body></html>\n";
  return html;
}

}  // namespace trimul::cli
