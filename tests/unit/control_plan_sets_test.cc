// Plans with operations of several process sets: when they are learned, what each rank starts, and how they
// end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "control_fixture.h"
#include "rueda/control/bucketing.h"
#include "rueda/control/plan_learner.h"
#include "rueda/control/plan_waits.h"
#include "rueda/control/plans.h"

namespace rueda::control {
namespace plan_sets_test {

using testing::ElementsAre;
using testing::HasSubstr;

struct Call {
  int32_t set = 0;
  std::string name;
};

TensorRequest request_of(const Call& call, int64_t number = 0) {
  TensorRequest request = allreduce(call.name);
  request.process_set = call.set;
  if (call.name.ends_with('.')) {  // the n-th of its set
    request.numbered_at = static_cast<uint16_t>(call.name.size());
    request.name += std::to_string(number);
  }
  return request;
}

Bucket bucket_of(const TensorRequest& request) {
  Bucket bucket;
  static_cast<Terms&>(bucket) = request;
  bucket.process_set = request.process_set;
  bucket.entries.push_back(
      {.name = request.name, .shape = request.shape, .rows = {}, .numbered_at = request.numbered_at});
  return bucket;
}

std::string text_of(const std::vector<Bucket>& plan) {
  std::string text;
  for (const Bucket& bucket : plan) {
    if (!text.empty()) text += ' ';
    text += std::to_string(bucket.process_set);
    for (const Entry& entry : bucket.entries) text += ':' + entry.name;
  }
  return text;
}

class LearnerOfSets : public testing::Test {
 protected:
  // Each call is submitted when all before it have run.
  void run(const std::vector<Call>& calls) {
    for (const Call& call : calls) {
      const TensorRequest request = request_of(call, ++numbers_[call.set]);
      learner_.saw_submission(request);
      learner_.saw_response(bucket_of(request));
    }
  }
  std::string plan() {
    const std::optional<std::vector<SeenTensor>> found = learner_.take_step(sets_);
    return found ? text_of(in_buckets(*found, sets_, {.bucket_bytes = 4096})) : "none";
  }
  std::string plan_of(const std::vector<Call>& step, int most = 10) {
    std::string found = "none";
    for (int i = 0; i < most && found == "none"; ++i) {
      run(step);
      found = plan();
    }
    return found;
  }

