// How the text and the page of a summary show names that programs and hosts have chosen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "timeline/summary.h"
#include "timeline_planned_job.h"

namespace rueda::timeline::page_test {
namespace {

using testing::HasSubstr;

Summary one_step() {
  Summary summary;
  summary.steps = 1;
  summary.step_length = 1e6;
  summary.by_step.push_back({.first = 0, .count = 1, .length = 1e6, .shares = {}});
  return summary;
}

void add_transfer(Summary& summary, const std::string& name) {
  TransferSummary& transfer = summary.by_transfer.emplace_back();
  transfer.name = name;
}

std::string page_of(const std::string& name) {
  Summary summary = one_step();
  add_transfer(summary, name);
  return as_html(summary);
}

TEST(TimelinePage, marks_of_html_and_backticks_in_names_are_shown_as_they_are) {
  EXPECT_THAT(page_of("a`b` <b>&amp;\""), HasSubstr("<bdi>a`b` &lt;b&gt;&amp;amp;&quot;</bdi>"));
  EXPECT_THAT(page_of("é שלום 🚀"), HasSubstr("<bdi>é שלום 🚀</bdi>"));
  Summary summary = one_step();
  RankSummary& rank = summary.by_rank.emplace_back();
  rank.host = "<i>host";
  summary.remarks.emplace_back("The epoch broke: `<b>`");
  EXPECT_THAT(as_html(summary), HasSubstr("<bdi>&lt;i&gt;host</bdi>"));
  EXPECT_THAT(as_html(summary), HasSubstr("The epoch broke: `&lt;b&gt;`"));
}

TEST(TimelinePage, bytes_that_would_not_be_seen_are_written_out) {
  EXPECT_THAT(page_of("\x1b[31m\t\n\x7f"), HasSubstr("<bdi>\\x1b[31m\\x09\\x0a\\x7f</bdi>"));
  EXPECT_THAT(page_of("\xc2\x85 \xc2\xa0"), HasSubstr("<bdi>\\xc2\\x85 \xc2\xa0</bdi>"))
      << "a control, a blank";
  EXPECT_THAT(page_of("\xe2\x80\xae|\xe2\x81\xa9"), HasSubstr("<bdi>\\xe2\\x80\\xae|\\xe2\\x81\\xa9</bdi>"));
  EXPECT_THAT(page_of("\xe2\x80\xaf|\xe2\x80"), HasSubstr("<bdi>\xe2\x80\xaf|\xe2\x80</bdi>"));
}

TEST(TimelinePage, commands_of_advice_are_code) {
  Summary summary = one_step();
  summary.advice.push_back({.gain = 0.5, .text = "Run `rueda bench <x>`."});
  EXPECT_THAT(as_html(summary), HasSubstr("Run <code>rueda bench &lt;x&gt;</code>."));
}

TEST(TimelinePage, steps_of_long_jobs_share_columns) {
  Summary summary = one_step();
  summary.by_step.clear();
  summary.steps = 1'000;
  for (int64_t step = 0; step < summary.steps; ++step)
    summary.by_step.push_back({.first = step, .count = 1, .length = step % 5 == 0 ? 6e6 : 1e6, .shares = {}});
  const std::string page = as_html(summary);
  EXPECT_THAT(page, HasSubstr("aria-label=\"steps 0 to 4, 2 ms: \""));
  EXPECT_THAT(page, HasSubstr("aria-label=\"steps 995 to 999, 2 ms: \""));
  EXPECT_THAT(page, HasSubstr("<span>step 0</span><span>step 999</span>"));
}

TEST(TimelinePage, one_long_step_does_not_flatten_the_others) {
  Summary summary = one_step();
  summary.by_step.clear();
  summary.steps = 50;
  for (int64_t step = 0; step < summary.steps; ++step) {
    StepSummary row{.first = step, .count = 1, .length = step == 7 ? 900e6 : 10e6, .shares = {}};
    row.shares[0] = row.length;
    summary.by_step.push_back(row);
  }
  const std::string page = as_html(summary);
  EXPECT_THAT(page, HasSubstr("<span>40 ms (longer bars are cut there; the longest: 900 ms)</span>"));
  EXPECT_THAT(page, HasSubstr("aria-label=\"step 7, 900 ms: compute 900 ms\"><rect class=\"c0\" x=\"140.00\" "
                              "y=\"0.00\" width=\"19.00\" height=\"240.00\"/><rect class=\"cut\""));
  EXPECT_THAT(page, HasSubstr("aria-label=\"step 8, 10 ms: compute 10 ms\"><rect class=\"c0\" x=\"160.00\" "
                              "y=\"180.00\" width=\"19.00\" height=\"60.00\"/><rect class=\"frame\""));
  summary.by_step[7] = summary.by_step[8];
  EXPECT_EQ(as_html(summary).find("are cut there"), std::string::npos);
}

TEST(TimelinePage, a_rank_for_which_nobody_waits_is_not_called_late) {
  Summary summary = one_step();
  for (const double cost : {5e4, 5e3}) {
    RankSummary& rank = summary.by_rank.emplace_back();
    rank.rank = static_cast<Rank>(summary.by_rank.size()) - 1;
    rank.cost = cost;
    rank.why = Lateness::kInput;
  }
  const std::string text = as_text(summary);
  EXPECT_NE(text.find("waits for input"), text.npos);
  EXPECT_EQ(text.find("waits for input"), text.rfind("waits for input")) << text;
}

TEST(TimelinePage, links_are_listed_and_slow_ones_first) {
  Summary summary = one_step();
  summary.shares[static_cast<size_t>(StepShare::kTransfer)] = 4e5;
  for (Rank to = 1; to <= 40; ++to)
    summary.by_link.push_back({.from = 0, .to = to, .blocked = 1e5, .bytes = 2048, .gbps = 1.5});
  summary.links = {{.rank = 3, .out_gbps = 2, .in_gbps = 2},
                   {.rank = 7, .out_gbps = 0.5, .in_gbps = 0, .is_slow_out = true}};
  summary.slow_pairs.push_back({.end = 1, .other = 2, .sends = true, .speed = 0.25, .usual = 1});
  const std::string page = as_html(summary);
  EXPECT_THAT(page, HasSubstr("<tr><td>0 → 32<td>100 us<td>25 %<td>2 KiB<td>1.5<td></tr>"));
  EXPECT_THAT(page, HasSubstr("And 8 more links"));
  EXPECT_EQ(page.find("0 → 33"), page.npos);
  EXPECT_THAT(page, HasSubstr("<tr><td>7<td>0.5<td>?<td class=\"left\">slow</tr>\n<tr><td>3<td>2<"));
  EXPECT_THAT(page, HasSubstr("<p>Rank 1 to rank 2: 0.25 GB/s, slow.</p>"));
}

TEST_F(SummaryTest, job_command_date_and_hosts_are_told) {
  JobPlan plan;
  plan.ranks = 4;
  plan.offset = kSecond;
  plan.job = 0x1234567890abcdef;
  plan.began_micros = 1'700'000'000'000'000;
  const Summary summary = summarize_files({write(plan)}).value();
  const std::string hosts = "a (2 ranks), b (2 ranks)";
  EXPECT_THAT(as_text(summary), HasSubstr("\nJob 90abcdef, begun 2023-11-14 22:13:20 UTC, on " + hosts +
                                          "\npython train.py --lr <0.1>\n"));
  EXPECT_THAT(as_html(summary), HasSubstr("begun 2023-11-14 22:13:20 UTC, on <bdi>" + hosts +
                                          "</bdi>: <code>python train.py --lr &lt;0.1&gt;</code></p>"));
}

TEST(TimelinePage, a_table_has_one_unit) {
  Summary summary;
  summary.steps = 10;
  summary.step_length = 1e8;
  summary.by_link = {
      {.from = 0, .to = 1, .blocked = 1e5, .bytes = 8, .gbps = 0.00134, .measured_gbps = 0.0676}};
  summary.links = {{.rank = 0, .out_gbps = 0.00134, .in_gbps = 0.0676}};
  EXPECT_THAT(as_text(summary), HasSubstr("8 B        1.34        67.6\n"));
  EXPECT_THAT(as_text(summary), HasSubstr("MB/s   busy MB/s\n"));
  EXPECT_THAT(as_text(summary),
              HasSubstr("sends, MB/s  receives, MB/s\n      0            1.34            67.6\n"));
}

TEST(TimelinePage, a_job_without_a_whole_step_has_no_chart) {
  EXPECT_THAT(as_html(Summary()), HasSubstr("No step was finished on all ranks"));
  EXPECT_EQ(as_html(Summary()).find("<svg"), std::string::npos);
}

TEST(TimelineText, names_stay_on_their_line_and_are_cut_between_characters) {
  std::string letters;
  for (int i = 0; i < 40; ++i) letters += "é";
  Summary summary = one_step();
  for (const std::string& name : {std::string("two\nlines"), letters, letters + "x"})
    add_transfer(summary, name);
  const std::string text = as_text(summary);
  EXPECT_THAT(text, HasSubstr("  two?lines  "));
  size_t cut = 0;
  for (size_t at = text.find("…"); at != text.npos; at = text.find("…", at + 1), ++cut)
    EXPECT_TRUE(text.substr(at).starts_with("…é")) << "only whole ones are left";
  EXPECT_EQ(cut, 2u);
}

}  // namespace
}  // namespace rueda::timeline::page_test
