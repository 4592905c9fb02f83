// What one rank's planner decides, event by event.
#include "rueda/control/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control_fixture.h"
#include "rueda/control/respond.h"

namespace rueda::control::planner_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<std::string> names_in(const std::vector<Negotiate>& negotiated) {
  std::vector<std::string> names;
  for (const Negotiate& one : negotiated)
    for (const Request& request : one.requests) names.push_back(name_of(request).second);
  return names;
}

class OneRank : public testing::Test {
 protected:
  PlannerActions respond(Response response) {
    Result<std::optional<PlannerActions>> decided = planner_.response(response, now_);
    EXPECT_TRUE(decided.is_ok()) << decided.status().why;
    return decided.is_ok() ? std::move(decided).value().value_or(PlannerActions{}) : PlannerActions{};
  }
  // Why a response is refused; empty if it is not.
  std::string refusal(Response response) { return planner_.response(response, now_).status().why; }
  static Response bucket_of(const std::vector<std::string>& tensors) {
    PlanBucket planned;
    for (const std::string& name : tensors)
      planned.bucket.entries.push_back({.name = name, .shape = {4}, .rows = {}});
    return planned;
  }
  PlannerActions begin_plan(const std::vector<std::vector<std::string>>& buckets) {
    for (const auto& tensors : buckets) respond(bucket_of(tensors));
    size_ = std::ssize(buckets);
    return respond(PlanBegin{.plan_number = ++plan_number_, .sets = {}});
  }
  // Of a plan that has buckets of the world alone, of which so many have run.
  static PlanEnd end_after(int64_t buckets, int64_t size, std::vector<Flow> flows = {}) {
    PlanEnd end{.runs = {}, .flows = std::move(flows)};
    for (int64_t index = 0; index < size; ++index) end.runs.push_back(runs_before(buckets, index, size));
    return end;
  }
  PlannerActions end_plan(int64_t after, std::vector<Flow> flows = {}) {
    return respond(end_after(after, size_, std::move(flows)));
  }
  Planner::Decision submit(OperationId operation, const Tensors& requests) {
    std::vector<const TensorRequest*> pointers;
    for (const TensorRequest& request : requests) pointers.push_back(&request);
    return planner_.submitted(operation, pointers, now_);
  }

  Planner planner_{{.me = 1, .ranks = 3}};
  Nanos now_ = kSecond;
  int64_t plan_number_ = 0, size_ = 0;
};

TEST_F(OneRank, a_request_that_recurs_is_found_by_its_place_and_not_by_its_name) {
  const TensorRequest a = allreduce("a"), renamed = allreduce("z");
  const TensorRequest* const request = &a;
  const TensorRequest* const other = &renamed;
  PlanPlace place;
  PlanPlace* const kept = &place;
  const auto submit_again = [&](const TensorRequest* one) {
    return planner_.submitted(1, std::span(&one, 1), now_, std::span(&kept, 1)).positions.size() == 1;
  };
  begin_plan({{"b"}, {"a", "c"}});
  EXPECT_TRUE(submit_again(request));
  EXPECT_EQ(place.plan_number, 1);
  EXPECT_EQ(place.position, 1u);
  EXPECT_TRUE(submit(2, {allreduce("b"), allreduce("c")}).is_taken);
  while (planner_.room(now_, planner_.started())) {
  }
  EXPECT_TRUE(submit_again(other)) << "the caller says that it is the same request, so its name is not read";
  EXPECT_FALSE(submit_again(request)) << "it waits for its bucket";
  end_plan(2);
  begin_plan({{"a"}, {"b", "c"}});
  planner_.submitted(3, std::span(&other, 1), now_, std::span(&kept, 1));
  EXPECT_EQ(place.plan_number, 1) << "of a plan that is over, a place says nothing: the name is none of this";
}