  SetMembers sets_ = {{1, {0, 1}}, {2, {2, 3}}, {3, {1, 2}}};
  PlanLearner learner_;
  std::map<int32_t, int64_t> numbers_;
};

TEST_F(LearnerOfSets, plans_what_recurs_in_several_sets) {
  EXPECT_EQ(plan_of({{0, "a"}, {1, "x"}, {2, "x"}, {3, "y"}}), "0:a 1:x 2:x 3:y");
}

TEST_F(LearnerOfSets, counts_numbers_in_each_set) {
  const std::string found = plan_of({{0, "call."}, {1, "call."}, {1, "call."}, {2, "call."}});
  EXPECT_EQ(found, "0:call.3 1:call.5 1:call.6 2:call.3");
}

TEST_F(LearnerOfSets, ranks_without_a_common_set_may_be_in_different_steps) {
  run({{1, "a"}, {2, "b"}, {1, "c"}, {1, "a"}, {1, "c"}, {1, "a"}});
  EXPECT_EQ(plan(), "none");
  run({{2, "b"}, {1, "c"}});
  EXPECT_EQ(plan(), "none") << "set 2 has run twice";
  run({{2, "b"}});
  EXPECT_EQ(plan(), "1:a 1:c 2:b");
}

// The first stages of a pipeline run ahead of the last ones.
TEST_F(LearnerOfSets, stages_of_a_pipeline_may_be_ahead_of_one_another) {
  run({{1, "f"}, {3, "f"}, {1, "f"}, {2, "f"}, {3, "f"}, {1, "f"}, {2, "f"}, {3, "f"}, {1, "f"}});
  EXPECT_EQ(plan(), "none");
  run({{2, "f"}});
  EXPECT_EQ(plan(), "3:f 1:f 2:f") << "the next one of rank 1 is that of set 3";
}

TEST_F(LearnerOfSets, waits_for_all_ranks_to_repeat_where_one_has_a_longer_step) {
  // Set 1 has one call, of which every second one is followed by one of set 3.
  EXPECT_EQ(plan_of({{1, "a"}, {1, "a"}, {3, "b"}, {2, "c"}}), "1:a 1:a 3:b 2:c");
}

TEST_F(LearnerOfSets, does_not_plan_what_only_some_ranks_repeat) {
  for (int i = 0; i < 60; ++i) {
    run({{1, "a"}, {2, "b" + std::to_string(i)}});
    EXPECT_EQ(plan(), "none");
  }
}

TEST_F(LearnerOfSets, overlooks_a_set_that_has_been_idle_for_long) {
  run({{3, "once"}});
  const std::string found = plan_of({{1, "a"}, {2, "b"}}, 200);
  EXPECT_EQ(found, "1:a 2:b");
}

// Copies of shards: {0, 1} and {2, 3} shard, and {0, 2} and {1, 3} add; all of the world met before.
TEST_F(LearnerOfSets, overlooks_the_world_where_all_have_become_sets) {
  sets_ = {{1, {0, 1}}, {2, {2, 3}}, {3, {0, 2}}, {4, {1, 3}}};
  run({{0, "once"}, {0, "twice"}});
  const std::string found =
      plan_of({{1, "s."}, {2, "s."}, {1, "t"}, {2, "t"}, {3, "c."}, {4, "c."}, {1, "s."}, {2, "s."}}, 200);
  EXPECT_THAT(found, testing::MatchesRegex("1:s.* 2:s.* 1:t 2:t 3:c.* 4:c.* 1:s.* 2:s.*"));
}

TEST_F(LearnerOfSets, does_not_know_who_is_in_a_set_that_is_gone) {
  sets_.erase(3);
  EXPECT_EQ(plan_of({{1, "a"}, {3, "b"}}), "none");
}

// Tensors of set 1 are submitted together; those of set 2 come between them, and those of set 3 have a rank
// in common with both.
TEST_F(LearnerOfSets, fuses_across_buckets_of_other_ranks_only) {
  const auto step = [&](const std::vector<Call>& calls) {
    for (const Call& call : calls) learner_.saw_submission(request_of(call));
    for (const Call& call : calls) learner_.saw_response(bucket_of(request_of(call)));
  };
  for (int i = 0; i < 3; ++i) step({{1, "a"}, {2, "b"}, {1, "c"}, {2, "d"}});
  EXPECT_EQ(plan(), "1:a:c 2:b:d");
  for (int i = 0; i < 3; ++i) step({{1, "a"}, {3, "b"}, {1, "c"}, {2, "d"}});
  EXPECT_EQ(plan(), "1:a 3:b 1:c 2:d");
}

// ---- running ----

std::vector<Bucket> buckets_of(const std::vector<Call>& calls) {
  std::vector<Bucket> buckets;
  for (const Call& call : calls) buckets.push_back(bucket_of(request_of(call)));
  return buckets;
}

// Plan: number 0 of the world, 1 of {0, 1}, 2 of {2, 3}, 3 of {1, 2}.
class Runner : public testing::Test {
 protected:
  void begin(Rank me) {
    ASSERT_TRUE(runner_.begin(1, me, buckets_of({{0, "a"}, {1, "x"}, {2, "x"}, {3, "y"}}), sets_).is_ok());
  }
  bool take(const Call& call) {
    const std::optional<size_t> position = runner_.position_of(request_of(call));
    if (position) runner_.accept(*position, request_of(call), ++operation_);
    return position.has_value();
  }
  int64_t start() {
    const int64_t number = runner_.started();
    if (runner_.next(number) == nullptr) return -1;
    runner_.start_next();
    return number;
  }

