#include "preflight/findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "doctor/hardware.h"
#include "preflight/launcher.h"

namespace rueda::preflight::findings_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

HostFacts healthy(const char* host) {
  HostFacts facts;
  facts.host = host;
  facts.release = "1.0";
  facts.library_release = "1.0";
  facts.library_id = "0123456789abcdef";
  facts.library_path = "/lib/librueda.so";
  facts.packages = {{"python", "3.11"}, {"torch", "2.13"}};
  facts.cores = 8;
  facts.memory_bytes = int64_t{64} << 30;
  facts.open_files = 4096;
  facts.locked_bytes = -1;
  facts.shm_free_bytes = int64_t{1} << 30;
  facts.has_memfd = true;
  facts.free_ports = 28000;
  facts.can_listen = true;
  facts.clock_source = "tsc";
  facts.is_clock_synchronised = true;
  facts.mtu = 1500;
  return facts;
}
std::vector<HostFacts> fleet() { return {healthy("a"), healthy("b"), healthy("c")}; }

std::vector<std::string> kinds_of(const Findings& findings) {
  std::vector<std::string> kinds;
  for (const Finding& finding : findings) kinds.push_back(finding.kind);
  return kinds;
}

TEST(PreflightFindings, equal_healthy_hosts_have_none) {
  EXPECT_THAT(check_hosts(fleet(), 64), IsEmpty());
  EXPECT_THAT(compare_hosts(fleet()), IsEmpty());
}

TEST(PreflightFindings, the_odd_host_is_named_whichever_it_is) {
  for (size_t odd = 0; odd < 3; ++odd) {
    auto hosts = fleet();
    hosts[odd].library_id = "ffffffffffffffff";
    const Findings findings = compare_hosts(hosts);
    ASSERT_THAT(kinds_of(findings), ElementsAre("library"));
    EXPECT_THAT(findings[0].hosts, ElementsAre(hosts[odd].host));
    EXPECT_THAT(findings[0].sentence, HasSubstr("install the same wheel"));
    EXPECT_TRUE(findings[0].is_broken);
  }
}

TEST(PreflightFindings, versions_gpus_and_resources_are_compared) {
  auto hosts = fleet();
  hosts[1].packages["torch"] = "2.12";
  hosts[1].packages["jax"] = "0.9";
  hosts[2].gpus = {"H100", "H100"};
  hosts[2].cores = 4;
  hosts[0].clock_source = "hpet";
  const Findings findings = compare_hosts(hosts);
  EXPECT_THAT(kinds_of(findings), ElementsAre("package", "package", "gpu", "cores", "clock-source"));
  EXPECT_THAT(findings[0].sentence, HasSubstr("b: the version of jax is 0.9, but on a and c it is none"));
  EXPECT_THAT(findings[2].sentence, HasSubstr("c: the set of GPUs is 2 x H100, but on a and b it is none"));
  EXPECT_FALSE(findings[3].is_broken);
}

TEST(PreflightFindings, limits_depend_on_the_size_of_the_job) {
  auto hosts = fleet();
  hosts[0].open_files = 1000;
  EXPECT_THAT(check_hosts(hosts, 64), IsEmpty());
  EXPECT_THAT(kinds_of(check_hosts(hosts, 512)), ElementsAre("open-files"));
  hosts = fleet();
  hosts[1].free_ports = 100;
  EXPECT_THAT(check_hosts(hosts, 16), IsEmpty());
  EXPECT_THAT(kinds_of(check_hosts(hosts, 64)), ElementsAre("ports"));
}

TEST(PreflightFindings, a_small_dev_shm_is_a_problem_for_pytorch_and_advice_for_others) {
  auto hosts = fleet();
  hosts[0].shm_free_bytes = 64 << 20;
  hosts[1].shm_free_bytes = 64 << 20;
  hosts[1].packages.erase("torch");
  hosts[2].has_memfd = false;
  const Findings findings = check_hosts(hosts, 4);
  ASSERT_THAT(kinds_of(findings), ElementsAre("shm-size", "shm-size", "shared-memory"));
  EXPECT_TRUE(findings[0].is_broken);
  EXPECT_FALSE(findings[1].is_broken);
  EXPECT_THAT(findings[0].sentence, HasSubstr("64.0 MiB"));
}

TEST(PreflightFindings, a_library_of_another_release_or_none_is_named) {
  auto hosts = fleet();
  hosts[0].library_release = "0.9";
  hosts[1].library_problem = "cannot load it";
  EXPECT_THAT(kinds_of(check_hosts(hosts, 4)), ElementsAre("release", "library"));
}

TEST(PreflightFindings, only_what_is_certain_of_a_clock_counts) {
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  const std::vector<ClockOffset> offsets = {{.us = 0, .error_us = 100},
                                            {.us = -3e6, .error_us = 200},
                                            {.us = 80e3, .error_us = 200},
                                            {.us = 2e6, .error_us = 2e6}};
  const Findings findings = check_clocks(names, offsets);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_THAT(findings[0].sentence, HasSubstr("b: the clock is 3.00 s behind"));
  EXPECT_TRUE(findings[0].is_broken);
  EXPECT_THAT(findings[1].sentence, HasSubstr("c: the clock is 80.0 ms ahead of"));
  EXPECT_FALSE(findings[1].is_broken);
}