TEST_F(OneRank, places_of_a_name_that_recurs_within_a_step_take_turns) {
  const TensorRequest a = allreduce("a");
  const TensorRequest* const request = &a;
  PlanPlace place;
  PlanPlace* const kept = &place;
  begin_plan({{"a"}, {"b"}, {"a"}});
  for (size_t pass = 0; pass < 3; ++pass) {
    for (const size_t position : {0u, 2u}) {
      const std::span<const size_t> found =
          planner_.submitted(1, std::span(&request, 1), now_, std::span(&kept, 1)).positions;
      ASSERT_EQ(found.size(), 1u);
      EXPECT_EQ(found.front(), position);
      if (position == 0) {
        EXPECT_TRUE(submit(2, {allreduce("b")}).is_taken);
      }
      while (planner_.room(now_, planner_.started())) {
      }
    }
  }
}

// Otherwise it would be negotiated before the tensor of the plan, which was submitted first, and with which
// it may share memory here or on another rank.
TEST_F(OneRank, what_is_not_in_the_plan_waits_for_its_end_and_is_negotiated_in_the_order_of_submission) {
  begin_plan({{"a"}, {"b"}});
  EXPECT_TRUE(submit(1, {allreduce("a")}).is_taken);
  TensorRequest shares = allreduce("c");
  shares.shares_memory = true;
  const Planner::Decision held = submit(2, {shares});
  EXPECT_TRUE(held.is_taken);
  ASSERT_EQ(all_of<TellDeparture>(held.actions).size(), 1u);
  const Planner::Decision other = submit(3, {allreduce("d")});
  EXPECT_TRUE(other.is_taken);
  EXPECT_TRUE(other.actions.empty()) << "it has departed already";
  EXPECT_TRUE(planner_.submitted(4, {remove_set(1)}).is_taken);
  EXPECT_TRUE(planner_.awaits_world() && planner_.awaits_answers());
  const std::vector<Negotiate> again = all_of<Negotiate>(end_plan(0));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(names_in(again), (std::vector<std::string>{"a", "c", "d", "remove_process_set"}));
  EXPECT_EQ(planner_.unanswered().size(), 4u);
  EXPECT_FALSE(submit(5, {allreduce("e")}).is_taken);
}

TEST_F(OneRank, takes_what_is_unanswered_when_a_plan_begins_and_holds_back_what_does_not_fit) {
  submit(1, {allreduce("answered")});
  submit(2, {allreduce("a")});
  submit(3, {allreduce("other")});
  Bucket bucket;
  bucket.entries.push_back({.name = "answered", .shape = {4}, .rows = {}});
  Response answer = bucket;
  EXPECT_FALSE(planner_.response(answer, now_).value().has_value())
      << "it runs, and is none of the planner's business";
  const PlannerActions actions = begin_plan({{"a", "b"}});
  EXPECT_EQ(all_of<TellDeparture>(actions).size(), 1u);
  EXPECT_TRUE(all_of<Negotiate>(actions).empty());
  EXPECT_TRUE(planner_.unanswered().empty());
  EXPECT_EQ(names_in(all_of<Negotiate>(end_plan(0))), (std::vector<std::string>{"a", "other"}));
}

TEST_F(OneRank, a_change_of_process_sets_departs_from_the_plan_and_is_negotiated_again_after_its_end) {
  EXPECT_FALSE(planner_.submitted(1, {add_set({0})}).is_taken) << "there is no plan yet";
  EXPECT_EQ(all_of<TellDeparture>(begin_plan({{"a"}})).size(), 1u);
  EXPECT_EQ(names_in(all_of<Negotiate>(end_plan(0))), std::vector<std::string>{"add_process_set"});
  EXPECT_FALSE(planner_.submitted(2, {remove_set(1)}).is_taken);
  Response added = SetAdded{.names = {"add_process_set"}, .id = 1, .ranks = {0}};
  respond(added);
  EXPECT_FALSE(planner_.unanswered().contains(1));
  EXPECT_TRUE(planner_.unanswered().contains(2));
  begin_plan({{"a"}});
  EXPECT_EQ(names_in(all_of<Negotiate>(end_plan(0))), std::vector<std::string>{"remove_process_set"});
}

