// One page that needs nothing else: no script or style from elsewhere, pictures as SVG. Bars can be reached
// by keyboard, and what they show is also text.
#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "timeline/page.h"
#include "timeline/step_rows.h"
#include "timeline/summary.h"
#include "timeline/units.h"
#include "timeline/words.h"

namespace rueda::timeline {
namespace {

constexpr int64_t kMostColumns = 200;  // steps side by side; more are taken together
constexpr size_t kMostLinks = 32;
constexpr double kHighestBar = 4;  // times as high as nine in ten bars at most
constexpr double kIsCut = 1.001;   // more is not rounding
constexpr double kChartWidth = 1000, kChartHeight = 240, kRowWidth = 300, kRowHeight = 16;

// A sentence of ours, with commands in backticks.
std::string sentence(std::string_view text) {
  std::string out;
  bool is_code = false;
  for (const char c : literal(text)) {
    if (c == '`')
      out += std::exchange(is_code, !is_code) ? "</code>" : "<code>";
    else
      out += c;
  }
  return is_code ? out + "</code>" : out;
}

std::string key() {
  std::string text = R"(<p class="key">)";
  for (size_t i = 0; i < kShares; ++i)
    text += fmt::format(R"(<span><i class="c{}"></i>{}</span>)", i, name_of(static_cast<StepShare>(i)));
  return text + "</p>\n";
}

std::vector<StepSummary> columns_of(const std::vector<StepSummary>& steps) {
  const auto count = static_cast<size_t>((std::ssize(steps) + kMostColumns - 1) / kMostColumns);
  if (count <= 1) return steps;
  std::vector<StepSummary> columns;
  for (size_t i = 0; i < steps.size(); i += std::min(count, steps.size() - i))
    columns.push_back(together(std::span(steps).subspan(i, std::min(count, steps.size() - i))));
  return columns;
}

// The length that is as high as the chart. A few steps that are far longer than all others would flatten
// these: they are cut.
double top_of(const std::vector<StepSummary>& columns) {
  std::vector<double> lengths{1};
  for (const StepSummary& column : columns) lengths.push_back(column.length);
  std::ranges::sort(lengths);
  const double usual = lengths[(lengths.size() - 1) * 9 / 10];
  return std::min(lengths.back(), std::max(kHighestBar * usual, 1.0));
}

// A column stands at x; its rectangles stand on one another. A gap says that it is cut at the top.
std::string step_bar(const StepSummary& column, double x, double width, double top) {
  std::string svg;
  double y = kChartHeight;
  const double shown = std::max(width - (width > 3 ? 1 : 0), 0.5);
  for (size_t s = 0; s < kShares; ++s) {
    const double height = std::min(column.shares[s] / top * kChartHeight, y);
    if (height < 0.05) continue;
    y -= height;
    svg += rectangle(fmt::format("c{}", s), x, y, shown, height);
  }
  if (column.length > top * kIsCut) svg += rectangle("cut", x, kChartHeight * 0.05, shown, 4);
  return svg + rectangle("frame", x, 0, width, kChartHeight);
}

// "": no bar is cut.
std::string cut_note(const std::vector<StepSummary>& columns, double top) {
  const auto longest = std::ranges::max_element(columns, {}, &StepSummary::length);
  if (longest == columns.end() || longest->length <= top * kIsCut) return {};
  return fmt::format(" (longer bars are cut there; the longest: {})", time_text(longest->length));
}

std::string step_chart(const Summary& summary) {
  const std::vector<StepSummary> columns = columns_of(summary.by_step);
  const std::string_view unit = summary.has_steps ? "step" : "window";
  const double top = top_of(columns);
  const double width = kChartWidth / static_cast<double>(std::max<size_t>(columns.size(), 1));
  std::string svg;
  for (size_t i = 0; i < columns.size(); ++i) {
    const StepSummary& column = columns[i];
    const std::string which =
        column.count == 1 ? fmt::format("{} {}", unit, column.first)
                          : fmt::format("{}s {} to {}", unit, column.first, column.first + column.count - 1);
    svg += fmt::format("\n<g class=\"bar\" tabindex=\"{}\" role=\"img\" aria-label=\"{}, {}: {}\">{}</g>",
                       i == 0 ? 0 : -1, which, time_text(column.length), step_text(column),
                       step_bar(column, static_cast<double>(i) * width, width, top));
  }
  const int64_t first = columns.empty() ? 0 : columns.front().first;
  const int64_t last = columns.empty() ? 0 : columns.back().first + columns.back().count - 1;
  return fmt::format(
      "<div class=\"chart\">\n<p class=\"said\">Point at a {0}, or reach it with Tab and the arrow "
      "keys.</p>\n"
      "<p class=\"ends\"><span>{1}{7}</span></p>\n"
      "<svg id=\"steps\" viewBox=\"0 0 {2} {3}\" preserveAspectRatio=\"none\" role=\"group\" "
      "aria-label=\"Length of each {0}, and its shares\">{4}</svg>\n"
      "<p class=\"ends\"><span>{0} {5}</span><span>{0} {6}</span></p>\n</div>\n",
      unit, time_text(top), kChartWidth, kChartHeight, svg, first, last, cut_note(columns, top));
}

std::string row_bar(const RankSummary& rank, double longest, bool is_first) {
  std::string svg = fmt::format(
      "<svg class=\"bar\" viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" tabindex=\"{}\" role=\"img\" "
      "aria-label=\"rank {}, {}: {}\">",
      kRowWidth, kRowHeight + 8, is_first ? 0 : -1, rank.rank, time_text(length_of(rank)),
      shares_text(rank.shares, 1));
  double x = 2;
  for (size_t s = 0; s < kShares; ++s) {
    const double width = rank.shares[s] / longest * (kRowWidth - 4);
    if (width < 0.05) continue;
    svg += rectangle(fmt::format("c{}", s), x, 4, width, kRowHeight);
    x += width;
  }
  return svg + rectangle("frame", 1, 1, kRowWidth - 2, kRowHeight + 6) + "</svg>";
}

std::string share_table(const Summary& s) {
  std::string rows;
  for (size_t i = 0; i < kShares; ++i)
    if (s.shares[i] > 0 || i == 0)
      rows += fmt::format("<tr><td>{}<td>{}<td>{}<td class=\"what left\">{}</tr>\n",
                          name_of(static_cast<StepShare>(i)), time_text(s.shares[i]),
                          percent_text(s.shares[i] / s.step_length), explain(static_cast<StepShare>(i)));
  return table("Shares of a step", "<th>share<th>of a step<th>part<th class=\"left\">what it is", rows);
}

std::string rank_table(const Summary& s) {
  const std::vector<RankSummary> ranks = latest_first(s.by_rank);
  const auto steps = static_cast<double>(s.steps);
  double longest = 1;
  for (const RankSummary& rank : ranks) longest = std::max(longest, length_of(rank));
  std::string rows;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const RankSummary& rank = ranks[i];
    const auto of = [&](StepShare share) { return time_text(rank.shares[static_cast<size_t>(share)]); };
    rows += fmt::format(
        "<tr><td>{}<td class=\"host left\">{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td class=\"left\">{}"
        "<td class=\"left\">{}</tr>\n",
        rank.rank, name_html(rank.host), time_text(rank.cost), count_text(rank.last, "call"),
        percent_text(static_cast<double>(rank.critical) / steps), of(StepShare::kCompute),
        of(StepShare::kInput), of(StepShare::kWaiting), lateness_text(s, rank),
        row_bar(rank, longest, i == 0));
  }
  return "<div class=\"chart\" id=\"ranks\">\n<p class=\"said\">Point at the bar of a rank, or reach it with "
         "Tab and the arrow keys.</p>\n" +
         table("Ranks",
               "<th>rank<th class=\"left\">host<th>others wait<th>last to<th>on the critical "
               "path<th>compute<th>input<th>waiting<th class=\"left\">why it is late<th class=\"left\">its "
               "average step",
               rows) +
         "</div>\n";
}

std::string transfer_table(const Summary& s) {
  const SpeedUnit unit = unit_of_transfers(s);
  std::string rows;
  for (const TransferSummary& one : s.by_transfer)
    rows += fmt::format(
        "<tr><td class=\"words\">{}{}<td class=\"left\">{} ({})<td>{}<td>{}<td>{}<td>{}<td>{}</tr>\n",
        name_html(one.name), one.tensors > 1 ? fmt::format(" and {} more", one.tensors - 1) : "",
        literal(one.what), literal(one.backend), size_text(one.bytes), one.calls, time_text(one.transfer),
        time_text(one.waiting), one.bus_gbps > 0 ? unit.text(one.bus_gbps) : "");
  return table(
      "Transfers",
      fmt::format("<th>tensors<th class=\"left\">collective<th>size<th>times<th>transfer<th>waiting<th>{}",
                  unit.name),
      rows);
}

// Where bytes moved, from messages.
std::string by_link_html(const Summary& s) {
  if (s.by_link.empty()) return {};
  std::string rows, heads;
  for (const LinkCells& cells : link_rows(s, kMostLinks, "→")) {
    rows += "<tr>";
    for (const std::string& cell : cells) rows += "<td>" + cell;
    rows += "</tr>\n";
  }
  for (const std::string_view head : link_heads(s, "→")) heads += fmt::format("<th>{}", head);
  std::string text = fmt::format("<h2>{}</h2>\n{}", kByLinkTitle, table("Transfer by link", heads, rows));
  if (s.by_link.size() > kMostLinks)
    text += fmt::format("<p>And {} (--json lists all). ",
                        count_text(static_cast<int64_t>(s.by_link.size() - kMostLinks), "more link"));
  else
    text += "<p>";
  return text + "No link: adding and copying in memory.</p>\n";
}

std::string link_tables(const Summary& s) {
  if (s.links.empty()) return {};
  std::string rows;
  const SpeedUnit unit = unit_of_links(s);
  const auto speed = [&](double gbps) { return gbps > 0 ? unit.text(gbps) : "?"; };
  for (const LinkSummary& link : slowest_first(s.links))
    rows += fmt::format("<tr><td>{}<td>{}<td>{}<td class=\"left\">{}</tr>\n", link.rank, speed(link.out_gbps),
                        speed(link.in_gbps), link.is_slow_out || link.is_slow_in ? "slow" : "");
  std::string text =
      "<h2>Links between hosts: a connection while it is busy</h2>\n" +
      table("Links", fmt::format("<th>rank<th>sends, {0}<th>receives, {0}<th class=\"left\">", unit.name),
            rows);
  for (const SlowLink& pair : s.slow_pairs)
    text += fmt::format("<p>Rank {} {} rank {}: {}, slow.</p>\n", pair.end, pair.receives ? "and" : "to",
                        pair.other, gbps_text(pair.speed));
  return text;
}

std::string advice_html(const Summary& s) {
  if (s.steps == 0) return "<p>No step was finished on all ranks, so there is nothing to divide.</p>\n";
  std::string text = "<h2>What to do</h2>\n";
  if (s.advice.empty()) return text + "<p>" + no_advice_text() + "</p>\n";
  text += "<ol>\n";
  for (const Advice& advice : s.advice)
    text += fmt::format("<li><strong>Up to {}.</strong> {}</li>\n", percent_text(advice.gain),
                        sentence(advice.text));
  return text + "</ol>\n";
}

std::string steps_and_ranks(const Summary& s) {
  std::string text = fmt::format("<h2>{}</h2>\n{}{}{}", s.has_steps ? "Steps" : "Windows of time", key(),
                                 step_chart(s), share_table(s));
  text += fmt::format(
      "<p>{} of the time is explained by records. {}</p>\n", percent_text(1 - s.unattributed),
      s.knows_waits
          ? percent_text(s.overlap) + " of the time of transfers was hidden behind computing."
          : std::string("Overlap is not known: this program does not say when it waits, so all time "
                        "of transfers counts as blocked."));
  if (s.by_rank.size() > 1)
    text += fmt::format("<h2>Critical path</h2>\n<p>Through the rank that waits least: {}. On it: {}.</p>\n",
                        critical_ranks_text(s), shares_text(s.critical, 0));
  text += "<h2>Ranks, those first for which the others wait most</h2>\n" + rank_table(s);
  if (const std::string late = late_transfers_text(s); !late.empty())
    text += "<p>" + sentence(late) + "</p>\n";
  return text;
}

}  // namespace

std::string as_html(const Summary& s) {
  std::string page = begin_page("Where the time went");
  page += "<p>" + head_text(s) + ".</p>\n";
  page += "<p id=\"job\">" + literal(job_text(s)) + ", on " + name_html(hosts_text(s));
  page += (s.command.empty() ? "" : ": <code>" + literal(s.command) + "</code>") + "</p>\n";
  if (s.clock_bound > 0) page += "<p class=\"faint\">" + clocks_text(s) + "</p>\n";
  for (const std::string& remark : s.remarks) page += "<p class=\"faint\">" + literal(remark) + "</p>\n";
  page += advice_html(s);
  if (s.steps > 0) page += steps_and_ranks(s);
  page += "<h2>Transfers</h2>\n<p>" + transfers_text(s) + ".</p>\n" + transfer_table(s);
  if (s.steps > 0) page += by_link_html(s) + link_tables(s);
  return page + end_page();
}

}  // namespace rueda::timeline
