#include "rueda/membership/proposer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "rueda/membership/member.h"

namespace rueda::membership::proposer_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

View first_view(std::initializer_list<const char*> uids) {
  View view{.number = 1, .members = {}, .lost = {}};
  for (const char* uid : uids) view.members.push_back({.uid = uid, .host = std::string(1, uid[0])});
  return view;
}

Ready ready(const char* uid, int64_t after, Commit commit, std::string digest = "") {
  return {.uid = uid,
          .host = std::string(1, uid[0]),
          .after = after,
          .commit = commit,
          .digest = std::move(digest)};
}

std::vector<Uid> uids(const View& view) {
  std::vector<Uid> list;
  for (const Member& one : view.members) list.push_back(one.uid);
  return list;
}

Proposer three_members(Rules rules = {}) {
  Proposer proposer(rules);
  proposer.on_view(first_view({"a0", "a1", "b0"}), 0);
  return proposer;
}

TEST(Proposer, waits_until_every_member_is_gone_or_ready) {
  Proposer proposer = three_members();
  proposer.on_gone("a1", 10);
  EXPECT_FALSE(proposer.next());
  proposer.on_ready(ready("b0", 1, 4), 11);
  EXPECT_FALSE(proposer.next());
  proposer.on_ready(ready("a0", 1, 5), 12);
  ASSERT_TRUE(proposer.next());
  const View next = *proposer.next();
  EXPECT_EQ(next.number, 2);
  EXPECT_THAT(uids(next), ElementsAre("a0", "b0"));
  EXPECT_THAT(next.lost, ElementsAre("a1"));
  EXPECT_EQ(next.commit(), 5);
  EXPECT_THAT(next.holders(), ElementsAre(0));
  EXPECT_THAT(next.joined(), IsEmpty());
}

TEST(Proposer, puts_a_new_process_beside_its_host_and_behind_its_elders) {
  Proposer proposer = three_members();
  proposer.on_gone("a1", 10);
  proposer.on_ready(ready("a2", 0, 99), 10);
  proposer.on_ready(ready("a0", 1, 5), 12);
  proposer.on_ready(ready("b0", 1, 5), 12);
  const View next = *proposer.next();
  EXPECT_THAT(uids(next), ElementsAre("a0", "a2", "b0"));
  EXPECT_THAT(next.joined(), ElementsAre(1));
  EXPECT_EQ(next.commit(), 5) << "a new process holds nothing, whatever it says";
}

TEST(Proposer, does_not_go_back_to_a_statement_about_an_older_view) {
  Proposer proposer = three_members();
  View second = first_view({"a0", "b0"});
  second.number = 2;
  proposer.on_view(second, 0);
  proposer.on_ready(ready("a0", 1, 5), 1);
  proposer.on_ready(ready("b0", 1, 5), 1);
  EXPECT_FALSE(proposer.next());
  EXPECT_FALSE(proposer.is_forming());
}

TEST(Proposer, remembers_what_it_heard_of_a_view_before_it_saw_it) {
  Proposer proposer = three_members();
  View second = first_view({"a0", "b0", "c0"});
  second.number = 2;
  for (const char* uid : {"a0", "b0"}) proposer.on_ready(ready(uid, 2, 5), 1);
  proposer.on_gone("c0", 2);
  proposer.on_view(second, 3);
  ASSERT_TRUE(proposer.next());
  EXPECT_THAT(uids(*proposer.next()), ElementsAre("a0", "b0"));
}

TEST(Proposer, ends_the_job_if_nobody_holds_the_commit_of_the_view) {
  Proposer proposer{Rules{}};
  View view = first_view({"a0", "b0"});
  view.members[0].commit = 7;
  proposer.on_view(view, 0);
  proposer.on_gone("a0", 1);
  proposer.on_ready(ready("b0", 1, kNoCommit), 2);
  EXPECT_FALSE(proposer.next());
  EXPECT_THAT(proposer.verdict(3), HasSubstr("no process is left that holds commit 7"));
}

TEST(Proposer, waits_for_enough_members_and_then_names_the_number) {
  Proposer proposer = three_members({.least = 3, .timeout = 100});
  proposer.on_gone("a1", 10);
  proposer.on_ready(ready("a0", 1, 5), 12);
  proposer.on_ready(ready("b0", 1, 5), 12);
  EXPECT_FALSE(proposer.next());
  EXPECT_EQ(proposer.verdict(109), "");
  EXPECT_THAT(proposer.verdict(110), HasSubstr("there were 2 processes"));
  EXPECT_THAT(proposer.verdict(110), HasSubstr("enough resources to run at least 3 Horovod processes"));
  proposer.on_ready(ready("c0", 0, kNoCommit), 111);
  EXPECT_EQ(proposer.verdict(112), "");
  EXPECT_EQ(proposer.next()->size(), 3);
}