TEST_F(OneRank, does_not_begin_again_what_it_is_told_to_forget) {
  submit(1, {allreduce("failed")});
  planner_.forget(1);
  EXPECT_TRUE(all_of<Negotiate>(begin_plan({{"a"}})).empty());
}

TEST_F(OneRank, an_answer_to_another_ranks_error_leaves_its_own_submission_open) {
  submit(1, {allreduce("x")});
  Response error = make_failure(0, {{.name = "x", .ranks = {0, 2}}}, {Code::kMismatch, "why"});
  respond(error);
  EXPECT_EQ(planner_.unanswered().size(), 1u);
  std::get<Failure>(error).failed[0].ranks = {1};
  respond(error);
  EXPECT_TRUE(planner_.unanswered().empty());
}

TEST_F(OneRank, starts_buckets_in_order_and_only_when_all_their_tensors_are_ready) {
  begin_plan({{"a", "b"}, {"c"}});
  submit(1, {allreduce("c")});
  submit(2, {allreduce("a")});
  EXPECT_FALSE(planner_.room(now_, planner_.started()).has_value());
  submit(3, {allreduce("b")});
  EXPECT_EQ(names(*planner_.room(now_, planner_.started()).value().bucket),
            (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(names(*planner_.room(now_, planner_.started()).value().bucket), (std::vector<std::string>{"c"}));
  EXPECT_FALSE(planner_.room(now_, planner_.started()).has_value());
}

TensorRequest call(int64_t number) {
  TensorRequest request = allreduce("call " + std::to_string(number));
  request.numbered_at = 5;
  return request;
}

TEST_F(OneRank, takes_names_with_the_next_number_and_no_other) {
  PlanBucket planned;
  for (const char* name : {"call 7", "call 8"})
    planned.bucket.entries.push_back({.name = name, .shape = {4}, .rows = {}, .numbered_at = 5, .stride = 2});
  respond(planned);
  size_ = 1;
  respond(PlanBegin{.plan_number = 1, .sets = {}});
  EXPECT_EQ(planner_.place(now_, true).lacks, "call 9");
  EXPECT_EQ(submit(1, {call(9)}).positions.front(), 0u);
  EXPECT_EQ(planner_.place(now_, true).lacks, "call 10");
  EXPECT_EQ(submit(2, {call(10)}).positions.front(), 1u);
  ASSERT_TRUE(planner_.room(now_, 0).has_value());
  EXPECT_TRUE(submit(3, {call(11)}).is_taken);
  EXPECT_TRUE(submit(4, {call(12)}).is_taken);
  EXPECT_FALSE(planner_.room(now_, 0).has_value()) << "the bucket has not ended since it was started last";
  const Planner::Decision early = submit(5, {call(13)});
  EXPECT_TRUE(early.positions.empty()) << "two more of its kind would wait";
  EXPECT_EQ(all_of<TellDeparture>(early.actions).size(), 1u);
  EXPECT_EQ(names_in(all_of<Negotiate>(end_plan(0))),
            (std::vector<std::string>{"call 9", "call 10", "call 11", "call 12", "call 13"}))
      << "what was started and cancelled, what waited, and what did not fit";
}

TEST_F(OneRank, refuses_a_plan_whose_tensors_cannot_be_told_apart) {
  respond(bucket_of({"a", "a"}));
  EXPECT_THAT(refusal(PlanBegin{.plan_number = 1, .sets = {}}), HasSubstr("has tensor a twice"));
}

TEST_F(OneRank, takes_what_has_the_rows_and_the_root_of_the_plan) {
  PlanBucket gather, broadcast, exchange;
  gather.bucket.what = Collective::kAllgather;
  gather.bucket.entries.push_back({.name = "g", .shape = {5, 3}, .rows = {5, 2, 0}});
  broadcast.bucket.what = Collective::kBroadcast;
  broadcast.bucket.root = 2;
  broadcast.bucket.entries.push_back({.name = "b", .shape = {4}, .rows = {}});
  exchange.bucket.what = Collective::kAlltoall;
  exchange.bucket.entries.push_back({.name = "x", .shape = {6}, .rows = {1, 2, 3, 4, 0, 2, 9, 9, 9}});
  const auto begin = [&] {
    for (const PlanBucket& planned : {gather, broadcast, exchange}) respond(planned);
    size_ = 3;
    respond(PlanBegin{.plan_number = ++plan_number_, .sets = {}});
  };
  const auto is_planned = [&](TensorRequest request) {
    begin();
    const bool is_taken = !submit(1, {std::move(request)}).positions.empty();
    end_plan(0);
    return is_taken;
  };
  EXPECT_TRUE(is_planned(collective(Collective::kAllgather, "g", {2, 3})));
  EXPECT_FALSE(is_planned(collective(Collective::kAllgather, "g", {5, 3}))) << "these are the rows of rank 0";
  EXPECT_FALSE(is_planned(collective(Collective::kAllgather, "g", {2, 4})));
  TensorRequest root = collective(Collective::kBroadcast, "b");
  root.root = 2;
  EXPECT_TRUE(is_planned(root));
  root.root = 1;
  EXPECT_FALSE(is_planned(root));
  TensorRequest to_each = collective(Collective::kAlltoall, "x", {6});
  to_each.splits = {4, 0, 2};
  EXPECT_TRUE(is_planned(to_each));
  to_each.splits = {4, 1, 1};
  EXPECT_FALSE(is_planned(to_each));
}

TEST_F(OneRank, what_is_left_of_a_group_is_negotiated_as_no_group_and_a_whole_one_as_it_was) {
  const Tensors cut = group("cut", {allreduce("1"), allreduce("2")});
  const Tensors whole = group("whole", {allreduce("1"), allreduce("2")});
  begin_plan({{"cut_1of2"}, {"cut_2of2", "whole_1of2", "whole_2of2"}});
  EXPECT_TRUE(submit(1, cut).is_taken);
  EXPECT_TRUE(submit(2, whole).is_taken);
  planner_.room(now_, planner_.started());
  planner_.room(now_, planner_.started());  // both have started here, only the first everywhere
  const PlannerActions actions = end_plan(1);
  EXPECT_EQ(all_of<Cancel>(actions).size(), 1u);
  const auto again = all_of<Negotiate>(actions);
  ASSERT_EQ(again.size(), 1u);
  TensorRequest rest = cut[1];
  rest.group_index = 0, rest.group_size = 1, rest.group_name.clear();
  EXPECT_EQ(again[0].requests, (std::vector<Request>{rest, whole[0], whole[1]}));
}

TEST_F(OneRank, takes_off_the_channels_what_others_have_sent_for_a_bucket_it_has_not_started) {
  begin_plan({{"a"}, {"b"}});
  const PlannerActions actions =
      end_plan(0, {{.from = 0, .to = 1, .messages = 2}, {.from = 0, .to = 2, .messages = 9}});
  EXPECT_TRUE(all_of<Cancel>(actions).empty());
  const auto discarded = all_of<Discard>(actions);
  ASSERT_EQ(discarded.size(), 1u);
  EXPECT_EQ(names(discarded[0].bucket), std::vector<std::string>{"a"});
  EXPECT_EQ(discarded[0].arrivals, (std::vector<int32_t>{2, 0, 0}));
}

TEST_F(OneRank, several_buckets_under_way_are_each_undone_by_their_number) {
  begin_plan({{"a"}, {"b"}, {"c"}});
  for (const std::string name : {"a", "b"}) submit(name == "a" ? 1 : 2, {allreduce(name)});
  EXPECT_EQ(planner_.room(now_, planner_.started()).value().number, 0);
  EXPECT_EQ(planner_.room(now_, planner_.started()).value().number, 1);
  const PlannerActions actions = end_plan(0, {{.bucket = 0, .from = 2, .to = 1, .messages = 3},
                                              {.bucket = 1, .from = 0, .to = 1, .messages = 1},
                                              {.bucket = 2, .from = 0, .to = 1, .messages = 5}});
  const auto cancelled = all_of<Cancel>(actions);
  ASSERT_EQ(cancelled.size(), 2u);
  EXPECT_EQ(cancelled[0].number, 0);
  EXPECT_EQ(cancelled[0].arrivals, (std::vector<int32_t>{0, 0, 3}));
  EXPECT_EQ(cancelled[1].number, 1);
  EXPECT_EQ(cancelled[1].arrivals, (std::vector<int32_t>{1, 0, 0}));
  const auto discarded = all_of<Discard>(actions);
  ASSERT_EQ(discarded.size(), 1u);
  EXPECT_EQ(discarded[0].number, 2);
  EXPECT_EQ(names(discarded[0].bucket), std::vector<std::string>{"c"});
  const auto again = all_of<Negotiate>(actions);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].requests, (std::vector<Request>{allreduce("a"), allreduce("b")}));
}

