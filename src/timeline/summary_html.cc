// One page that needs nothing else: no script or style from elsewhere, pictures as SVG. Bars can be reached
// by keyboard, and what they show is also text.
#include <algorithm>
#include <array>
#include <utility>

#include "timeline/summary.h"
#include "timeline/units.h"

namespace rueda::timeline {
namespace {

constexpr int64_t kMostColumns = 200;  // steps side by side; more are taken together
constexpr double kChartWidth = 1000, kChartHeight = 240;

// Colours that differ in lightness too, for readers who do not tell hues apart; one set for dark pages.
constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --text: #1b1f24; --page: #fff; --faint: #5b6470; --line: #d8dde3;
  --s0: #9fb8d1; --s1: #e3b341; --s2: #d1495b; --s3: #2b6cb0; --s4: #7a5195;
  --s5: #5f8f4e; --s6: #a3a86b; --s7: #d9a0b0; --s8: #8a8f98 }
@media (prefers-color-scheme: dark) { :root {
  --text: #e6e9ed; --page: #14171a; --faint: #9aa4af; --line: #343a41;
  --s0: #4a6178; --s1: #c99a2e; --s2: #e06c7a; --s3: #5b9be0; --s4: #a583c0;
  --s5: #7fb36c; --s6: #b3b878; --s7: #8d5f6d; --s8: #767c85 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); max-width: 64rem;
  margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
.faint { color: var(--faint) }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
.wide { overflow-x: auto }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap }
th:first-child, td:first-child, .left { text-align: left }
td.name { white-space: normal; overflow-wrap: anywhere }
svg { width: 100%; height: auto; display: block } svg text { fill: var(--faint); font-size: 12px }
.key span { display: inline-block; margin-right: 1.1rem }
.key i { display: inline-block; width: .8em; height: .8em; margin-right: .35em; border-radius: 2px }
.c0 { fill: var(--s0); background: var(--s0) } .c1 { fill: var(--s1); background: var(--s1) }
.c2 { fill: var(--s2); background: var(--s2) } .c3 { fill: var(--s3); background: var(--s3) }
.c4 { fill: var(--s4); background: var(--s4) } .c5 { fill: var(--s5); background: var(--s5) }
.c6 { fill: var(--s6); background: var(--s6) } .c7 { fill: var(--s7); background: var(--s7) }
.c8 { fill: var(--s8); background: var(--s8) }
g[tabindex]:focus { outline: 2px solid var(--text); outline-offset: 1px }
#said { min-height: 3em }
)";

// What a bar says appears below the chart, too, when it is pointed at or reached by keyboard.
constexpr std::string_view kScript = R"(
for (const bar of document.querySelectorAll("g[tabindex]"))
  for (const event of ["focus", "mouseenter"])
    bar.addEventListener(event, () => {
      document.getElementById("said").textContent = bar.getAttribute("aria-label");
    });
const bars = [...document.querySelectorAll("#steps g[tabindex]")];
document.getElementById("steps").addEventListener("keydown", (event) => {
  const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const at = bars.indexOf(document.activeElement);
  if (move && at >= 0 && bars[at + move]) { event.preventDefault(); bars[at + move].focus() }
});
)";

std::string escaped(std::string_view text) {
  std::string out;
  bool is_code = false;
  for (const char c : text) {
    if (c == '`')
      out += std::exchange(is_code, !is_code) ? "</code>" : "<code>";
    else if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return is_code ? out + "</code>" : out;
}

std::string key() {
  std::string text = R"(<p class="key">)";
  for (size_t i = 0; i < kShares; ++i)
    text += fmt::format(R"(<span><i class="c{}"></i>{}</span>)", i, name_of(static_cast<Share>(i)));
  return text + "</p>\n";
}

// "compute 12 ms, transfer 3 ms": what is not zero.
std::string listing(const Shares& shares) {
  std::string text;
  for (size_t i = 0; i < kShares; ++i) {
    if (shares[i] < 1) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(static_cast<Share>(i)),
                        time_text(shares[i]));
  }
  return text;
}

std::vector<StepSummary> columns_of(const std::vector<StepSummary>& steps) {
  const auto together = static_cast<size_t>((std::ssize(steps) + kMostColumns - 1) / kMostColumns);
  if (together <= 1) return steps;
  std::vector<StepSummary> columns;
  for (size_t i = 0; i < steps.size(); i += together) {
    StepSummary& column = columns.emplace_back(StepSummary{.first = steps[i].first, .count = 0});
    double rows = 0;
    for (size_t k = i; k < std::min(i + together, steps.size()); ++k) {
      ++rows;
      column.count += steps[k].count;
      column.length += steps[k].length;
      for (size_t s = 0; s < kShares; ++s) column.shares[s] += steps[k].shares[s];
    }
    column.length /= rows;
    for (double& share : column.shares) share /= rows;
  }
  return columns;
}

std::string step_chart(const Summary& summary) {
  const std::vector<StepSummary> columns = columns_of(summary.by_step);
  double longest = 1;
  for (const StepSummary& column : columns) longest = std::max(longest, column.length);
  const double width = kChartWidth / static_cast<double>(std::max<size_t>(columns.size(), 1));
  std::string svg = fmt::format(
      R"(<svg id="steps" viewBox="0 0 {} {}" role="group" aria-label="Length of each step, and its shares">)",
      kChartWidth, kChartHeight + 20);
  for (size_t i = 0; i < columns.size(); ++i) {
    const StepSummary& column = columns[i];
    const std::string which =
        column.count == 1 ? fmt::format("Step {}", column.first)
                          : fmt::format("Steps {} to {}", column.first, column.first + column.count - 1);
    svg += fmt::format("\n<g tabindex=\"{}\" role=\"img\" aria-label=\"{}, {}: {}\">", i == 0 ? 0 : -1, which,
                       time_text(column.length), listing(column.shares));
    double y = kChartHeight;
    for (size_t s = 0; s < kShares; ++s) {
      const double height = column.shares[s] / longest * kChartHeight;
      if (height < 0.05) continue;
      y -= height;
      svg +=
          fmt::format(R"(<rect class="c{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"/>)", s,
                      static_cast<double>(i) * width, y, std::max(width - (width > 3 ? 1 : 0), 0.5), height);
    }
    svg += "</g>";
  }
  const int64_t last = columns.empty() ? 0 : columns.back().first + columns.back().count - 1;
  svg += fmt::format(
      "\n<text x=\"0\" y=\"{0}\">step 0</text><text x=\"{1}\" y=\"{0}\" text-anchor=\"end\">step "
      "{2}</text><text x=\"{1}\" y=\"12\" text-anchor=\"end\">{3}</text></svg>\n",
      kChartHeight + 16, kChartWidth, last, time_text(longest));
  return svg;
}

std::string row_bar(const Shares& shares, double longest) {
  std::string svg = fmt::format(
      R"(<svg viewBox="0 0 300 14" style="width:18rem" role="img" aria-label="{}">)", listing(shares));
  double x = 0;
  for (size_t s = 0; s < kShares; ++s) {
    const double width = shares[s] / longest * 300;
    if (width < 0.05) continue;
    svg += fmt::format(R"(<rect class="c{}" x="{:.2f}" y="0" width="{:.2f}" height="14"/>)", s, x, width);
    x += width;
  }
  return svg + "</svg>";
}

std::string share_table(const Summary& s) {
  std::string text = "<table><tr><th>share<th>of a step<th>part</tr>\n";
  for (size_t i = 0; i < kShares; ++i)
    if (s.shares[i] > 0 || i == 0)
      text += fmt::format("<tr><td>{}<td>{}<td>{}</tr>\n", name_of(static_cast<Share>(i)),
                          time_text(s.shares[i]), percent_text(s.shares[i] / s.step_length));
  return text + "</table>\n";
}

std::string rank_table(const Summary& s) {
  std::vector<RankSummary> ranks = s.by_rank;
  std::ranges::stable_sort(ranks, std::greater<>(), &RankSummary::cost);
  double longest = 1;
  const auto steps = static_cast<double>(s.steps);
  for (const RankSummary& rank : ranks) {
    double length = 0;
    for (const double share : rank.shares) length += share;
    longest = std::max(longest, length);
  }
  std::string text =
      "<div class=\"wide\"><table><tr><th>rank<th class=\"left\">host<th>others wait for it<th>last to<th>on "
      "the critical path<th "
      "class=\"left\">"
      "its average step</tr>\n";
  for (const RankSummary& rank : ranks)
    text +=
        fmt::format("<tr><td>{}<td class=\"left\">{}<td>{}<td>{} calls<td>{}<td class=\"left\">{}</tr>\n",
                    rank.rank, escaped(rank.host), time_text(rank.cost), rank.last,
                    percent_text(static_cast<double>(rank.critical) / steps), row_bar(rank.shares, longest));
  return text + "</table></div>\n";
}

std::string transfer_table(const Summary& s) {
  std::string text =
      "<div class=\"wide\"><table><tr><th>tensors<th "
      "class=\"left\">collective<th>size<th>times<th>transfer<th>waiting<th>"
      "GB/s</tr>\n";
  for (const TransferSummary& one : s.by_transfer)
    text += fmt::format(
        "<tr><td class=\"name\">{}{}<td class=\"left\">{} ({})<td>{}<td>{}<td>{}<td>{}<td>{}</tr>\n",
        escaped(one.name), one.tensors > 1 ? fmt::format(" and {} more", one.tensors - 1) : "",
        escaped(one.what), escaped(one.backend), size_text(one.bytes), one.calls, time_text(one.transfer),
        time_text(one.waiting), one.bus_gbps > 0 ? fmt::format("{:.3g}", one.bus_gbps) : "");
  return text + "</table></div>\n";
}

}  // namespace

std::string as_html(const Summary& s) {
  std::string page =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>Where the time went</title>\n<style>";
  page += kStyle;
  page += "</style></head><body>\n<h1>Where the time went</h1>\n";
  page += fmt::format("<p>{} ranks, epoch {}, {} {} of {} (median {}, 95th percentile {}).</p>\n", s.size,
                      s.epoch, s.steps, s.has_steps ? "steps" : "windows of time", time_text(s.step_length),
                      time_text(s.step_p50), time_text(s.step_p95));
  for (const std::string& remark : s.remarks) page += "<p class=\"faint\">" + escaped(remark) + "</p>\n";
  page += "<h2>What to do</h2>\n";
  if (s.advice.empty()) page += "<p>Nothing takes more than 1 % of a step and could be saved.</p>\n";
  if (!s.advice.empty()) page += "<ol>\n";
  for (const Advice& advice : s.advice)
    page += fmt::format("<li><strong>Up to {}.</strong> {}</li>\n", percent_text(advice.gain),
                        escaped(advice.text));
  if (!s.advice.empty()) page += "</ol>\n";
  if (s.steps > 0) {
    page += "<h2>Steps</h2>\n" + key() + step_chart(s);
    page +=
        "<p id=\"said\" class=\"faint\" aria-live=\"polite\">Point at a step, or reach it with Tab and the "
        "arrow "
        "keys.</p>\n";
    page += share_table(s);
    page += fmt::format(
        "<p>{} of the time is explained by records. {}</p>\n", percent_text(1 - s.unattributed),
        s.knows_waits ? percent_text(s.overlap) + " of the time of transfers was hidden behind computing."
                      : std::string("Overlap is not known: the program does not say when it waits."));
    page += "<h2>Ranks</h2>\n" + rank_table(s);
  }
  page += "<h2>Transfers</h2>\n" + transfer_table(s);
  page += "<script>";
  page += kScript;
  return page + "</script>\n</body></html>\n";
}

}  // namespace rueda::timeline
