// SPDX-License-Identifier: Apache-2.0
#include "bench_plots.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "failure.hpp"
#include "options.hpp"

namespace trimul::cli {
namespace {

constexpr double kWidth = 860;
constexpr double kHeight = 430;
constexpr std::array kColours{"#1b6ca8", "#d1495b", "#2e8b57", "#8e6c8a", "#c77d0a", "#4a4e69", "#00798c", "#9a3b3b"};

/// Logarithmic axis from data to pixels.
struct Axis {
  double low = 1e300;
  double high = 0.0;
  double pixel_low = 0.0;
  double pixel_high = 1.0;

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  void widen(double factor) {
    low /= factor;
    high *= factor;
  }
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

struct Frame {
  Axis x{.pixel_low = 70, .pixel_high = kWidth - 20};
  Axis y{.pixel_low = kHeight - 50, .pixel_high = 20};
};

/// Of the values, those whose labels have room.
std::vector<double> spaced(const Axis& axis, const std::vector<double>& values) {
  constexpr double kRoom = 36;
  std::vector<double> kept;
  for (const double value : values)
    if (kept.empty() || std::abs(axis.at(value) - axis.at(kept.back())) >= kRoom) kept.push_back(value);
  return kept;
}

std::string grid(const Frame& frame, const std::vector<double>& x_ticks, std::string_view x_title, std::string_view y_title) {
  std::string svg;
  const double left = frame.x.pixel_low, right = frame.x.pixel_high;
  const double bottom = frame.y.pixel_low, top = frame.y.pixel_high;
  for (const double value : spaced(frame.x, x_ticks))
    svg += fmt::format(
        "<line x1='{0:.1f}' x2='{0:.1f}' y1='{1}' y2='{2}' class='grid'/><text x='{0:.1f}' y='{3}' text-anchor='middle'>{4:g}</text>\n",
        frame.x.at(value), bottom, top, bottom + 18, value);
  for (const double value : frame.y.ticks())
    svg += fmt::format(
        "<line x1='{1}' x2='{2}' y1='{0:.1f}' y2='{0:.1f}' class='grid'/><text x='{3}' y='{4:.1f}' text-anchor='end'>{5:g}</text>\n",
        frame.y.at(value), left, right, left - 6, frame.y.at(value) + 4, value);
  svg += fmt::format("<text x='{}' y='{}' text-anchor='middle'>{}</text>\n", (left + right) / 2, bottom + 40, x_title);
  svg += fmt::format("<text transform='translate(16 {}) rotate(-90)' text-anchor='middle'>{}</text>\n", (top + bottom) / 2, y_title);
  return svg;
}

std::string polyline(const std::string& points, std::string_view colour, bool is_dashed = false) {
  return fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-width='1.5'{}/>\n", points, colour,
                     is_dashed ? " stroke-dasharray='5 4'" : "");
}

std::string legend_entry(std::string_view colour, std::string_view title) {
  return fmt::format("<li><span style='background:{}'></span>{}</li>\n", colour, escaped(title));
}

std::string figure(std::string_view heading, std::string_view description, const std::string& content, const std::string& legend) {
  return fmt::format("<h2>{}</h2>\n<svg viewBox='0 0 {} {}' role='img' aria-label='{}'>\n{}</svg>\n<ul class='legend'>\n{}</ul>\n", heading,
                     kWidth, kHeight, description, content, legend);
}

/// Short texts beside points, moved around them or left out where they would meet another.
class Labels {
 public:
  explicit Labels(const Frame& frame) : frame_(frame) {}
  /// Nothing may be written over a box around this point.
  void reserve(double x, double y) { boxes_.push_back({x - 5, y - 5, x + 5, y + 5}); }
  std::string at(double x, double y, std::string_view text, std::string_view colour) {
    const double width = 7 * static_cast<double>(text.size());
    constexpr double kTextHeight = 12;
    const std::array<std::array<double, 2>, 4> places{
        {{x + 8, y + 4}, {x - 8 - width, y + 4}, {x - width / 2, y - 9}, {x - width / 2, y + 18}}};
    for (const auto& [left, base] : places) {
      const Box box{left, base - kTextHeight + 2, left + width, base + 2};
      if (!is_free(box)) continue;
      boxes_.push_back(box);
      return fmt::format("<text x='{:.1f}' y='{:.1f}' fill='{}' class='halo'>{}</text>\n", left, base, colour, text);
    }
    return "";
  }