TEST(PlanLedger, tells_of_every_bucket_that_not_all_ranks_have_started) {
  PlanLedger ledger;
  ledger.begin(4, 3, {0, 0});
  EXPECT_TRUE(ledger.depart(4));
  const auto stopped_at = [&](Rank rank, const PlanReport& position) {
    return ledger.stopped_at(rank, position).value();
  };
  EXPECT_FALSE(
      stopped_at(0, {.plan_number = 4, .started = 7, .under_way = {{5, {0, 1, 1}}, {6, {0, 2, 0}}}}));
  EXPECT_FALSE(stopped_at(1, {.plan_number = 4, .started = 5, .under_way = {{4, {8, 0, 8}}}}));
  const auto end =
      stopped_at(2, {.plan_number = 4, .started = 6, .under_way = {{4, {9, 9, 0}}, {5, {3, 0, 0}}}});
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->runs, (std::vector<int64_t>{3, 2})) << "bucket 4, which has index 0, runs on all ranks";
  EXPECT_EQ(end->flows, (std::vector<Flow>{{.bucket = 5, .from = 0, .to = 1, .messages = 1},
                                           {.bucket = 5, .from = 0, .to = 2, .messages = 1},
                                           {.bucket = 6, .from = 0, .to = 1, .messages = 2},
                                           {.bucket = 5, .from = 2, .to = 0, .messages = 3}}));
}

