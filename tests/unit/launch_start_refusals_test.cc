// One cause is said once, with the hosts that have it.
#include "launch/start_refusals.h"

#include <gtest/gtest.h>

#include <vector>

namespace rueda::launch::start_refusals_test {
namespace {

Refusal refused(const std::string& host, const std::string& why) {
  return {.host = host, .before = "the agent of ", .after = " has ended: " + why};
}

Refusal by_ssh(const std::string& host) {
  return refused(host, "ssh: connect to host " + host + " (10.0.0." + std::to_string(host.size()) +
                           ") port 22: Connection refused");
}

TEST(StartRefusals, hosts_with_one_cause_are_one_group) {
  std::vector<Refusal> refusals;
  for (int i = 1; i <= 39; ++i) refusals.push_back(by_ssh("h" + std::to_string(i)));
  refusals.push_back(refused("login", "no such file"));
  EXPECT_EQ(
      list_refusals(refusals),
      "39 hosts (h1, h2, h3 and 36 more): the agent of … has ended: ssh: connect to host … (…) port 22: "
      "Connection refused; the agent of login has ended: no such file");
}

TEST(StartRefusals, a_few_hosts_are_all_named) {
  std::vector<Refusal> refusals;
  for (int i = 1; i <= 10; ++i) refusals.push_back(by_ssh("node" + std::to_string(i)));
  EXPECT_TRUE(list_refusals(refusals).starts_with(
      "10 hosts (node1, node2, node3, node4, node5, node6, node7, node8, node9, node10): the agent"));
}

TEST(StartRefusals, one_host_has_its_own_words) {
  EXPECT_EQ(list_refusals(std::vector{refused("b", "ssh to b (10.0.0.7) failed"), refused("c", "no route")}),
            "the agent of b has ended: ssh to b (10.0.0.7) failed; the agent of c has ended: no route");
}

TEST(StartRefusals, a_name_within_a_word_is_not_the_host) {
  EXPECT_EQ(list_refusals(std::vector{refused("h1", "h10 is wrong"), refused("h2", "h10 is wrong")}),
            "2 hosts (h1, h2): the agent of … has ended: h10 is wrong");
}

TEST(StartRefusals, other_numbers_stay) {
  EXPECT_EQ(list_refusals(
                std::vector{refused("a", "code 1.2.3. Ver. 7..."), refused("b", "code 1.2.3. Ver. 7...")}),
            "2 hosts (a, b): the agent of … has ended: code 1.2.3. Ver. 7...");
}

}  // namespace
}  // namespace rueda::launch::start_refusals_test
