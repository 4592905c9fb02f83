// The report as one page that needs nothing else (timeline/page.h): what was asked, the curve of the
// efficiency with its spread, where the time of a step goes, and all numbers as tables.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "bench/sizes.h"
#include "simulate/simulate.h"
#include "timeline/page.h"

namespace rueda::simulate {
namespace {

using timeline::literal;
using timeline::name_html;

constexpr double kWidth = 1000, kHeight = 300, kLeft = 50, kRight = 30, kTop = 15, kBottom = 40;
constexpr double kBarWidth = 300, kBarHeight = 16;
constexpr size_t kMostHosts = 64;  // in the table
constexpr std::string_view kStyle = R"(
#curve { width: 100%; height: auto } #curve text { fill: var(--text); font-size: 13px }
#curve .line { fill: none; stroke: var(--s3); stroke-width: 2 }
#curve .band { fill: var(--s3); fill-opacity: .2 }
#curve .dot { fill: var(--s3) } #curve .grid { stroke: var(--line) }
)";

struct Part {
  const char* name;
  size_t colour;  // of page_text.h
  double ms = 0;
};

std::array<Part, 5> parts_of(const Prediction& row) {
  return {{{"computing", 0, row.compute_ms},
           {"links", 3, row.losses.links_ms},
           {"hosts", 1, row.losses.hosts_ms},
           {"jitter", 4, row.losses.jitter_ms},
           {"slowdown", 2, row.losses.slowdown_ms}}};
}

// Ranks on a logarithmic axis, efficiency from 0 to the best that there is.
class Curve {
 public:
  explicit Curve(std::vector<Prediction> rows) : rows_(std::move(rows)) {
    std::ranges::sort(rows_, {}, &Prediction::ranks);
    for (const Prediction& row : rows_) most_ = std::max(most_, row.compute_ms / row.step_p5_ms);
  }

  [[nodiscard]] std::string svg() const {
    std::string text = fmt::format("<svg id=\"curve\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">",
                                   kWidth, kHeight, said());
    for (int percent = 0; percent <= 100 * most_; percent += 20)
      text += fmt::format(R"(<line class="grid" x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/>)"
                          R"(<text x="{3}" y="{4:.1f}" text-anchor="end">{5} %</text>)",
                          kLeft, kWidth - kRight, y_of(percent / 100.0), kLeft - 6, y_of(percent / 100.0) + 4,
                          percent);
    std::string line, upper, lower, dots;
    for (const Prediction& row : rows_) {
      const double x = x_of(row.ranks), y = y_of(row.efficiency);
      line += fmt::format("{:.1f},{:.1f} ", x, y);
      upper += fmt::format("{:.1f},{:.1f} ", x, y_of(row.compute_ms / row.step_p5_ms));
      lower = fmt::format("{:.1f},{:.1f} ", x, y_of(row.compute_ms / row.step_p95_ms)) + lower;
      dots += fmt::format(R"(<circle class="dot" cx="{:.1f}" cy="{:.1f}" r="4"/>)", x, y);
      dots += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>)", x,
                          kHeight - kBottom + 18, row.ranks);
    }
    return text +
           fmt::format(R"(<polygon class="band" points="{}{}"/><polyline class="line" points="{}"/>{})",
                       upper, lower, line, dots) +
           fmt::format(R"(<text x="{}" y="{}" text-anchor="middle">ranks</text></svg>)",
                       (kLeft + kWidth - kRight) / 2, kHeight - 4) +
           "\n";
  }

 private:
  [[nodiscard]] std::string said() const {
    std::string text = "Efficiency by ranks";
    for (const Prediction& row : rows_)
      text += fmt::format("; {} ranks: {:.1f} %", row.ranks, 100 * row.efficiency);
    return text;
  }
  [[nodiscard]] double x_of(int ranks) const {
    const double first = std::log2(rows_.front().ranks), last = std::log2(rows_.back().ranks);
    const double share = last > first ? (std::log2(ranks) - first) / (last - first) : 0.5;
    return kLeft + 20 + share * (kWidth - kLeft - kRight - 40);
  }
  [[nodiscard]] double y_of(double efficiency) const {
    return kHeight - kBottom - efficiency / most_ * (kHeight - kTop - kBottom);
  }
  std::vector<Prediction> rows_;
  double most_ = 1;
};

// A share below zero has no length.
std::string bar(const Prediction& row, double longest, bool is_first) {
  std::string said = fmt::format("{} ranks, {:.1f} ms a step:", row.ranks, row.step_ms), shown;
  double x = 2;
  for (const Part& part : parts_of(row)) {
    said += fmt::format(" {} {:.1f} ms,", part.name, part.ms);
    const double width = part.ms / longest * (kBarWidth - 4);
    if (width < 0.05) continue;
    shown += timeline::rectangle(fmt::format("c{}", part.colour), x, 4, width, kBarHeight);
    x += width;
  }
  said.pop_back();
  return fmt::format(
      "<svg class=\"bar\" viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" tabindex=\"{}\" "
      "role=\"img\" aria-label=\"{}\">{}{}</svg>",
      kBarWidth, kBarHeight + 8, is_first ? 0 : -1, said, shown,
      timeline::rectangle("frame", 1, 1, kBarWidth - 2, kBarHeight + 6));
}