TEST(PlanLedger, refuses_a_position_that_nobody_asked_for_or_that_is_a_round_away_from_another) {
  PlanLedger ledger;
  ledger.begin(4, 3, {0, 0});
  const auto stopped_at = [&](Rank rank, int64_t started) {
    return ledger.stopped_at(rank, {.plan_number = 4, .started = started, .under_way = {}});
  };
  EXPECT_THAT(stopped_at(1, 5).status().why, HasSubstr("asked"));
  EXPECT_TRUE(ledger.depart(4));
  EXPECT_TRUE(stopped_at(0, 5).is_ok());
  for (const int64_t impossible : {int64_t{2}, int64_t{8}, INT64_MAX}) {
    EXPECT_THAT(stopped_at(1, impossible).status().why,
                AllOf(HasSubstr(std::to_string(impossible)), HasSubstr("plan 4")));
  }
  EXPECT_TRUE(stopped_at(1, 3).is_ok());
  EXPECT_FALSE(stopped_at(2, 6).is_ok()) << "rank 1 is at 3";
  EXPECT_EQ(stopped_at(2, 4).value()->runs, (std::vector<int64_t>{2, 1}));
}

TEST_F(OneRank, refuses_an_end_that_contradicts_what_it_has_started_and_keeps_its_plan) {
  EXPECT_THAT(refusal(PlanEnd{}), HasSubstr("runs none"));
  begin_plan({{"a"}});
  for (int step = 0; step < 2; ++step) {
    submit(step, {allreduce("a")});
    ASSERT_TRUE(planner_.room(now_, planner_.started()).has_value());
  }
  const std::string ahead = refusal(end_after(3, 1));
  EXPECT_THAT(ahead, AllOf(HasSubstr("plan 1"), HasSubstr("after 3 runs"), HasSubstr("started it 2")));
  EXPECT_THAT(refusal(end_after(0, 1)), HasSubstr("after 0 runs")) << "a whole round is not undone";
  EXPECT_THAT(refusal(end_after(2, 2)), HasSubstr("the runs of 2")) << "it has one bucket";
  EXPECT_TRUE(planner_.has_plan());
  EXPECT_EQ(all_of<Cancel>(end_plan(1)).size(), 1u);
}