TEST(Proposer, counts_resets) {
  Proposer proposer = three_members({.most_resets = 0});
  EXPECT_EQ(proposer.verdict(1), "");
  proposer.on_gone("a1", 10);
  EXPECT_FALSE(proposer.next());
  EXPECT_THAT(proposer.verdict(10), HasSubstr("exceeded limit: 0"));
}

TEST(Proposer, has_no_more_members_than_allowed) {
  Proposer proposer = three_members({.most = 3});
  proposer.on_ready(ready("c0", 0, kNoCommit), 1);
  EXPECT_FALSE(proposer.wants_change());
  proposer.on_gone("a1", 2);
  for (const char* uid : {"a0", "b0"}) proposer.on_ready(ready(uid, 1, 1), 3);
  proposer.on_ready(ready("c1", 0, kNoCommit), 4);
  EXPECT_THAT(uids(*proposer.next()), ElementsAre("a0", "b0", "c0"));
}

TEST(Proposer, wants_a_change_when_a_process_can_join_or_a_member_is_to_leave) {
  Proposer proposer = three_members();
  EXPECT_FALSE(proposer.wants_change());
  proposer.on_ready(ready("c0", 0, kNoCommit), 1);
  EXPECT_TRUE(proposer.wants_change());
  EXPECT_FALSE(proposer.is_forming()) << "the members are still at work";
  Proposer other = three_members();
  other.on_leaving("a1");
  EXPECT_TRUE(other.wants_change());
  for (const char* uid : {"a0", "a1", "b0"}) other.on_ready(ready(uid, 1, 1), 3);
  EXPECT_THAT(uids(*other.next()), ElementsAre("a0", "b0"));
  EXPECT_THAT(other.next()->lost, ElementsAre("a1"));
}

TEST(Proposer, keeps_a_member_that_was_to_leave_if_nobody_else_holds_the_state_any_more) {
  Proposer proposer = three_members();
  proposer.on_leaving("a0");
  proposer.on_leaving("b0");
  for (const char* uid : {"a0", "b0"}) proposer.on_ready(ready(uid, 1, 7), 1);
  EXPECT_FALSE(proposer.next()) << "a1 may still come";
  proposer.on_gone("a1", 2);
  ASSERT_TRUE(proposer.next());
  EXPECT_THAT(uids(*proposer.next()), ElementsAre("a0", "b0"));
  EXPECT_EQ(proposer.next()->commit(), 7);
  EXPECT_EQ(proposer.verdict(3), "");

  proposer.on_view(*proposer.next(), 4);
  EXPECT_FALSE(proposer.wants_change()) << "nobody could stay";
  proposer.on_ready(ready("c0", 0, kNoCommit), 5);
  EXPECT_TRUE(proposer.wants_change()) << "somebody can join";
  for (const char* uid : {"a0", "b0"}) proposer.on_ready(ready(uid, 2, 9), 6);
  proposer.on_view(*proposer.next(), 7);
  EXPECT_THAT(uids(proposer.view()), ElementsAre("a0", "b0", "c0"));
  EXPECT_TRUE(proposer.wants_change()) << "they can leave now";
  for (const char* uid : {"a0", "b0", "c0"}) proposer.on_ready(ready(uid, 3, 10), 8);
  EXPECT_THAT(uids(*proposer.next()), ElementsAre("c0"));
}

TEST(Proposer, another_state_is_a_reason_only_where_both_have_said_what_theirs_is) {
  EXPECT_THAT(why_not_admitted(ready("c0", 0, kNoCommit, "x"), "y"), HasSubstr("names, shapes or types"));
  EXPECT_EQ(why_not_admitted(ready("c0", 0, kNoCommit, "x"), "x"), "");
  EXPECT_EQ(why_not_admitted(ready("c0", 0, kNoCommit, "x"), ""), "");
  EXPECT_EQ(why_not_admitted(ready("c0", 0, kNoCommit), "y"), "");
}