std::string losses_html(const std::vector<Prediction>& rows) {
  if (!std::ranges::all_of(rows, &Prediction::has_losses)) return "";
  double longest = 0;
  for (const Prediction& row : rows) {
    double sum = 0;
    for (const Part& part : parts_of(row)) sum += std::max(part.ms, 0.0);
    longest = std::max(longest, sum);
  }
  std::string text = "<h2>Where the time of a step goes</h2>\n<p class=\"key\">", lines;
  for (const Part& part : parts_of(rows.front()))
    text += fmt::format(R"(<span><i class="c{}"></i>{}</span>)", part.colour, part.name);
  for (const Prediction& row : rows) {
    lines += fmt::format("<tr><td>{}</td>", row.ranks);
    for (const Part& part : parts_of(row)) lines += fmt::format("<td>{:.1f}</td>", part.ms);
    lines += fmt::format("<td class=\"left\">{}</td></tr>\n", bar(row, longest, &row == &rows.front()));
  }
  text +=
      "</p>\n<div class=\"chart\" id=\"losses\">\n<p class=\"said\">Point at a bar, or reach it with Tab and "
      "the arrow keys.</p>\n";
  text += timeline::table(
              "Where the time of a step goes",
              "<th>ranks<th>computing<th>links<th>hosts<th>jitter<th>slowdown<th class=\"left\">ms", lines) +
          "</div>\n";
  std::string culprits;
  for (const Prediction& row : rows)
    for (const Culprit& one : row.culprits)
      culprits += fmt::format("<tr><td>{}</td><td>{:.1f}</td><td class=\"words left\">{}</td></tr>\n",
                              row.ranks, one.gain_ms, literal(one.text));
  if (culprits.empty()) return text;
  return text + "<h2>What is slower than its like</h2>\n" +
         timeline::table("What is slower than its like",
                         "<th>ranks<th>ms of a step that it costs<th class=\"left\">what", culprits);
}

std::string rows_html(const std::vector<Prediction>& rows) {
  std::string lines;
  for (const Prediction& row : rows)
    lines += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{:.1f}</td><td>{:.1f} to {:.1f}</td><td>{:.1f} %</td><td>{}</td>"
        "<td>{:.0f} %</td><td>{:.0f} %</td><td>{:g}</td><td>{}</td></tr>\n",
        row.ranks, row.hosts, row.step_ms, row.step_p5_ms, row.step_p95_ms, 100 * row.efficiency,
        row.bottleneck.empty() ? "–" : row.bottleneck, 100 * row.link_busy, 100 * row.core_busy, row.calls,
        row.bucket_bytes > 0 ? bench::size_text(row.bucket_bytes) : "none");
  return timeline::table("Predictions",
                         "<th>ranks<th>hosts<th>step in ms<th>5 to 95 %<th>efficiency<th>bottleneck"
                         "<th>busiest link<th>busiest cores<th>calls a step<th>bucket",
                         lines);
}

std::string cluster_html(const Request& request) {
  const Cluster& cluster = request.cluster;
  std::string lines;
  for (size_t i = 0; i < std::min(cluster.hosts.size(), kMostHosts); ++i) {
    const Host& host = cluster.hosts[i];
    lines += fmt::format(
        "<tr><td class=\"host\">{}</td><td>{}</td><td>{}</td><td>{:g}</td><td>{}</td></tr>\n",
        name_html(host.name), host.ranks, host.cores > 0 ? std::to_string(host.cores) : "one a rank",
        host.speed,
        host.rate_bits > 0 ? bench::rate_text(static_cast<int64_t>(host.rate_bits)) : "as its links");
  }
  std::string text = "<h2>The cluster as its file says</h2>\n" +
                     timeline::table("Hosts", "<th>host<th>ranks<th>cores<th>speed<th>port", lines);
  if (cluster.hosts.size() > kMostHosts)
    text += fmt::format("<p>And {} more hosts.</p>\n", cluster.hosts.size() - kMostHosts);
  for (const Link& link : cluster.links)
    if (link.rate_bits > 0 && &link - cluster.links.data() < std::ssize(cluster.hosts))
      text += fmt::format("<p>Between {} and {}: {}.</p>\n", name_html(link.from), name_html(link.to),
                          bench::rate_text(static_cast<int64_t>(link.rate_bits)));
  std::string costs;
  for (const CostField& field : kCostFields)
    costs += fmt::format("{}{} {:g}", costs.empty() ? "" : ", ", field.name, cluster.costs.*field.field);
  return text + "<p class=\"faint\">Costs: " + costs + ".</p>\n";
}

}  // namespace

std::string html(const Report& report, std::string_view command) {
  const Request& request = report.request;
  std::string text = timeline::begin_page("How long a training step takes", kStyle);
  text += fmt::format(
      "<p id=\"asked\">{}: {:g} ms of computing a step, {} tensors, {:.1f} MB of gradients; on {}: "
      "{}.</p>\n",
      name_html(request.model.name), request.model.compute_ms, request.model.parameters.size(),
      static_cast<double>(request.model.bytes()) / 1e6, name_html(request.cluster.source),
      literal(links_text(request)));
  if (const std::string note = world_text(request.model); !note.empty())
    text += "<p id=\"world\">" + literal(note) + "</p>\n";
  text += "<p><code>" + literal(command) + "</code></p>\n";
  text +=
      "<h2>Efficiency</h2>\n<p>What computing alone would take, divided by a step; the band is from the 5th "
      "to "
      "the 95th percentile of steps.</p>\n";
  for (const Prediction& row : report.rows)
    if (const std::string tuned = tuned_text(request, row); !tuned.empty())
      text += fmt::format("<p>{} ranks, {}.</p>\n", row.ranks, literal(tuned));
  text +=
      Curve(report.rows).svg() + rows_html(report.rows) + losses_html(report.rows) + cluster_html(request);
  return text + timeline::end_page();
}

}  // namespace rueda::simulate