TEST_F(OneRank, refuses_a_plan_without_buckets_and_one_that_begins_within_another) {
  EXPECT_THAT(refusal(PlanBegin{.plan_number = 1, .sets = {}}), HasSubstr("without buckets"));
  begin_plan({{"a"}});
  respond(bucket_of({"b"}));
  EXPECT_THAT(refusal(PlanBegin{.plan_number = 2, .sets = {}}), HasSubstr("before another"));
}

TEST_F(OneRank, stays_in_the_plan_while_one_rank_is_slow_and_departs_when_patience_ends) {
  begin_plan({{"a"}});
  submit(1, {allreduce("a")});
  ASSERT_TRUE(planner_.room(now_, planner_.started()).has_value());
  for (int second = 1; second <= 5; ++second) {
    planner_.moved(now_ + second * kSecond);
    EXPECT_TRUE(planner_.tick(now_ + second * kSecond + kSecond / 2, false).empty());
  }
  EXPECT_TRUE(planner_.tick(now_ + 100 * kSecond, false).empty());
  EXPECT_EQ(all_of<TellDeparture>(planner_.tick(now_ + 126 * kSecond, false)).size(), 1u);
}

// Rank 0 may wait for b before it starts a, and this rank submits c when a has ended.
TEST_F(OneRank, departs_with_a_part_of_a_bucket_while_another_bucket_does_not_go_on) {
  begin_plan({{"a"}, {"c"}, {"b"}});
  submit(1, {allreduce("a")});
  submit(2, {allreduce("b")});
  ASSERT_TRUE(planner_.room(now_, planner_.started()).has_value());
  EXPECT_TRUE(planner_.tick(now_ + 4 * kSecond, false).empty());
  planner_.moved(now_ + 4 * kSecond);
  EXPECT_TRUE(planner_.tick(now_ + 8 * kSecond, false).empty());
  EXPECT_EQ(all_of<TellDeparture>(planner_.tick(now_ + 10 * kSecond, false)).size(), 1u);
}

TEST_F(OneRank, says_where_it_is_in_the_plan_and_what_it_lacks) {
  EXPECT_EQ(planner_.place(now_, true).plan_number, 0);
  begin_plan({{"a"}, {"b", "c"}});
  submit(1, {allreduce("a")});
  ASSERT_TRUE(planner_.room(now_, planner_.started()).has_value());
  submit(2, {allreduce("b")});
  const Planner::Progress place = planner_.place(now_ + 3 * kSecond, false);
  EXPECT_EQ(place.plan_number, 1);
  EXPECT_EQ(place.started, 1);
  EXPECT_EQ(place.stuck_for, 3 * kSecond);
  EXPECT_EQ(place.lacks, "c");
}

TEST_F(OneRank, departs_once_when_it_waits_in_vain) {
  begin_plan({{"a", "b"}});
  submit(1, {allreduce("a")});
  EXPECT_TRUE(planner_.asks_for_wanted(now_, 1));
  EXPECT_TRUE(planner_.wanted(now_, 1, [](size_t) { return false; }).empty());
  EXPECT_FALSE(planner_.asks_for_wanted(now_, 1)) << "nobody has begun to wait since";
  EXPECT_TRUE(planner_.asks_for_wanted(now_, 2));
  EXPECT_EQ(
      all_of<TellDeparture>(planner_.wanted(now_, 2, [](size_t position) { return position == 0; })).size(),
      1u);
  EXPECT_TRUE(planner_.depart("again").empty());
  EXPECT_TRUE(planner_.tick(now_ + 10 * kSecond, false).empty());
}

}  // namespace
}  // namespace rueda::control::planner_test