 private:
  struct Box {
    double left, top, right, bottom;
  };
  [[nodiscard]] bool is_free(const Box& box) const {
    if (box.left < frame_.x.pixel_low || box.right > frame_.x.pixel_high || box.top < frame_.y.pixel_high ||
        box.bottom > frame_.y.pixel_low)
      return false;
    return std::none_of(boxes_.begin(), boxes_.end(), [&](const Box& other) {
      return box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom;
    });
  }

  Frame frame_;
  std::vector<Box> boxes_;
};

using Series = std::map<std::string, std::vector<const BenchRow*>>;

/// Rows that differ in N alone, by a title; sorted by N.
Series series_of(const BenchReport& report) {
  Series series;
  for (const BenchRow& row : report.rows) {
    if (!row.was_timed() || row.line.tokens == 0) continue;
    ProblemLine alike = row.line;
    alike.tokens = 0;
    const std::string problem = format_problem_line(alike);
    std::string options;  // what follows the direction: mask, bias, residual
    std::size_t at = 0;
    for (int word = 0; word < 6 && at != std::string::npos; ++word) at = problem.find(' ', at + 1);
    if (at != std::string::npos) options = problem.substr(at);
    series[fmt::format("{} {} {}{}, B = {}, C_z = {}, C = {}", row.implementation, trimul_dtype_name(row.line.dtype),
                       direction_name(row.line.direction), options, row.line.batch, row.line.c_z, row.line.c_hidden)]
        .push_back(&row);
  }
  for (auto& [title, rows] : series)
    std::sort(rows.begin(), rows.end(), [](const BenchRow* left, const BenchRow* right) { return left->line.tokens < right->line.tokens; });
  return series;
}

/// A point of a roofline.
struct Work {
  std::int64_t tokens;
  double flop;
  double bytes;
  double us;
  [[nodiscard]] double intensity() const { return flop / bytes; }
  [[nodiscard]] double flop_per_us() const { return flop / us; }
};

/// The unit in which a device's rates are numbers of a few digits: 1e3 per us are G per second, 1e6 T.
struct Unit {
  double per_us;
  const char* prefix;
};
Unit unit_for(double flop_per_us) {
  return flop_per_us >= 1e7 ? Unit{1e6, "T"} : Unit{1e3, "G"};
}

struct Roof {
  std::string heading;
  double bytes_per_us;
  double flop_per_us;
};

/// Calls and stages of the rows on one kind of device, by their names; sorted by N.
std::map<std::string, std::vector<Work>> work_of(const BenchReport& report, bool on_gpu) {
  std::map<std::string, std::vector<Work>> work;
  for (const BenchRow& row : report.rows) {
    if (!row.was_timed() || row.line.tokens == 0 || (row.device != "cpu") != on_gpu) continue;
    const std::int64_t n = row.line.tokens;
    work["the whole call"].push_back({n, row.flop, row.traffic_bytes, row.times.median_us()});
    for (const StageRow& stage : row.gpu ? row.gpu->stages : std::vector<StageRow>())
      work[stage.name + " alone"].push_back({n, stage.flop, stage.traffic_bytes, stage.times.median_us()});
  }
  for (auto& [name, points] : work)
    std::sort(points.begin(), points.end(), [](const Work& left, const Work& right) { return left.tokens < right.tokens; });
  return work;
}

std::string roofline(const std::map<std::string, std::vector<Work>>& work, const Roof& roof) {
  const Unit unit = unit_for(roof.flop_per_us);
  const double peak = roof.flop_per_us / unit.per_us;
  const double ridge = roof.flop_per_us / roof.bytes_per_us;  // FLOP per byte where the roofs meet
  Frame frame;
  frame.x.include(ridge);
  frame.y.include(peak);
  for (const auto& [name, points] : work)
    for (const Work& point : points) {
      frame.x.include(point.intensity());
      frame.y.include(point.flop_per_us() / unit.per_us);
    }
  frame.x.widen(1.5);
  frame.y.widen(1.6);
  const auto x_of = [&](const Work& point) { return frame.x.at(point.intensity()); };
  const auto y_of = [&](const Work& point) { return frame.y.at(point.flop_per_us() / unit.per_us); };
  std::string svg =
      grid(frame, frame.x.ticks(), "arithmetic intensity, FLOP per byte of compulsory traffic", fmt::format("{}FLOP/s", unit.prefix));
  // The bandwidth's roof enters at the left edge or at the bottom, whichever comes first.
  const double begin = std::max(frame.x.low, frame.y.low / peak * ridge);
  const double begin_y = frame.y.at(begin / ridge * peak);
  svg += polyline(fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}", frame.x.at(begin), begin_y, frame.x.at(ridge), frame.y.at(peak),
                              frame.x.pixel_high, frame.y.at(peak)),
                  "#555");
  Labels labels(frame);
  svg += labels.at(frame.x.pixel_high - 140, frame.y.at(peak) - 10, fmt::format("{:.4g} {}FLOP/s", peak, unit.prefix), "#555");
  svg += labels.at(frame.x.at(begin) + 14, begin_y - 40, fmt::format("{:.3g} {}B/s", roof.bytes_per_us / unit.per_us, unit.prefix), "#555");
  for (const auto& [name, points] : work)
    for (const Work& point : points) labels.reserve(x_of(point), y_of(point));
  std::string legend;
  std::size_t index = 0;
  for (const auto& [name, points] : work) {
    const char* colour = kColours[index++ % kColours.size()];
    for (const Work& point : points) {
      svg += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='4' fill='{}'><title>{}, N = {}: {:.1f} us, {:.4g} {}FLOP/s</title></circle>\n",
                         x_of(point), y_of(point), colour, escaped(name), point.tokens, point.us, point.flop_per_us() / unit.per_us,
                         unit.prefix);
      if (&point == &points.front() || &point == &points.back())
        svg += labels.at(x_of(point), y_of(point), fmt::format("N = {}", point.tokens), colour);
    }
    legend += legend_entry(colour, name);
  }
  return figure(roof.heading, "FLOP per second over FLOP per byte", svg, legend);
}

}  // namespace

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

