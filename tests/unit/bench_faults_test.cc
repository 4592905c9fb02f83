#include "bench/faults.h"

#include <gmock/gmock.h>

namespace rueda::bench::faults_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kRate = 1'000'000'000;

TEST(Faults, are_read_as_people_write_them) {
  const auto hosts = parse_slow_hosts("2:250mbit,0:1gbit").value();
  ASSERT_EQ(hosts.size(), 2U);
  EXPECT_EQ(hosts[0].host, 2);
  EXPECT_EQ(hosts[0].rate, 250'000'000);
  EXPECT_EQ(hosts[1].rate, kRate);
  const auto pairs = parse_slow_pairs("0-3:100mbit").value();
  ASSERT_EQ(pairs.size(), 1U);
  EXPECT_EQ(pairs[0].first, 0);
  EXPECT_EQ(pairs[0].second, 3);
  EXPECT_EQ(pairs[0].rate, 100'000'000);
  const auto late = parse_late_ranks("1:20%,2:50%").value();
  ASSERT_EQ(late.size(), 2U);
  EXPECT_DOUBLE_EQ(late[0].share, 0.2);
  EXPECT_DOUBLE_EQ(late[1].share, 0.5);
}

TEST(Faults, that_are_written_wrongly_are_refused_with_an_example) {
  for (const char* text : {"2", "2:", ":1gbit", "-1:1gbit", "x:1gbit", "2:fast", "2:9000gbit", "1:1gbit,,"})
    EXPECT_FALSE(parse_slow_hosts(text).is_ok()) << text;
  EXPECT_THAT(parse_slow_hosts("2").status().why, HasSubstr("as in 2:250mbit"));
  for (const char* text : {"0:1gbit", "0-0:1gbit", "0-:1gbit", "-1:1gbit", "0-1-2:1gbit", "0-1", "0-1:none"})
    EXPECT_FALSE(parse_slow_pairs(text).is_ok()) << text;
  EXPECT_THAT(parse_slow_pairs("0:1gbit").status().why, HasSubstr("as in 0-3:100mbit"));
  for (const char* text : {"1", "1:", "1:-5%", "1:nan", "1:1e9", "1:20 %", "one:20%", "1:%"})
    EXPECT_FALSE(parse_late_ranks(text).is_ok()) << text;
  EXPECT_THAT(parse_late_ranks("1").status().why, HasSubstr("as in 1:20%"));
  for (const char* text : {"1:20", "1:0.2", "1:1001%"})
    EXPECT_THAT(parse_late_ranks(text).status().why, HasSubstr("from 0% to 1000%, as in 1:20%")) << text;
}

TEST(Faults, name_what_there_is_once) {
  const auto why = [](const Faults& faults, int per_host = 1) {
    return faults.check(4, per_host, kRate).why;
  };
  EXPECT_EQ(why({.hosts = {{3, kRate / 4}}, .pairs = {{0, 3, kRate / 8}}, .late = {{3, 0.2}}}), "");
  EXPECT_THAT(why({.hosts = {{4, kRate}}}),
              HasSubstr("--slow-host names host 4; with so many ranks there are "
                        "hosts 0 to 3"));
  EXPECT_THAT(why({.hosts = {{2, kRate}}}, 2), HasSubstr("hosts 0 to 1"));
  EXPECT_THAT(why({.pairs = {{0, 4, kRate / 2}}}), HasSubstr("--slow-pair names host 4"));
  EXPECT_THAT(why({.late = {{4, 0.2}}}), HasSubstr("--late names rank 4"));
  EXPECT_THAT(why({.hosts = {{1, kRate / 2}, {1, kRate / 4}}}), HasSubstr("host 1 twice"));
  EXPECT_THAT(why({.pairs = {{0, 1, kRate / 2}, {1, 0, kRate / 4}}}), HasSubstr("1-0 twice"));
  EXPECT_THAT(why({.late = {{1, 0.2}, {1, 0.1}}}), HasSubstr("rank 1 twice"));
}

TEST(Faults, a_pair_that_is_as_fast_as_its_ports_is_no_fault) {
  const Faults slow_port{.hosts = {{1, kRate / 4}}, .pairs = {{0, 1, kRate / 2}}};
  EXPECT_THAT(slow_port.check(2, 1, kRate).why, HasSubstr("--slow-pair 0-1 of 500 Mbit/s limits nothing"));
  EXPECT_TRUE((Faults{.pairs = {{0, 1, kRate / 2}}}).check(2, 1, kRate).is_ok());
}

TEST(Faults, are_written_as_they_are_read) {
  const Faults faults{
      .hosts = {{1, kRate / 2}, {2, 1'500'000}}, .pairs = {{0, 3, 7'000'000}}, .late = {{1, 0.2}}};
  EXPECT_THAT(faults.words(), ElementsAre("--slow-host", "1:500000000bit,2:1500000bit", "--slow-pair",
                                          "0-3:7000000bit", "--late", "1:20%"));
  EXPECT_EQ(faults_of(faults.words()).value().words(), faults.words());
  EXPECT_EQ(faults_of({"--late", "1:0.2"}).value().late[0].share, 0.2) << "of an earlier version";
  EXPECT_EQ(faults_of(Faults{.late = {{1, 0.07}}}.words()).value().late[0].share, 0.07);
  EXPECT_EQ(faults.text(),
            "host 1 has 500 Mbit/s, host 2 has 1.5 Mbit/s, hosts 0-3 have 7 Mbit/s, rank 1 late by 20 %");
  EXPECT_THAT(Faults().words(), IsEmpty());
  EXPECT_FALSE(faults_of({"--late"}).is_ok());
  EXPECT_FALSE(faults_of({"--slow", "1:1gbit"}).is_ok());
}

TEST(Faults, change_what_they_name_alone) {
  const Faults faults{.hosts = {{1, 5}}, .late = {{2, 0.25}}};
  EXPECT_EQ(faults.port_rate(0, kRate), kRate);
  EXPECT_EQ(faults.port_rate(1, kRate), 5);
  EXPECT_EQ(faults.slowness(1), 1);
  EXPECT_EQ(faults.slowness(2), 1.25);
}

}  // namespace
}  // namespace rueda::bench::faults_test
