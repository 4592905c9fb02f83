#include "rueda/membership/agreement.h"

#include <gtest/gtest.h>

namespace rueda::membership::agreement_test {
namespace {

View view_of(int64_t number, std::initializer_list<const char*> uids) {
  View view{.number = number, .members = {}, .lost = {}};
  for (const char* uid : uids) view.members.push_back({.uid = uid, .host = std::string(1, uid[0])});
  return view;
}

// The stores of the voters.
struct Stores {
  std::map<Uid, Vote> votes;

  // Whoever is named answers until nothing is asked of them.
  void answer(Agreement& attempt, const std::set<Uid>& who) {
    for (bool is_asked = true; is_asked;) {
      is_asked = false;
      for (const Agreement::Request& one : attempt.requests()) {
        if (!who.contains(one.to)) continue;
        Vote& vote = votes[one.to];
        if (vote == one.expected) vote = one.next;
        attempt.on_vote(one.to, vote);
        is_asked = true;
        break;
      }
    }
  }
};

TEST(Agreement, a_majority_decides_and_a_minority_does_not) {
  const View last = view_of(1, {"a", "b", "c"}), next = view_of(2, {"a", "b"});
  Stores stores;
  Agreement attempt({1, "a"}, last, next, {});
  stores.answer(attempt, {"a"});
  EXPECT_EQ(attempt.decided(), nullptr);
  attempt.on_lost("b");
  attempt.on_lost("c");
  EXPECT_TRUE(attempt.is_out_of_reach());
  EXPECT_EQ(attempt.in_reach(), 1u);
  Agreement again({2, "a"}, last, next, {});
  stores.answer(again, {"a", "b"});
  ASSERT_NE(again.decided(), nullptr);
  EXPECT_EQ(*again.decided(), next);
}

TEST(Agreement, what_may_have_been_decided_is_adopted) {
  const View last = view_of(1, {"a", "b", "c"});
  Stores stores;
  Agreement first({1, "a"}, last, view_of(2, {"a", "b"}), {});
  stores.answer(first, {"a", "b"});
  ASSERT_NE(first.decided(), nullptr);
  Agreement rival({1, "b"}, last, view_of(2, {"b", "c"}), {});
  stores.answer(rival, {"b", "c"});
  ASSERT_NE(rival.decided(), nullptr);
  EXPECT_EQ(*rival.decided(), *first.decided());
}

TEST(Agreement, one_that_is_outbid_tries_again_above_its_rival) {
  const View last = view_of(1, {"a", "b", "c"});
  Stores stores;
  stores.votes["a"] = promise({}, {5, "c"});
  Agreement attempt({1, "b"}, last, view_of(2, {"b", "c"}), {});
  stores.answer(attempt, {"a", "b"});
  EXPECT_TRUE(attempt.is_outbid());
  EXPECT_TRUE(attempt.requests().empty());
  attempt.retry();
  EXPECT_EQ(attempt.ballot().round, 6);
  stores.answer(attempt, {"a", "b"});
  EXPECT_NE(attempt.decided(), nullptr);
}

// A proposer may ask for a next attempt after the decision, which it has not looked at.
TEST(Agreement, what_is_decided_stays_when_a_rival_came_late) {
  const View last = view_of(1, {"a", "b", "c"}), next = view_of(2, {"a", "b"});
  Stores stores;
  Agreement attempt({1, "a"}, last, next, {});
  attempt.on_vote("c", promise({}, {9, "c"}));
  attempt.retry();
  stores.answer(attempt, {"a", "b"});
  attempt.on_vote("c", promise({}, {90, "c"}));
  attempt.retry();
  ASSERT_NE(attempt.decided(), nullptr);
  EXPECT_EQ(*attempt.decided(), next);
}

TEST(Agreement, half_of_the_members_decide_if_the_others_have_ended) {
  const View last = view_of(1, {"a", "b"}), next = view_of(2, {"a"});
  Stores stores;
  Agreement unsure({1, "a"}, last, next, {});
  unsure.on_lost("b");
  EXPECT_TRUE(unsure.is_out_of_reach());
  Agreement sure({2, "a"}, last, next, {"b"});
  EXPECT_FALSE(sure.is_out_of_reach());
  stores.answer(sure, {"a"});
  EXPECT_NE(sure.decided(), nullptr);
  EXPECT_FALSE(is_quorum(1, 2, 3)) << "two that have ended may have decided with nobody else";
}

TEST(Agreement, half_of_the_members_decide_if_the_others_end_while_they_are_asked) {
  const View last = view_of(1, {"a", "b", "c", "d"}), next = view_of(2, {"a", "b", "c"});
  Stores stores;
  Agreement attempt({1, "a"}, last, next, {"d"});
  stores.answer(attempt, {"a", "c"});
  attempt.on_ended("c");
  EXPECT_FALSE(attempt.is_out_of_reach());
  EXPECT_EQ(attempt.in_reach(), 2u);
  stores.answer(attempt, {"a", "b"});
  ASSERT_NE(attempt.decided(), nullptr);
  EXPECT_EQ(*attempt.decided(), next);
}

TEST(Agreement, what_those_that_have_ended_agreed_to_makes_no_half) {
  const View last = view_of(1, {"a", "b", "c", "d"});
  Stores stores;
  Agreement one({1, "a"}, last, view_of(2, {"a", "c"}), {}),
      other({1, "b"}, last, view_of(2, {"b", "d"}), {});
  stores.answer(one, {"a", "c"});
  stores.answer(other, {"b", "d"});
  for (const char* ended : {"c", "d"}) {
    one.on_ended(ended);
    other.on_ended(ended);
  }
  stores.answer(one, {"a"});
  stores.answer(other, {"b"});
  EXPECT_EQ(one.decided(), nullptr);
  EXPECT_EQ(other.decided(), nullptr);
}

TEST(Agreement, comes_too_late_where_a_member_knows_the_decision) {
  Agreement attempt({1, "a"}, view_of(1, {"a", "b", "c"}), view_of(2, {"a"}), {});
  attempt.on_vote("b", closed());
  EXPECT_TRUE(attempt.is_too_late());
  EXPECT_TRUE(attempt.requests().empty());
}

TEST(Vote, bytes_bring_back_every_vote_and_refuse_others) {
  const Vote accepted = accept({3, "a:1#2"}, view_of(2, {"a", "b"}));
  for (const Vote& vote : {Vote{}, promise({}, {7, "b"}), accepted, promise(accepted, {9, "c"}), closed()})
    EXPECT_EQ(decode_vote(encode(vote)).value(), vote);
  EXPECT_EQ(decode_vote({}).value(), Vote{}) << "a member that has said nothing";
  Bytes cut = encode(accepted);
  cut.pop_back();
  EXPECT_FALSE(decode_vote(cut).is_ok());
  Vote unpromised = accepted;
  unpromised.promised = {};
  EXPECT_FALSE(decode_vote(encode(unpromised)).is_ok());
}

}  // namespace
}  // namespace rueda::membership::agreement_test