  SetMembers sets_ = {{1, {0, 1}}, {2, {2, 3}}, {3, {1, 2}}};
  PlanRunner runner_;
  OperationId operation_ = 0;
};

TEST_F(Runner, starts_the_buckets_of_its_sets_under_the_numbers_of_all) {
  begin(2);
  EXPECT_FALSE(take({1, "x"})) << "rank 2 is not in set 1";
  for (int pass = 0; pass < 3; ++pass) {
    EXPECT_TRUE(take({0, "a"}) && take({3, "y"}) && take({2, "x"}));
    EXPECT_EQ(start(), 4 * pass);
    EXPECT_EQ(start(), 4 * pass + 2);
    EXPECT_EQ(start(), 4 * pass + 3);
    EXPECT_EQ(start(), -1);
  }
}

TEST_F(Runner, does_not_start_a_bucket_again_that_has_not_ended) {
  begin(0);
  for (int pass = 0; pass < 2; ++pass) EXPECT_TRUE((pass == 0 || take({0, "a"})) || take({0, "a"}));
}

TEST_F(Runner, a_rank_without_buckets_starts_none_and_is_stuck_with_none) {
  ASSERT_TRUE(runner_.begin(1, 0, buckets_of({{2, "x"}, {3, "y"}}), sets_).is_ok());
  EXPECT_EQ(runner_.next(0), nullptr);
  EXPECT_EQ(runner_.lacks(), "");
  EXPECT_FALSE(take({2, "x"}));
  EXPECT_TRUE(runner_.finish(std::vector<int64_t>{7, 9}).is_ok()) << "whatever the others have run";
}

TEST_F(Runner, refuses_a_plan_that_does_not_say_who_is_in_a_set) {
  EXPECT_THAT(runner_.begin(1, 0, buckets_of({{7, "x"}}), sets_).why, HasSubstr("process set 7"));
}

TEST_F(Runner, gives_back_what_not_all_members_have_started_and_what_waits) {
  begin(1);
  EXPECT_TRUE(take({0, "a"}) && take({1, "x"}) && take({3, "y"}));
  EXPECT_EQ(start(), 0);
  EXPECT_EQ(start(), 1);
  EXPECT_EQ(start(), 3);
  EXPECT_TRUE(take({0, "a"}));
  EXPECT_FALSE(runner_.finish(std::vector<int64_t>{0, 2, 0, 0}).is_ok()) << "this rank has started it once";
  EXPECT_TRUE(runner_.is_active());
  // Rank 0 has not started x, but rank 2 has started y, which comes behind it.
  const Result<std::vector<LeftOver>> left = runner_.finish(std::vector<int64_t>{1, 0, 5, 1});
  ASSERT_TRUE(left.is_ok()) << left.status().why;
  std::vector<OperationId> operations;
  for (const LeftOver& one : left.value()) operations.push_back(one.operation);
  EXPECT_THAT(operations, ElementsAre(2, 4));
}

TEST_F(Runner, takes_a_name_that_recurs_within_a_pass_in_turn) {
  ASSERT_TRUE(runner_.begin(1, 0, buckets_of({{0, "a"}, {0, "b"}, {0, "b"}}), sets_).is_ok());
  for (int pass = 0; pass < 3; ++pass) {
    EXPECT_TRUE(take({0, "b"})) << "the first of them";
    EXPECT_EQ(start(), -1);
    EXPECT_TRUE(take({0, "a"}));
    EXPECT_EQ(start(), 3 * pass);
    EXPECT_EQ(start(), 3 * pass + 1);
    EXPECT_EQ(start(), -1);
    EXPECT_TRUE(take({0, "b"})) << "the second";
    EXPECT_EQ(start(), 3 * pass + 2);
  }
}

PlanReport at(int64_t started) { return {.plan_number = 4, .started = started, .under_way = {}}; }

class LedgerOfSets : public testing::Test {
 protected:
  LedgerOfSets() {
    ledger_.begin(4, 4, {0, 1, 2, 3}, {{1, {0, 1}}, {2, {2, 3}}, {3, {1, 2}}});
    ledger_.depart(4);
  }
  PlanLedger ledger_;
};

TEST_F(LedgerOfSets, a_bucket_has_run_if_all_its_members_have_started_it) {
  EXPECT_TRUE(ledger_.stopped_at(0, at(4)).is_ok()) << "0 and 1";
  EXPECT_TRUE(ledger_.stopped_at(1, at(4)).is_ok()) << "0, 1 and 3";
  EXPECT_TRUE(ledger_.stopped_at(2, at(6)).is_ok()) << "0, 2, 3 and again 0";
  const auto end = ledger_.stopped_at(3, at(2)).value();
  ASSERT_TRUE(end.has_value());
  EXPECT_THAT(end->runs, ElementsAre(1, 1, 0, 1)) << "rank 3 has not started number 2";
}

TEST_F(LedgerOfSets, ranks_that_share_no_bucket_may_be_many_passes_apart) {
  ledger_.begin(4, 4, {1, 2}, {{1, {0, 1}}, {2, {2, 3}}});
  ledger_.depart(4);
  EXPECT_TRUE(ledger_.stopped_at(0, at(200)).is_ok());
  EXPECT_TRUE(ledger_.stopped_at(2, at(3)).is_ok());
  EXPECT_FALSE(ledger_.stopped_at(1, at(196)).is_ok()) << "two runs less than rank 0";
  EXPECT_TRUE(ledger_.stopped_at(1, at(198)).is_ok());
  const auto end = ledger_.stopped_at(3, at(5)).value();
  ASSERT_TRUE(end.has_value());
  EXPECT_THAT(end->runs, ElementsAre(99, 1));
  EXPECT_FALSE(ledger_.is_active());
}

TEST_F(LedgerOfSets, knows_who_belongs_to_a_bucket) {
  EXPECT_THAT(ledger_.members_of(7), ElementsAre(1, 2));
  EXPECT_EQ(ledger_.set_of(7), 3);
  EXPECT_THAT(ledger_.members_of(4), ElementsAre(0, 1, 2, 3));
}

// ---- who waits for whom ----

class WaitsOfSets : public LedgerOfSets {
 protected:
  WaitsOfSets() {
    for (Facts& one : facts_) one.plan_number = 4;
  }
  void is_at(Rank rank, int64_t started, int64_t open, Nanos stuck_for, const std::string& lacks) {
    Facts& one = facts_[static_cast<size_t>(rank)];
    one.plan_started = started;
    one.plan_open = open;
    one.plan_stuck_for = stuck_for;
    one.plan_lacks = lacks;
  }
  std::vector<StalledTensor> waits() {
    std::vector<const Facts*> facts;
    for (const Facts& one : facts_) facts.push_back(&one);
    return plan_waits(facts, &ledger_);
  }
  std::array<Facts, 4> facts_;
};

// Rank 3 computes. Rank 2 waits for it in bucket 2, and rank 1 waits for rank 2 in bucket 3. Rank 0 is 100
// passes ahead in nothing: it has no tensor for the next bucket either, but nobody waits for it.
TEST_F(WaitsOfSets, names_who_lacks_a_tensor_and_nobody_who_waits_in_turn) {
  is_at(0, 4, -1, 0, "a");
  is_at(1, 4, 3, 7 * kSecond, "a");
  is_at(2, 3, 2, 9 * kSecond, "");
  is_at(3, 2, -1, 0, "x");
  const std::vector<StalledTensor> found = waits();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].name, "x");
  EXPECT_EQ(found[0].process_set, 2);
  EXPECT_EQ(found[0].age, 9 * kSecond);
  EXPECT_THAT(found[0].missing, ElementsAre(3));
  EXPECT_THAT(found[0].waiting, ElementsAre(2));
}

TEST_F(WaitsOfSets, says_nothing_while_the_plan_begins_or_ends_on_some_rank) {
  is_at(2, 3, 2, 9 * kSecond, "");
  is_at(3, 2, -1, 0, "x");
  EXPECT_EQ(waits().size(), 1u);
  facts_[0].plan_number = 0;
  EXPECT_TRUE(waits().empty());
  facts_[0].plan_number = 5;
  EXPECT_TRUE(waits().empty());
  for (Facts& one : facts_) one.plan_number = 5;
  EXPECT_TRUE(waits().empty()) << "facts of another plan than the one that is known";
}

}  // namespace plan_sets_test
}  // namespace rueda::control
