#include "rueda/membership/cuts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rueda/membership/proposer.h"

namespace rueda::membership::cuts_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// "a0": a process on host a.
std::vector<Member> members(std::initializer_list<const char*> uids) {
  std::vector<Member> list;
  for (const char* uid : uids) list.push_back({.uid = uid, .host = std::string(1, uid[0])});
  return list;
}

Ready ready(const char* uid, const char* cut_from = "") {
  return {.uid = uid,
          .host = std::string(1, uid[0]),
          .after = 1,
          .commit = 4,
          .digest = {},
          .cut_from = cut_from};
}

Proposer job_of(const std::vector<Member>& first) {
  Proposer proposer(Rules{});
  proposer.on_view({.number = 1, .members = first, .lost = {}}, 0);
  return proposer;
}

std::vector<Uid> next_of(const Proposer& proposer) {
  std::vector<Uid> uids;
  if (const auto next = proposer.next())
    for (const Member& one : next->members) uids.push_back(one.uid);
  return uids;
}

TEST(Cuts, the_host_with_most_cut_links_is_left_out_even_if_it_has_rank_0) {
  const auto three = members({"a0", "a1", "b0", "c0"});
  EXPECT_THAT(left_out(three, {{"b0", "a0"}, {"c0", "a0"}, {"a0", "b0"}}), ElementsAre("a0", "a1"));
}

TEST(Cuts, of_two_hosts_the_younger_is_left_out) {
  EXPECT_THAT(left_out(members({"a0", "b0", "b1"}), {{"a0", "b1"}, {"b0", "a0"}}), ElementsAre("b0", "b1"));
}

TEST(Cuts, what_remains_has_no_cut_link) {
  const auto four = members({"a0", "b0", "c0", "d0"});
  EXPECT_THAT(left_out(four, {{"a0", "b0"}, {"c0", "d0"}}), ElementsAre("b0", "d0"));
}

TEST(Cuts, others_and_members_of_one_host_count_for_nothing) {
  EXPECT_THAT(left_out(members({"a0", "a1"}), {{"a0", "a1"}, {"a0", "x0"}, {"a0", ""}}), IsEmpty());
}

TEST(Cuts, a_member_that_is_cut_off_is_told_and_the_next_view_goes_on_without_it) {
  Proposer proposer = job_of(members({"a0", "b0", "c0"}));
  proposer.on_ready(ready("a0", "b0"), 1);
  proposer.on_ready(ready("b0", "a0"), 1);
  EXPECT_THAT(proposer.take_refused(), IsEmpty());
  proposer.on_ready(ready("c0", "a0"), 1);
  EXPECT_THAT(next_of(proposer), ElementsAre("b0", "c0"));
  const auto told = proposer.take_refused();
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].first, "a0");
  EXPECT_THAT(told[0].second, HasSubstr("excluded from view 2 of the job, because its host cannot reach"));
}

TEST(Cuts, a_member_that_is_gone_cuts_nothing) {
  Proposer proposer = job_of(members({"a0", "b0", "c0"}));
  proposer.on_ready(ready("a0", "b0"), 1);
  proposer.on_ready(ready("c0", "b0"), 1);
  proposer.on_gone("b0", 2);
  EXPECT_THAT(next_of(proposer), ElementsAre("a0", "c0"));
  EXPECT_THAT(proposer.take_refused(), IsEmpty());
}

TEST(Cuts, a_host_that_neither_members_nor_the_launcher_reach_is_not_waited_for) {
  Proposer proposer = job_of(members({"a0", "b0", "b1"}));
  proposer.on_ready(ready("a0", "b1"), 1);
  EXPECT_THAT(next_of(proposer), IsEmpty());
  proposer.on_silent("b0");
  EXPECT_THAT(next_of(proposer), IsEmpty());
  proposer.on_silent("b1");
  EXPECT_THAT(next_of(proposer), ElementsAre("a0"));
  EXPECT_THAT(proposer.take_refused(), SizeIs(2)) << "they find it when the network is back";
  proposer.on_ready(ready("b0"), 3);
  EXPECT_THAT(next_of(proposer), ElementsAre("a0"));
}

TEST(Cuts, a_silent_host_alone_is_waited_for) {
  Proposer proposer = job_of(members({"a0", "b0", "c0"}));
  proposer.on_silent("b0");
  proposer.on_ready(ready("a0"), 1);
  proposer.on_ready(ready("c0"), 1);
  EXPECT_THAT(next_of(proposer), IsEmpty());
}

}  // namespace
}  // namespace rueda::membership::cuts_test
