#include "preflight/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace rueda::preflight::outcome_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

HostFacts host(const std::string& name) {
  HostFacts facts;
  facts.host = name;
  facts.packages = {{"python", "3.11"}};
  facts.gpus = {"H100"};
  facts.numa_node = 1;
  return facts;
}

Measured four_hosts() {
  Measured measured{.hosts = {host("a"), host("b"), host("<c&>"), host("d")},
                    .pairs = {},
                    .within_gbit_per_s = {40, 0, 0, 41},
                    .clocks = {{1, 2}, {0, 0}, {-1, 2}, {5, 3}},
                    .rounds = 3,
                    .rounds_for_all = 3};
  for (int a = 0; a < 4; ++a)
    for (int b = a + 1; b < 4; ++b)
      measured.pairs.push_back({.a = a,
                                .b = b,
                                .gbit_per_s = b == 3             ? 9.0
                                              : a == 0 && b == 1 ? 3.0
                                                                 : 25.0,
                                .round_trip_us = b == 2 ? 0.0 : 60.0,
                                .is_counted = b != 2,
                                .bytes = 64 << 20});
  return measured;
}

TEST(PreflightOutcome, what_the_first_rank_says_arrives) {
  const Measured sent = four_hosts();
  const Result<Measured> got = decode_measured(encode(sent));
  ASSERT_TRUE(got.is_ok());
  EXPECT_EQ(got.value().hosts, sent.hosts);
  ASSERT_EQ(got.value().pairs.size(), 6U);
  EXPECT_DOUBLE_EQ(got.value().pairs[0].gbit_per_s, 3);
  EXPECT_EQ(got.value().pairs[0].bytes, 64 << 20);
  EXPECT_DOUBLE_EQ(got.value().pairs[0].round_trip_us, 60);
  EXPECT_TRUE(got.value().pairs[0].is_counted);
  EXPECT_FALSE(got.value().pairs[1].is_counted);
  EXPECT_EQ(got.value().within_gbit_per_s, sent.within_gbit_per_s);
  EXPECT_DOUBLE_EQ(got.value().clocks[2].us, -1);
  EXPECT_EQ(got.value().rounds_for_all, 3);
}

TEST(PreflightOutcome, answers_of_another_release_are_refused_and_do_not_crash) {
  EXPECT_FALSE(decode_measured("").is_ok());
  EXPECT_FALSE(decode_measured("[]").is_ok());
  const auto read = nlohmann::json::parse(encode(four_hosts()));
  for (const auto& [key, value] : read.items()) {
    auto changed = read;
    changed[key] = "other";
    EXPECT_FALSE(decode_measured(changed.dump()).is_ok()) << key;
    changed.erase(key);
    EXPECT_FALSE(decode_measured(changed.dump()).is_ok()) << key;
  }
  auto changed = read;
  changed["pairs"][0][1] = 17;  // no such host
  EXPECT_FALSE(decode_measured(changed.dump()).is_ok());
  for (const double number : {1e21, -1e21, 0.5}) {  // what no integer holds
    changed = read;
    changed["hosts"][0]["cores"] = number;
    EXPECT_FALSE(decode_measured(changed.dump()).is_ok()) << number;
    changed = read;
    changed["pairs"][0][5] = number;
    EXPECT_FALSE(decode_measured(changed.dump()).is_ok()) << number;
    changed = read;
    changed["rounds"][1] = number;
    EXPECT_FALSE(decode_measured(changed.dump()).is_ok()) << number;
  }
}

