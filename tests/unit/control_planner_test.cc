// What one rank's planner decides, event by event.
#include "rueda/control/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control_fixture.h"

namespace rueda::control {
namespace {

template <class T>
std::vector<T> all_of(const Actions& actions) {
  std::vector<T> found;
  for (const Action& action : actions)
    if (const T* one = std::get_if<T>(&action)) found.push_back(*one);
  return found;
}

class OneRank : public testing::Test {
 protected:
  Actions respond(Response response) { return planner_.response(response, now_).value_or(Actions{}); }
  static Response bucket_of(const std::vector<std::string>& tensors) {
    Response bucket;
    bucket.kind = Response::Kind::kPlanBucket;
    for (const std::string& name : tensors)
      bucket.entries.push_back({.name = name, .shape = {4}, .rows = {}});
    return bucket;
  }
  Actions begin_plan(const std::vector<std::vector<std::string>>& buckets) {
    for (const auto& tensors : buckets) respond(bucket_of(tensors));
    Response begin;
    begin.kind = Response::Kind::kPlanBegin;
    begin.tag = ++generation_;
    return respond(begin);
  }
  Actions end_plan(int64_t after, std::vector<Flow> flows = {}) {
    Response end;
    end.kind = Response::Kind::kPlanEnd;
    end.tag = after;
    end.flows = std::move(flows);
    return respond(end);
  }
  Planner::Submitted submit(OperationId operation, const std::vector<Request>& requests) {
    std::vector<const Request*> pointers;
    for (const Request& request : requests) pointers.push_back(&request);
    return planner_.submitted(operation, pointers, now_);
  }

  Planner planner_{{.me = 1, .ranks = 3}};
  Nanos now_ = kSecond;
  int64_t generation_ = 0;
};

TEST_F(OneRank, takes_what_is_unanswered_when_a_plan_begins_and_negotiates_what_does_not_fit) {
  submit(1, {allreduce("answered")});
  submit(2, {allreduce("a")});
  submit(3, {allreduce("other")});
  Response answer;
  answer.entries.push_back({.name = "answered", .shape = {4}, .rows = {}});
  EXPECT_FALSE(planner_.response(answer, now_).has_value())
      << "it runs, and is none of the planner's business";
  const Actions actions = begin_plan({{"a", "b"}});
  const auto over = all_of<NegotiationOver>(actions);
  ASSERT_EQ(over.size(), 2u);
  EXPECT_TRUE(over[0].is_taken);
  EXPECT_FALSE(over[1].is_taken);
  EXPECT_EQ(all_of<TellDeparture>(actions).size(), 1u);
  const auto again = all_of<Negotiate>(actions);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].requests, std::vector<Request>{allreduce("other")});
  EXPECT_EQ(planner_.unanswered().size(), 1u);
}

TEST_F(OneRank, does_not_begin_again_what_it_is_told_to_forget) {
  submit(1, {allreduce("failed")});
  planner_.forget(1);
  EXPECT_TRUE(all_of<Negotiate>(begin_plan({{"a"}})).empty());
}

TEST_F(OneRank, an_answer_to_another_ranks_error_leaves_its_own_submission_open) {
  submit(1, {allreduce("x")});
  Response error;
  error.kind = Response::Kind::kError;
  error.entries.push_back({.name = "x", .shape = {4}, .rows = {}, .failed_ranks = {0, 2}});
  planner_.response(error, now_);
  EXPECT_EQ(planner_.unanswered().size(), 1u);
  error.entries[0].failed_ranks = {1};
  planner_.response(error, now_);
  EXPECT_TRUE(planner_.unanswered().empty());
}

TEST_F(OneRank, starts_buckets_in_order_and_only_when_all_their_tensors_are_ready) {
  begin_plan({{"a", "b"}, {"c"}});
  submit(1, {allreduce("c")});
  submit(2, {allreduce("a")});
  EXPECT_FALSE(planner_.idle(now_).has_value());
  submit(3, {allreduce("b")});
  EXPECT_EQ(names(*planner_.idle(now_).value().bucket), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(names(*planner_.idle(now_).value().bucket), (std::vector<std::string>{"c"}));
  EXPECT_FALSE(planner_.idle(now_).has_value());
}

TEST_F(OneRank, what_is_left_of_a_group_is_negotiated_as_no_group_and_a_whole_one_as_it_was) {
  const std::vector<Request> cut = group("cut", {allreduce("1"), allreduce("2")});
  const std::vector<Request> whole = group("whole", {allreduce("1"), allreduce("2")});
  begin_plan({{"cut_1of2"}, {"cut_2of2", "whole_1of2", "whole_2of2"}});
  EXPECT_TRUE(submit(1, cut).is_taken);
  EXPECT_TRUE(submit(2, whole).is_taken);
  planner_.idle(now_);
  planner_.idle(now_);  // both have started here, only the first everywhere
  const Actions actions = end_plan(1);
  EXPECT_EQ(all_of<Cancel>(actions).size(), 1u);
  const auto again = all_of<Negotiate>(actions);
  ASSERT_EQ(again.size(), 1u);
  Request rest = cut[1];
  rest.group_index = 0, rest.group_size = 1, rest.group_name.clear();
  EXPECT_EQ(again[0].requests, (std::vector<Request>{rest, whole[0], whole[1]}));
}

TEST_F(OneRank, takes_off_the_lanes_what_others_have_sent_for_a_bucket_it_has_not_started) {
  begin_plan({{"a"}, {"b"}});
  const Actions actions =
      end_plan(0, {{.from = 0, .to = 1, .messages = 2}, {.from = 0, .to = 2, .messages = 9}});
  EXPECT_TRUE(all_of<Cancel>(actions).empty());
  const auto drained = all_of<Drain>(actions);
  ASSERT_EQ(drained.size(), 1u);
  EXPECT_EQ(names(drained[0].bucket), std::vector<std::string>{"a"});
  EXPECT_EQ(drained[0].arrivals, (std::vector<int32_t>{2, 0, 0}));
}

TEST_F(OneRank, departs_once_when_it_waits_in_vain) {
  begin_plan({{"a", "b"}});
  submit(1, {allreduce("a")});
  EXPECT_TRUE(planner_.asks_for_wanted(now_, 1));
  EXPECT_TRUE(planner_.wanted(now_, 1, std::vector<std::string>{"elsewhere"}).empty());
  EXPECT_FALSE(planner_.asks_for_wanted(now_, 1)) << "nobody has begun to wait since";
  EXPECT_TRUE(planner_.asks_for_wanted(now_, 2));
  EXPECT_EQ(all_of<TellDeparture>(planner_.wanted(now_, 2, std::vector<std::string>{"a"})).size(), 1u);
  EXPECT_TRUE(planner_.depart("again").empty());
  EXPECT_TRUE(planner_.tick(now_ + 10 * kSecond, false).empty());
}

}  // namespace
}  // namespace rueda::control