TEST(Proposer, refuses_a_process_with_another_state_once_and_goes_on) {
  Proposer proposer = three_members();
  proposer.on_ready(ready("c0", 0, kNoCommit, "other"), 1);
  for (const char* uid : {"a0", "a1", "b0"}) proposer.on_ready(ready(uid, 1, 1, "model"), 3);
  const auto refused = proposer.take_refused();
  ASSERT_EQ(refused.size(), 1);
  EXPECT_EQ(refused[0].first, "c0");
  EXPECT_THAT(refused[0].second, HasSubstr("names, shapes or types"));
  EXPECT_THAT(proposer.take_refused(), IsEmpty());
  EXPECT_THAT(uids(*proposer.next()), ElementsAre("a0", "a1", "b0"));
  proposer.on_ready(ready("c0", 0, kNoCommit, "other"), 4);
  EXPECT_EQ(proposer.next()->size(), 3);
}

TEST(Proposer, refuses_another_state_while_the_members_are_at_work) {
  Proposer proposer = three_members();
  for (const char* uid : {"a0", "a1", "b0"}) proposer.on_ready(ready(uid, 1, 1, "model"), 3);
  proposer.on_view(*proposer.next(), 4);
  proposer.on_ready(ready("c0", 0, kNoCommit, "other"), 5);
  EXPECT_EQ(proposer.take_refused().size(), 1);
  EXPECT_FALSE(proposer.wants_change());
  proposer.on_ready(ready("c1", 0, kNoCommit, "model"), 6);
  EXPECT_TRUE(proposer.wants_change());
}

TEST(Proposer, names_members_for_whom_the_others_wait_in_vain) {
  Proposer proposer = three_members({.timeout = 100});
  proposer.on_ready(ready("a0", 1, 1), 5);
  proposer.on_ready(ready("a1", 1, 1), 6);
  EXPECT_THAT(proposer.silent(104), IsEmpty());
  EXPECT_THAT(proposer.silent(105), ElementsAre("b0"));
}

TEST(Membership, leaves_for_good_and_joins_a_later_view_with_another_rank) {
  Membership me("b0", "b");
  EXPECT_EQ(me.on_view(first_view({"a0", "b0"})), Membership::Outcome::kInstalled);
  EXPECT_FALSE(me.has_left());
  EXPECT_EQ(me.leave(3, "model"), ready("b0", 1, 3, "model"));
  EXPECT_EQ(me.on_view(first_view({"a0", "b0"})), Membership::Outcome::kNoNews);
  EXPECT_TRUE(me.has_left());
  View second = first_view({"b0"});
  second.number = 2;
  EXPECT_EQ(me.on_view(second), Membership::Outcome::kInstalled);
  View third = first_view({"c0"});
  third.number = 3;
  EXPECT_EQ(me.on_view(third), Membership::Outcome::kExcluded);
  EXPECT_TRUE(me.has_left());
}

TEST(Membership, waits_through_views_to_which_it_does_not_belong_yet) {
  Membership me("c0", "c");
  EXPECT_EQ(me.on_view(first_view({"a0", "b0"})), Membership::Outcome::kNoNews);
  EXPECT_EQ(me.leave(kNoCommit, "").after, 0);
}

TEST(View, positions_count_hosts_with_such_a_local_rank) {
  const View view = first_view({"a0", "a1", "b0", "c0", "c1"});
  EXPECT_EQ(position_of(0, view),
            (Position{.local_rank = 0, .local_size = 2, .cross_rank = 0, .cross_size = 3}));
  EXPECT_EQ(position_of(2, view),
            (Position{.local_rank = 0, .local_size = 1, .cross_rank = 1, .cross_size = 3}));
  EXPECT_EQ(position_of(4, view),
            (Position{.local_rank = 1, .local_size = 2, .cross_rank = 1, .cross_size = 2}));
}

TEST(View, survives_the_wire) {
  View view = first_view({"a0", "b0"});
  view.members[1] = {.uid = "b0", .host = "b", .commit = 12, .is_new = true};
  view.lost = {"c0"};
  EXPECT_EQ(decode_view(encode(view)).value(), view);
  const Ready said = ready("b0", 3, 12, "model");
  EXPECT_EQ(decode_ready(encode(said)).value(), said);
}

TEST(View, garbage_is_refused_or_decoded_but_never_trusted) {
  const Bytes good = encode(first_view({"a0", "b0"}));
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(decode_view(std::span(good).first(size)).is_ok());
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): a fixed seed
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes(random() % 64);
    for (std::byte& one : bytes) one = static_cast<std::byte>(random());
    (void)decode_view(bytes).is_ok();
    (void)decode_ready(bytes).is_ok();
  }
}

}  // namespace
}  // namespace rueda::membership::proposer_test