TEST(PreflightOutcome, page_json_and_picture_name_the_slow_host_and_the_slow_link) {
  const Outcome outcome = judge(four_hosts(), 8, 0, {{"missing-host", {"e"}, "e: does not answer"}});
  EXPECT_THAT(page(outcome), HasSubstr("PROBLEM: e: does not answer\n"));
  EXPECT_THAT(page(outcome), HasSubstr("PROBLEM: d: reaches 9.00 Gbit/s"));
  EXPECT_THAT(page(outcome), HasSubstr("PROBLEM: a - b: 3.00 Gbit/s"));
  EXPECT_THAT(page(outcome), HasSubstr("6 pairs in 3 rounds, which are all"));
  const auto read = nlohmann::json::parse(json(outcome));
  EXPECT_EQ(read["format"], 1);
  EXPECT_EQ(read["is_broken"], true);
  EXPECT_EQ(read["links"].size(), 6U);
  EXPECT_EQ(read["links"][0]["hosts"], nlohmann::json({"a", "b"}));
  EXPECT_EQ(read["links"][0]["round_trip_us"], 60);
  EXPECT_EQ(read["links"][0]["round_trip_from"], "kernel");
  EXPECT_EQ(read["links"][1]["round_trip_us"], nullptr) << "unknown, which is not 0";
  EXPECT_EQ(read["links"][1]["round_trip_from"], "calls");
  EXPECT_EQ(read["hosts"][1]["within_gbit_per_s"], nullptr);
  EXPECT_EQ(read["hosts"][3]["clock_offset_us"], 5);
  const std::string picture = heat_map(outcome);
  EXPECT_THAT(picture, HasSubstr("&lt;c&amp;&gt;"));
  EXPECT_THAT(picture, HasSubstr("<title>b to a: 3.00 Gbit/s; both ways at once 3.00 Gbit/s"));
  EXPECT_THAT(picture, HasSubstr("fill=\"#fff\" pointer-events=\"none\">3.00</text>")) << "on dark red";
  EXPECT_THAT(picture, HasSubstr("fill=\"#000\" pointer-events=\"none\">9.00</text>")) << "on orange";
  EXPECT_THAT(picture, HasSubstr("fill=\"#a50026\">d</text>"));
  EXPECT_THAT(picture, Not(HasSubstr("fill=\"#a50026\">a</text>")));
}

// Those that are more red than blue: "a to b".
std::vector<std::string> red_cells(const std::string& picture) {
  std::vector<std::string> found;
  for (size_t at = picture.find("<title>"); at != std::string::npos; at = picture.find("<title>", at + 1)) {
    const size_t fill = picture.rfind("fill=\"#", at) + 7, name = at + 7;
    const int red = std::stoi(picture.substr(fill, 2), nullptr, 16),
              blue = std::stoi(picture.substr(fill + 4, 2), nullptr, 16);
    if (red > blue) found.push_back(picture.substr(name, picture.find(':', name) - name));
  }
  return found;
}

// Of three hosts two are in one rack. No link is slow, so none is red.
TEST(PreflightOutcome, links_below_the_fastest_pair_are_not_red) {
  Measured measured;
  measured.hosts = {host("a"), host("b"), host("c")};
  measured.pairs = {{.a = 0, .b = 1, .gbit_per_s = 38},
                    {.a = 0, .b = 2, .gbit_per_s = 30},
                    {.a = 1, .b = 2, .gbit_per_s = 27, .forth_gbit_per_s = 12}};
  const Outcome outcome = judge(measured, 3, 0, {});
  EXPECT_EQ(usual_one_way(outcome.verdict, outcome.measured.pairs), 30);
  const std::string picture = heat_map(outcome);
  for (const char* number : {">38.0<", ">30.0<", ">27.0<", ">12.0<"}) EXPECT_THAT(picture, HasSubstr(number));
  EXPECT_THAT(red_cells(picture), IsEmpty());
  EXPECT_THAT(picture, HasSubstr("text-anchor=\"middle\">30.0</text>")) << "the usual rate, at its tick";
  EXPECT_THAT(picture, HasSubstr("text-anchor=\"middle\">21.0</text>")) << "where slow ends";
}

