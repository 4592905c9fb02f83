#include "launch/hosts.h"

#include <gmock/gmock.h>

namespace rueda::launch::hosts_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<HostSlots> hosts_of(std::string_view text) {
  Result<std::vector<HostSlots>> hosts = parse_hosts(text);
  EXPECT_TRUE(hosts.is_ok()) << hosts.status().why;
  return hosts.is_ok() ? hosts.value() : std::vector<HostSlots>();
}

TEST(Hosts, text_gives_names_and_slots) {
  EXPECT_THAT(hosts_of("a:2,b.example.org:3"), ElementsAre(HostSlots{"a", 2}, HostSlots{"b.example.org", 3}));
}

TEST(Hosts, missing_number_is_one_slot) { EXPECT_THAT(hosts_of("a"), ElementsAre(HostSlots{"a", 1})); }

TEST(Hosts, address_of_ipv6_stands_in_brackets) {
  EXPECT_THAT(hosts_of("[fe80::1]:2,[::1]"), ElementsAre(HostSlots{"fe80::1", 2}, HostSlots{"::1", 1}));
}

TEST(Hosts, name_given_twice_adds_its_slots) {
  EXPECT_THAT(hosts_of("a:1,b:1,a:2"), ElementsAre(HostSlots{"a", 3}, HostSlots{"b", 1}));
}

TEST(Hosts, user_of_ssh_may_be_part_of_the_name) {
  EXPECT_THAT(hosts_of("me@a:2"), ElementsAre(HostSlots{"me@a", 2}));
}

class BadHosts : public ::testing::TestWithParam<const char*> {};

TEST_P(BadHosts, text_is_refused_with_horovods_sentence) {
  const Result<std::vector<HostSlots>> hosts = parse_hosts(GetParam());
  ASSERT_FALSE(hosts.is_ok());
  EXPECT_THAT(hosts.status().why,
              HasSubstr("Invalid host input, please make sure it has format as : worker-0:2,worker-1:2."));
}

// One that begins with a dash would be an option of ssh.
INSTANTIATE_TEST_SUITE_P(All, BadHosts,
                         ::testing::Values("", "a:", "a:b", "a:0", "a:-1", "a:2,", "a:2:3",
                                           "-oProxyCommand=x:2", "a b:1", "a:99999999999", "[::1",
                                           "$(id):1"));

TEST(Hostfile, knows_both_forms_comments_and_blank_lines) {
  const Result<std::vector<HostSlots>> hosts =
      parse_hostfile("# cluster\n\na slots=2\nb:3   # spare\n  c\t\r\nd slots=4 max_slots=8\n", "F");
  ASSERT_TRUE(hosts.is_ok()) << hosts.status().why;
  EXPECT_THAT(hosts.value(),
              ElementsAre(HostSlots{"a", 2}, HostSlots{"b", 3}, HostSlots{"c", 1}, HostSlots{"d", 4}));
}

TEST(Hostfile, bad_line_is_named_by_number_and_file) {
  const Result<std::vector<HostSlots>> hosts = parse_hostfile("a slots=2\nb slot=2\n", "/etc/hosts.txt");
  ASSERT_FALSE(hosts.is_ok());
  EXPECT_THAT(hosts.status().why, HasSubstr("line 2 of /etc/hosts.txt is \"b slot=2\""));
}

TEST(Hostfile, file_without_hosts_is_refused) { EXPECT_FALSE(parse_hostfile("# nothing\n", "F").is_ok()); }

TEST(Placement, fills_host_by_host_and_starts_exactly_as_many) {
  const std::vector<HostSlots> hosts = {{"a", 2}, {"b", 4}, {"c", 1}};
  const Result<std::vector<Placement>> places = place_ranks(hosts, 5);
  ASSERT_TRUE(places.is_ok());
  EXPECT_THAT(places.value(), ElementsAre(Placement{0, 0, 2, 0, 2, 0}, Placement{1, 1, 2, 0, 2, 0},
                                          Placement{2, 0, 3, 1, 2, 1}, Placement{3, 1, 3, 1, 2, 1},
                                          Placement{4, 2, 3, 0, 1, 1}));
}

TEST(Placement, too_few_slots_is_horovods_sentence) {
  const std::vector<HostSlots> hosts = {{"a", 2}, {"b", 2}};
  EXPECT_EQ(place_ranks(hosts, 6).status().why,
            "Requested more processes (6) than there are available slots (4)");
}

TEST(Placement, fewer_than_one_is_refused) {
  const std::vector<HostSlots> hosts = {{"a", 2}};
  EXPECT_FALSE(place_ranks(hosts, 0).is_ok());
  EXPECT_FALSE(place_ranks(hosts, -3).is_ok());
}

}  // namespace
}  // namespace rueda::launch::hosts_test