TEST(PreflightFindings, wrong_bytes_and_a_rate_below_the_demand_are_problems) {
  const std::vector<std::string> names = {"a", "b"};
  const std::vector<PairMeasurement> pairs = {{.a = 0, .b = 1, .gbit_per_s = 4.2, .is_right = false}};
  const LinkVerdict verdict = judge_links(2, pairs);
  EXPECT_THAT(kinds_of(check_links(names, pairs, verdict, 0)), ElementsAre("wrong-bytes"));
  EXPECT_THAT(kinds_of(check_links(names, pairs, verdict, 10)), ElementsAre("wrong-bytes", "rate"));
}

TEST(PreflightFindings, a_rate_that_no_pair_could_show_is_not_passed_over) {
  const std::vector<std::string> one = {"a"};
  const LinkVerdict verdict = judge_links(1, {});
  EXPECT_THAT(check_links(one, {}, verdict, 0), IsEmpty());
  const Findings findings = check_links(one, {}, verdict, 10);
  ASSERT_THAT(kinds_of(findings), ElementsAre("rate"));
  EXPECT_FALSE(findings[0].is_broken) << "a job on one host needs no network";
  EXPECT_EQ(findings[0].sentence,
            "--min-rate 10.0 Gbit/s was not checked, because a is the only host that answered; name the "
            "hosts of the job with -H "
            "or --hostfile");
}

TEST(PreflightFindings, a_clock_that_nothing_keeps_is_advice_in_the_words_of_doctor) {
  auto hosts = fleet();
  hosts[0].is_clock_synchronised = hosts[2].is_clock_synchronised = false;
  const Findings findings = check_hosts(hosts, 4);
  ASSERT_THAT(kinds_of(findings), ElementsAre("clock-sync"));
  EXPECT_FALSE(findings[0].is_broken);
  EXPECT_EQ(findings[0].sentence, "a and c: " + std::string(doctor::kNoTimeService));
}

TEST(PreflightFindings, a_card_that_is_hardly_used_is_advice) {
  auto hosts = fleet();
  for (HostFacts& facts : hosts) facts.card_mbit_per_s = 100'000;
  std::vector<PairMeasurement> pairs;
  for (const auto& [a, b] : {std::pair(0, 1), std::pair(0, 2), std::pair(1, 2)})
    pairs.push_back({.a = a, .b = b, .gbit_per_s = 20});
  const Findings findings = check_cards(hosts, judge_links(3, pairs));
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_FALSE(findings[0].is_broken);
  EXPECT_THAT(findings[0].sentence, HasSubstr("a reaches 20.0 Gbit/s of 100 Gbit/s"));
}

TEST(PreflightFindings, long_lists_of_hosts_are_shortened) {
  EXPECT_EQ(names_text(std::vector<std::string>{"a"}), "a");
  EXPECT_EQ(names_text(std::vector<std::string>{"a", "b"}), "a and b");
  EXPECT_EQ(names_text(std::vector<std::string>{"a", "b", "c", "d", "e"}), "a, b, c, d and e");
  EXPECT_EQ(names_text(std::vector<std::string>{"a", "b", "c", "d", "e", "f"}), "a, b, c, d and 2 others");
}

TEST(PreflightClocks, offsets_lie_within_their_bounds) {
  // Host 1 is 1000 us ahead, host 2 is 40 us behind. True times; a barrier ends after all have begun.
  const std::vector<int64_t> stamps = {100,  160,  200,  230,   // host 0
                                       1110, 1165, 1190, 1240,  // host 1
                                       50,   110,  165,  200};  // host 2
  const std::vector<ClockOffset> offsets = clock_offsets(stamps, 3);
  ASSERT_EQ(offsets.size(), 3U);
  EXPECT_NEAR(offsets[1].us - offsets[0].us, 1000, offsets[1].error_us);
  EXPECT_NEAR(offsets[2].us - offsets[0].us, -40, offsets[2].error_us);
  EXPECT_LT(offsets[1].error_us, 60);
  EXPECT_DOUBLE_EQ(offsets[0].us, 0);  // the median host
  // Seen from another median host, the error has both parts.
  const std::vector<ClockOffset> again =
      clock_offsets(std::vector<int64_t>{1110, 1165, 100, 160, 50, 110}, 3);
  EXPECT_DOUBLE_EQ(again[1].us, 0);
  EXPECT_NEAR(again[0].us, 1000, again[0].error_us);
  EXPECT_GT(again[0].error_us, 20);
}

TEST(PreflightLauncher, the_marked_line_is_found_among_others) {
  EXPECT_EQ(marked_line("hello\nmark {1}\nmark {2}\nbye", "mark "), "{2}");
  EXPECT_EQ(marked_line("a mark {1}\n", "mark "), "");
  EXPECT_EQ(marked_line("", "mark "), "");
}

TEST(PreflightLauncher, ranks_are_named_with_their_hosts) {
  std::vector<std::string> named;
  EXPECT_EQ(with_hosts("rank 2: no answer of rank 0, rank 2 or rank 9; a rank x", {"a", "a", "b"}, named),
            "rank 2 (on b): no answer of rank 0 (on a), rank 2 (on b) or rank 9; a rank x");
  EXPECT_THAT(named, ElementsAre("b", "a"));
}

TEST(PreflightLauncher, a_reason_is_one_line) {
  EXPECT_EQ(reason_of("rueda: no route\n\nssh: bye\n"), "no route; ssh: bye");
  EXPECT_EQ(reason_of(""), "");
  EXPECT_LT(reason_of(std::string(5000, 'x')).size(), 700U);
}

}  // namespace
}  // namespace rueda::preflight::findings_test
