// When rounds of negotiation begin on rank 0, and what leaves in them.
#include "rueda/control/rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control_fixture.h"

namespace rueda::control::rounds_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr size_t kIdle = 0;

Planner::Options planning_among(Rank ranks) { return {.may_plan = true, .ranks = ranks}; }

// Rank 0 of two.
class TwoRanks : public testing::Test {
 protected:
  explicit TwoRanks(Rounds::Options options = {}, CoordinatorOptions coordinator = world_of(2),
                    Planner::Options planner = planning_among(2))
      : planner_(std::move(planner)), rounds_(std::move(coordinator), options, planner_) {}

  void submit(const Request& request, int64_t plans_begun = 0) {
    for (Rank rank = 0; rank < 2; ++rank) rounds_.submitted(rank, plans_begun, {request}, now_, nullptr);
  }
  std::vector<std::vector<std::string>> round(size_t backlog = kIdle) {
    std::vector<std::vector<std::string>> out;
    last_round_ = rounds_.take_round(now_, backlog);
    for (const Response& response : last_round_) out.push_back(names(response));
    return out;
  }
  void hear(std::vector<Response>& responses) {
    for (Response& response : responses) EXPECT_TRUE(planner_.response(response, now_).is_ok());
  }
  // Submits, runs and answers the request, as often as it takes to begin a plan. False if it never does.
  bool learns(const Request& request) {
    for (int i = 0; i < 10; ++i) {
      submit(request);
      round();
      hear(last_round_);
      for (PlannerAction& action : rounds_.responded()) {
        auto* said = std::get_if<Respond>(&action);
        if (said == nullptr) continue;
        hear(said->responses);
        return true;
      }
    }
    return false;
  }

  Nanos now_ = kSecond;
  Planner planner_;
  Rounds rounds_;
  std::vector<Response> last_round_;
};

class Backlog : public TwoRanks {};

TEST_F(Backlog, what_becomes_ready_while_two_responses_are_in_progress_waits_and_is_fused) {
  submit(allreduce("a"));
  EXPECT_THAT(round(0), ElementsAre(ElementsAre("a")));
  submit(allreduce("b"));
  EXPECT_THAT(round(1), ElementsAre(ElementsAre("b")));
  submit(allreduce("c"));
  EXPECT_THAT(round(2), IsEmpty());
  submit(allreduce("d"));
  EXPECT_THAT(round(2), IsEmpty());
  EXPECT_THAT(round(1), ElementsAre(ElementsAre("c", "d")));
  EXPECT_THAT(round(1), IsEmpty());
}

// What the coordinator is told of ranks that have submitted the same object.
class SameRequests : public testing::Test {
 protected:
  static constexpr Rank kRanks = 4;

  struct Recorded : TraceSink {
    void record(const TraceSpan& span) override { spans.push_back(span); }
    [[nodiscard]] bool is_recording() const override { return true; }
    [[nodiscard]] bool wants_details() const override { return true; }
    std::vector<TraceSpan> spans;
  };

  SameRequests() : planner_({.may_plan = false, .ranks = kRanks}), rounds_(world_of(kRanks), {}, planner_) {}

  static SharedRequests made_of(std::vector<Request> requests) {
    return std::make_shared<const std::vector<Request>>(std::move(requests));
  }
  void submit(const RankSet& from, const SharedRequests& requests) {
    rounds_.submitted(from, 0, requests, now_++, trace_);
  }
  std::vector<std::string> round() {
    std::vector<std::string> out;
    for (const Response& response : rounds_.take_round(now_, kIdle))
      for (const std::string& name : names(response)) out.push_back(name);
    return out;
  }

  Nanos now_ = kSecond;
  TraceSink* trace_ = nullptr;
  Planner planner_;
  Rounds rounds_;
};

TEST_F(SameRequests, are_one_submission_of_all_these_ranks) {
  const SharedRequests step = made_of({allreduce("a"), allreduce("b")});
  for (Rank rank = 0; rank + 1 < kRanks; ++rank) submit(rank, step);
  EXPECT_THAT(rounds_.pending_summary(),
              AllOf(HasSubstr("a waits for rank 3"), HasSubstr("b waits for rank 3")));
  const std::vector<StalledTensor> waiting = rounds_.waiting_longer_than(kSecond, kSecond + kSecond);
  ASSERT_THAT(waiting, SizeIs(2)) << "since the first rank";
  EXPECT_THAT(round(), IsEmpty());
  submit(3, step);
  EXPECT_THAT(round(), ElementsAre("a", "b"));
  EXPECT_EQ(rounds_.pending_summary(), "");
}

TEST_F(SameRequests, of_a_rank_that_has_made_them_are_a_second_submission) {
  const SharedRequests step = made_of({allreduce("a")});
  for (const Rank rank : {0, 1, 1}) submit(rank, step);
  for (const Rank rank : {2, 3}) submit(rank, step);
  const std::vector<Response> responses = rounds_.take_round(now_, kIdle);
  ASSERT_THAT(responses, SizeIs(1));
  const auto* failure = std::get_if<Failure>(&responses[0]);
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->code, Code::kDuplicateName);
  EXPECT_THAT(failure->error, HasSubstr("Rank 1"));
}

TEST_F(SameRequests, of_a_rank_that_does_not_exist_are_refused_without_the_others) {
  const SharedRequests step = made_of({allreduce("a")});
  for (const Rank rank : {0, 7, 1, 2, 3}) submit(rank, step);
  EXPECT_THAT(round(), ElementsAre("a"));
}