std::string time_plot(const BenchReport& report) {
  const Series series = series_of(report);
  if (series.empty()) return "";
  Frame frame;
  for (const auto& [title, rows] : series)
    for (const BenchRow* row : rows) {
      frame.x.include(static_cast<double>(row->line.tokens));
      frame.y.include(row->times.quantile_us(0.25) / 1e3);
      frame.y.include(row->times.quantile_us(0.75) / 1e3);
      if (row->gpu && row->floor_us > 0) frame.y.include(row->floor_us / 1e3);
    }
  std::set<double> tokens;
  for (const auto& [title, rows] : series)
    for (const BenchRow* row : rows) tokens.insert(static_cast<double>(row->line.tokens));
  frame.x.widen(1.15);
  frame.y.widen(1.5);
  std::string svg = grid(frame, {tokens.begin(), tokens.end()}, "N, tokens", "median time, ms");
  std::string legend;
  bool has_floor = false;
  std::size_t index = 0;
  for (const auto& [title, rows] : series) {
    const char* colour = kColours[index++ % kColours.size()];
    std::string points, floor_points;
    for (const BenchRow* row : rows) {
      const double x = frame.x.at(static_cast<double>(row->line.tokens));
      const double y = frame.y.at(row->times.median_us() / 1e3);
      points += fmt::format("{:.1f},{:.1f} ", x, y);
      if (row->gpu && row->floor_us > 0) floor_points += fmt::format("{:.1f},{:.1f} ", x, frame.y.at(row->floor_us / 1e3));
      svg += fmt::format(
          "<line x1='{0:.1f}' x2='{0:.1f}' y1='{1:.1f}' y2='{2:.1f}' stroke='{3}'/><circle cx='{0:.1f}' cy='{4:.1f}' r='4' "
          "fill='{3}'><title>{5}: {6:.4g} ms</title></circle>\n",
          x, frame.y.at(row->times.quantile_us(0.25) / 1e3), frame.y.at(row->times.quantile_us(0.75) / 1e3), colour, y,
          escaped(format_problem_line(row->line)), row->times.median_us() / 1e3);
    }
    svg += polyline(points, colour);
    if (!floor_points.empty()) svg += polyline(floor_points, colour, true);
    has_floor = has_floor || !floor_points.empty();
    legend += legend_entry(colour, title);
  }
  if (has_floor) legend += legend_entry("repeating-linear-gradient(90deg,#555 0 4px,#fff 4px 7px)", "floor, in its line's colour");
  return figure("Time over N", "Median time over N", svg, legend);
}

std::string roofline_plot(const BenchReport& report) {
  std::string html;
  const auto on_gpu = work_of(report, true);
  if (!on_gpu.empty() && report.gpu && report.gpu->bytes_per_us > 0)
    html += roofline(on_gpu, {"Roofline of the GPU: copy bandwidth and bf16 products, both measured", report.gpu->bytes_per_us,
                              report.gpu->flop_per_us});
  const auto on_cpu = work_of(report, false);
  if (!on_cpu.empty())
    html += roofline(on_cpu, {"Roofline of the CPU: copy bandwidth and fp32 multiply-adds, both measured", report.ceiling.bytes_per_us,
                              report.ceiling.flop_per_us});
  return html;
}

}  // namespace trimul::cli