// Two hosts cannot be compared, however much their two directions differ, unless a rate is demanded.
TEST(PreflightOutcome, what_no_finding_names_is_not_red_with_two_hosts_either) {
  Measured two;
  two.hosts = {host("a"), host("b")};
  two.pairs = {{.a = 0, .b = 1, .gbit_per_s = 11, .forth_gbit_per_s = 11.6, .back_gbit_per_s = 40.2}};
  const Outcome fine = judge(two, 2, 0, {});
  EXPECT_THAT(page(fine), Not(HasSubstr("a - b")));
  EXPECT_THAT(red_cells(heat_map(fine)), IsEmpty());
  EXPECT_THAT(heat_map(fine), Not(HasSubstr("stroke=\"#000\" stroke-width")));
  const Outcome slow = judge(two, 2, 20, {});
  EXPECT_THAT(page(slow), HasSubstr("PROBLEM: a - b: 11.0 Gbit/s, less than the 20.0 Gbit/s"));
  EXPECT_THAT(red_cells(heat_map(slow)), ElementsAre("a to b"));
  EXPECT_THAT(heat_map(slow), HasSubstr("stroke=\"#000\" stroke-width")) << "the link is named";
}

// All links are alike, so none is below the usual rate; but it is not what was demanded.
TEST(PreflightOutcome, links_below_the_demanded_rate_are_red) {
  for (const int hosts : {2, 4}) {
    Measured measured;
    for (int a = 0; a < hosts; ++a) {
      measured.hosts.push_back(host(std::string(1, static_cast<char>('a' + a))));
      for (int b = 0; b < a; ++b) measured.pairs.push_back({.a = b, .b = a, .gbit_per_s = 19});
    }
    measured.pairs.back().gbit_per_s = 21;
    EXPECT_THAT(red_cells(heat_map(judge(measured, hosts, 0, {}))), IsEmpty());
    const size_t below = 2 * (measured.pairs.size() - 1);  // cells
    EXPECT_THAT(red_cells(heat_map(judge(measured, hosts, 20, {}))), SizeIs(below)) << hosts;
    EXPECT_THAT(red_cells(heat_map(judge(measured, hosts, 22, {}))), SizeIs(below + 2)) << hosts;
  }
}

TEST(PreflightOutcome, each_direction_has_its_number) {
  Measured measured;
  measured.hosts = {host("a"), host("b")};
  measured.within_gbit_per_s = {0, 0};
  measured.pairs = {{.a = 0, .b = 1, .gbit_per_s = 0.09, .forth_gbit_per_s = 0.94, .back_gbit_per_s = 0.1}};
  const Outcome outcome = judge(decode_measured(encode(measured)).value(), 2, 0, {});
  const std::string picture = heat_map(outcome);
  EXPECT_THAT(picture, HasSubstr("<title>a to b: 940 Mbit/s; both ways at once 90.0 Mbit/s"));
  EXPECT_THAT(picture, HasSubstr("<title>b to a: 100 Mbit/s; both ways"));
  EXPECT_THAT(picture, HasSubstr("rueda preflight: Mbit/s from the host of a row"));
  EXPECT_THAT(page(outcome),
              HasSubstr("Mbit/s to    a    b\n  a            -  940\n  b          100    -\n"));
  EXPECT_EQ(nlohmann::json::parse(json(outcome))["links"][0]["one_way_gbit_per_s"],
            (std::vector<double>{0.94, 0.1}));
}

TEST(PreflightOutcome, untested_links_are_admitted) {
  Measured measured = four_hosts();
  measured.rounds = 2;
  EXPECT_THAT(page(judge(measured, 4, 0, {})), HasSubstr("2 rounds of the 3 that all pairs need"));
}

TEST(PreflightOutcome, one_of_a_thing_is_not_plural) {
  Measured one;
  one.hosts = {host("a")};
  EXPECT_THAT(page(judge(one, 1, 0, {})), testing::StartsWith("1 host, 1 answered, 1 rank; one host, so no"));
  Measured two;
  two.hosts = {host("a"), host("b")};
  two.pairs = {{.a = 0, .b = 1, .gbit_per_s = 9}};
  two.rounds = two.rounds_for_all = 1;
  EXPECT_THAT(page(judge(two, 2, 0, {})),
              testing::StartsWith("2 hosts, 2 answered, 2 ranks; 1 pair in 1 round, which is all\n"));
}

