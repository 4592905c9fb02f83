#include "bench/link_commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <set>

namespace rueda::bench::link_commands_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> lines_of(int hosts, int64_t rate, const Faults& faults = {}) {
  std::vector<std::string> namespaces, lines;
  for (int host = 0; host < hosts; ++host) namespaces.push_back(fmt::format("/proc/1/fd/{}", host));
  for (const LinkCommand& command : link_commands(namespaces, rate, faults))
    lines.push_back(fmt::format("{}: {}", command.host, fmt::join(command.argv, " ")));
  return lines;
}

TEST(SpacePlan, every_host_is_limited_in_both_directions) {
  const std::vector<std::string> lines = lines_of(3, 1'000'000'000);
  for (int host = 0; host < 3; ++host) {
    EXPECT_THAT(lines, Contains(fmt::format(
                           "-1: ip link add port{0} type veth peer name net0 netns /proc/1/fd/{0}", host)));
    EXPECT_THAT(lines,
                Contains(fmt::format("-1: tc qdisc add dev port{} root tbf rate 1000000000bit burst 131072 "
                                     "limit 3611152",
                                     host)));
    EXPECT_THAT(lines,
                Contains(fmt::format("{}: tc qdisc add dev net0 root tbf rate 1000000000bit burst 131072 "
                                     "limit 1514000",
                                     host)));
    EXPECT_THAT(lines, Contains(fmt::format("{}: ip addr add 10.77.0.{}/16 dev net0", host, host + 1)));
  }
}

TEST(SpacePlan, a_slow_host_has_another_rate_in_both_directions) {
  const std::vector<std::string> lines = lines_of(3, 1'000'000'000, {.hosts = {{1, 250'000'000}}});
  for (const auto& [device, host] : {std::pair("port1", -1), std::pair("net0", 1)})
    EXPECT_THAT(lines, Contains(StartsWith(
                           fmt::format("{}: tc qdisc add dev {} root tbf rate 250000000bit", host, device))));
  EXPECT_THAT(lines, Contains(StartsWith("2: tc qdisc add dev net0 root tbf rate 1000000000bit")));
}

TEST(SpacePlan, a_slow_pair_is_limited_in_both_directions_and_the_ports_stay_as_they_are) {
  const std::vector<std::string> lines = lines_of(3, 1'000'000'000, {.pairs = {{2, 0, 100'000'000}}});
  for (const auto& [host, other] : {std::pair(0, 2), std::pair(2, 0)}) {
    EXPECT_THAT(lines, Contains(fmt::format("{}: tc class add dev net0 parent 1:1 classid 1:3 htb rate "
                                            "100000000bit ceil 100000000bit burst 131072 cburst 131072 "
                                            "quantum 65536",
                                            host)));
    EXPECT_THAT(lines, Contains(StartsWith(fmt::format(
                           "{}: tc class add dev net0 parent 1:1 classid 1:2 htb rate 900000000bit ceil "
                           "1000000000bit",
                           host))));
    EXPECT_THAT(lines,
                Contains(fmt::format("{}: tc filter add dev net0 parent 1: protocol ip prio 1 u32 match "
                                     "ip dst {}/32 flowid 1:3",
                                     host, host_address(other))));
    EXPECT_THAT(lines, Not(Contains(HasSubstr(fmt::format("{}: tc qdisc add dev net0 root tbf", host)))));
  }
  EXPECT_THAT(lines, Contains(StartsWith("1: tc qdisc add dev net0 root tbf rate 1000000000bit")));
}

TEST(SpacePlan, what_is_promised_to_pairs_and_others_is_the_rate_of_the_port) {
  const std::vector<std::string> lines = lines_of(3, 900, {.pairs = {{0, 1, 800}, {0, 2, 700}}});
  for (const char* part : {"1:3 htb rate 300bit ceil 800bit", "1:4 htb rate 300bit ceil 700bit",
                           "1:2 htb rate 300bit ceil 900bit", "1:1 htb rate 900bit ceil 900bit"})
    EXPECT_THAT(lines, Contains(HasSubstr(std::string("0: tc class add dev net0 parent 1") +
                                          (part[2] == '1' ? ":" : ":1") + " classid " + part)));
}

TEST(SpacePlan, no_command_runs_in_the_machines_own_network) {
  for (const LinkCommand& command : link_commands(std::vector<std::string>{"/proc/1/fd/3"}, 1'000'000'000))
    EXPECT_TRUE(command.host == kSwitch || command.host == 0);
}

TEST(SpacePlan, a_veth_is_made_before_it_is_used) {
  std::set<std::string> made;
  for (const std::string& line : lines_of(4, 5'000'000'000)) {
    if (const size_t at = line.find("ip link add port"); at != std::string::npos)
      made.insert(line.substr(at + 12, 5));
    if (const size_t at = line.find("dev port"); at != std::string::npos) {
      EXPECT_THAT(made, Contains(line.substr(at + 4, 5))) << line;
    }
  }
  EXPECT_EQ(made.size(), 4U);
}

TEST(SpacePlan, bursts_never_fall_below_two_offloaded_segments) {
  for (const int64_t rate : {1'000'000L, 1'000'000'000L, 5'000'000'000L, 100'000'000'000L}) {
    EXPECT_GE(shaping_of(rate).burst_bytes, 128 * 1024) << rate;
    EXPECT_GE(shaping_of(rate).limit_bytes, 2 * shaping_of(rate).burst_bytes) << rate;
  }
}

TEST(SpacePlan, a_host_queues_as_many_frames_as_linux_does_by_default) {
  EXPECT_EQ(shaping_of(1'000'000).limit_bytes, 1'514'000);
  EXPECT_EQ(shaping_of(1'000'000'000).limit_bytes, 1'514'000);
  EXPECT_EQ(shaping_of(100'000'000'000).limit_bytes, 10'000'000);
}

TEST(SpacePlan, addresses_of_many_hosts_differ_and_end_in_no_zero) {
  std::set<std::string> addresses;
  for (int host = 0; host < 600; ++host) addresses.insert(host_address(host));
  EXPECT_EQ(addresses.size(), 600U);
  EXPECT_EQ(host_address(249), "10.77.0.250");
  EXPECT_EQ(host_address(250), "10.77.1.1");
}

}  // namespace
}  // namespace rueda::bench::link_commands_test