TEST_F(SameRequests, are_recorded_when_each_rank_makes_them) {
  Recorded trace;
  trace_ = &trace;
  const SharedRequests step = made_of({allreduce("a")});
  for (Rank rank = 0; rank < kRanks; ++rank) submit(rank, step);
  ASSERT_THAT(trace.spans, SizeIs(kRanks));
  for (Rank rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(trace.spans[static_cast<size_t>(rank)].peer, rank);
    EXPECT_EQ(trace.spans[static_cast<size_t>(rank)].begin, kSecond + rank);
  }
}

class CycleTime : public TwoRanks {
 protected:
  CycleTime() : TwoRanks({.cycle_time = 5 * kMillisecond}) {}
};

TEST_F(CycleTime, a_round_begins_a_cycle_time_after_the_last_one_that_had_something_to_say) {
  EXPECT_THAT(round(), IsEmpty());
  EXPECT_LE(rounds_.next_round(), now_) << "an empty round delays nothing";
  submit(allreduce("a"));
  EXPECT_THAT(round(), SizeIs(1));
  EXPECT_EQ(rounds_.next_round(), now_ + 5 * kMillisecond);
  submit(allreduce("b"));
  now_ += 5 * kMillisecond - 1;
  EXPECT_THAT(round(), IsEmpty());
  submit(allreduce("c"));
  now_ += 1;
  EXPECT_THAT(round(), ElementsAre(ElementsAre("b", "c")));
}

class Plans : public TwoRanks {};

TEST_F(Plans, no_round_begins_while_a_plan_is_active) {
  ASSERT_TRUE(learns(allreduce("a")));
  EXPECT_EQ(planner_.plans_begun(), 1);
  submit(allreduce("b"), 1);
  EXPECT_THAT(round(), IsEmpty());
}

TEST_F(Plans, requests_from_before_a_plan_began_are_void) {
  ASSERT_TRUE(learns(allreduce("a")));
  submit(allreduce("b"), 0);
  EXPECT_EQ(rounds_.pending_summary(), "");
  rounds_.submitted(1, 1, {allreduce("b")}, now_, nullptr);
  EXPECT_THAT(rounds_.pending_summary(), HasSubstr("b waits for rank 0"));
}

TEST_F(Plans, what_waits_when_a_plan_begins_is_forgotten_for_the_ranks_repeat_it) {
  int steps = 0;
  for (PlannerActions begun; begun.empty() && steps < 10; ++steps) {
    submit(allreduce("a"));
    round();
    hear(last_round_);
    rounds_.submitted(1, 0, {allreduce("a")}, now_, nullptr);  // it is ahead
    begun = rounds_.responded();
    if (!begun.empty()) break;
    rounds_.submitted(0, 0, {allreduce("a")}, now_, nullptr);
    round();
    hear(last_round_);
  }
  ASSERT_LT(steps, 10);
  EXPECT_EQ(rounds_.pending_summary(), "");
}

// Integers run where no call can be cancelled.
BackendTraits integers_stay(int32_t, const Terms& terms) {
  return {.can_cancel = terms.dtype != DType::kInt32};
}

class TwoKinds : public TwoRanks {
 protected:
  TwoKinds() : TwoRanks({}, world_of(2), {.may_plan = true, .ranks = 2, .traits_of = integers_stay}) {}
};

TEST_F(TwoKinds, only_what_can_be_cancelled_becomes_a_plan) {
  EXPECT_FALSE(learns(allreduce("whole", {4}, DType::kInt32)));
  EXPECT_TRUE(learns(allreduce("real")));
}

class Stalls : public TwoRanks {};

TEST_F(Stalls, are_looked_for_when_one_may_have_begun_and_not_at_every_look) {
  EXPECT_THAT(rounds_.take_stalls(now_), IsEmpty());
  EXPECT_EQ(rounds_.next_stall_check(), now_ + 60 * kSecond);
  rounds_.submitted(1, 0, {allreduce("late")}, now_, nullptr);
  now_ += 60 * kSecond - 1;
  EXPECT_THAT(rounds_.take_stalls(now_), IsEmpty());
  now_ += 1;
  const std::vector<StallReport> reports = rounds_.take_stalls(now_);
  ASSERT_THAT(reports, SizeIs(1));
  EXPECT_THAT(reports[0].text, HasSubstr("0: [late]"));
  EXPECT_THAT(rounds_.take_stalls(now_), IsEmpty());
  EXPECT_EQ(rounds_.next_stall_check(), now_ + 60 * kSecond);
}

TEST_F(Stalls, of_joins_begin_when_the_last_call_has_ended) {
  submit(allreduce("long"));
  rounds_.submitted(0, 0, {join()}, now_, nullptr);
  round();
  now_ += 59 * kSecond;
  round(/*backlog=*/1);
  now_ += 59 * kSecond;
  EXPECT_THAT(rounds_.take_stalls(now_), IsEmpty());
  now_ += kSecond;
  EXPECT_THAT(rounds_.take_stalls(now_), SizeIs(1));
}

TEST_F(Stalls, are_reported_at_the_same_age_in_a_learned_plan) {
  StalledTensor wait{"planned", "ALLREDUCE", 0, 60 * kSecond - 1, {1}, {0}};
  EXPECT_THAT(rounds_.take_stalls(now_, {wait}), IsEmpty());
  wait.age += 1;
  const std::vector<StallReport> reports = rounds_.take_stalls(now_ + 1, {wait});
  ASSERT_THAT(reports, SizeIs(1));
  EXPECT_THAT(reports[0].text, HasSubstr("1: [planned]"));
  EXPECT_THAT(rounds_.take_stalls(now_ + kSecond, {wait}), IsEmpty()) << "once in the warning time";
}

}  // namespace
}  // namespace rueda::control::rounds_test