TEST(PreflightOutcome, one_host_and_none_are_reported) {
  Measured one;
  one.hosts = {host("a")};
  EXPECT_THAT(page(judge(one, 2, 0, {})), HasSubstr("one host, so no pair of hosts was measured"));
  const Outcome none = judge({}, 2, 0, {{"missing-host", {"a"}, "a: does not answer"}});
  EXPECT_THAT(page(none), testing::EndsWith("\n1 problem, 0 advice.\n"));
  EXPECT_THAT(heat_map(none), HasSubstr("</svg>"));
}

TEST(PreflightOutcome, a_better_order_of_the_hosts_is_advised_as_an_option_of_rueda_run) {
  Measured measured = four_hosts();  // a - b has 3 Gbit/s, and d has 9 to all
  const std::vector<launch::HostSlots> slots = {{"a", 8}, {"b", 8}, {"fe80::1", 4}, {"d", 1}};
  const Outcome outcome = judge(measured, 21, 0, {}, slots);
  ASSERT_TRUE(outcome.ring.has_value());
  EXPECT_THAT(outcome.ring->order, ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(page(outcome),
              HasSubstr("advice:  a ring through the hosts in the order they were given has a - b "
                        "as its slowest link, 3.00 Gbit/s; if your job uses rings "
                        "(RUEDA_ALGORITHM=ring, NCCL), -H a:8,[fe80::1]:4,b:8,d:1 gives 9.00 "
                        "Gbit/s\n"));
  const auto read = nlohmann::json::parse(json(outcome))["host_order"];
  EXPECT_THAT(read["hosts"], ElementsAre("a", "<c&>", "b", "d"));
  EXPECT_EQ(read["option"], "a:8,[fe80::1]:4,b:8,d:1");
  EXPECT_DOUBLE_EQ(read["given_gbit_per_s"], 3);
  EXPECT_TRUE(read["pays"]);
  EXPECT_THAT(page(judge(measured, 21, 0, {})), HasSubstr("the order a,<c&>,b,d gives 9.00"))
      << "where nobody has said how many slots there are";
  measured.pairs.pop_back();
  EXPECT_FALSE(judge(measured, 21, 0, {}).ring.has_value()) << "a pair was not measured";
}

TEST(PreflightOutcome, the_order_that_docs_preflight_advises_is_that_of_its_table) {
  Measured measured = four_hosts();
  const double mbit[] = {163, 148, 191, 25.7, 181, 155};  // a-b, a-c, a-d, b-c, b-d, c-d
  for (size_t i = 0; i < 6; ++i) measured.pairs[i].gbit_per_s = mbit[i] / 1e3;
  measured.hosts[2].host = "c";
  const Outcome outcome = judge(measured, 5, 0, {}, {{"a", 2}, {"b", 1}, {"c", 1}, {"d", 1}});
  EXPECT_THAT(page(outcome),
              HasSubstr("advice:  a ring through the hosts in the order they were given has b - c "
                        "as its slowest link, 25.7 Mbit/s; if your job uses rings "
                        "(RUEDA_ALGORITHM=ring, NCCL), -H a:2,b:1,d:1,c:1 gives 148 Mbit/s\n"));
}

TEST(PreflightOutcome, no_order_is_advised_for_a_few_per_cent) {
  Measured measured = four_hosts();
  for (PairMeasurement& pair : measured.pairs) pair.gbit_per_s = pair.a == 0 && pair.b == 1 ? 24 : 25;
  const Outcome outcome = judge(measured, 8, 0, {});
  ASSERT_TRUE(outcome.ring.has_value());
  EXPECT_FALSE(outcome.ring->pays());
  EXPECT_THAT(page(outcome), Not(HasSubstr("ring")));
}

}  // namespace
}  // namespace rueda::preflight::outcome_test
