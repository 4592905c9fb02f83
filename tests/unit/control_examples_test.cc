// The worked example at the top of planner.h.
#include <gtest/gtest.h>

#include "control_fixture.h"
#include "rueda/control/planner.h"

namespace rueda::control::examples_test {
namespace {

std::vector<std::string> negotiated(const PlannerActions& actions) {
  std::vector<std::string> names;
  for (const Negotiate& one : all_of<Negotiate>(actions))
    for (const Request& request : one.requests) names.push_back(name_of(request).second);
  return names;
}

PlannerActions respond(Planner& planner, Response response) {
  Result<std::optional<PlannerActions>> decided = planner.response(response, kSecond);
  EXPECT_TRUE(decided.is_ok()) << decided.status().why;
  return decided.is_ok() ? std::move(decided).value().value_or(PlannerActions{}) : PlannerActions{};
}

Planner::Decision submit(Planner& planner, OperationId operation, const char* name) {
  const TensorRequest request = allreduce(name);
  const TensorRequest* const pointer = &request;
  return planner.submitted(operation, std::span(&pointer, 1), kSecond);
}

PlanBucket bucket_of(const std::vector<std::string>& tensors) {
  PlanBucket planned;
  for (const std::string& name : tensors)
    planned.bucket.entries.push_back({.name = name, .shape = {4}, .rows = {}});
  return planned;
}

// Both ranks begin plan 1 and run its first pass: buckets 0 and 1.
void run_first_pass(Planner& planner) {
  respond(planner, bucket_of({"a", "b"}));
  respond(planner, bucket_of({"c"}));
  respond(planner, PlanBegin{.plan_number = 1, .sets = {}});
  OperationId operation = 0;
  for (const char* name : {"a", "b", "c"}) EXPECT_TRUE(submit(planner, ++operation, name).is_taken);
  EXPECT_EQ(planner.room(kSecond, planner.started()).value().number, 0);
  EXPECT_EQ(planner.room(kSecond, planner.started()).value().number, 1);
}

TEST(PlannerExample, a_bucket_that_one_rank_has_not_started_is_cancelled_on_the_other_and_negotiated) {
  Planner zero({.me = 0, .ranks = 2}), one({.me = 1, .ranks = 2});
  PlanLedger ledger;
  ledger.begin(1, 2, {0, 0});
  for (Planner* planner : {&zero, &one}) run_first_pass(*planner);

  submit(zero, 4, "a");
  EXPECT_FALSE(zero.room(kSecond, zero.started())) << "b is missing";
  submit(zero, 5, "b");
  EXPECT_EQ(zero.room(kSecond, zero.started()).value().number, 2);
  const std::vector<TellDeparture> departed = all_of<TellDeparture>(submit(one, 4, "x").actions);
  ASSERT_EQ(departed.size(), 1u);
  EXPECT_EQ(departed[0].news.started, 2);
  ASSERT_TRUE(ledger.depart(departed[0].news.plan_number));

  PlanReport of_zero = all_of<TellPosition>(zero.on_freeze(departed[0].news)).at(0).news;
  const PlanReport of_one = all_of<TellPosition>(one.on_freeze(departed[0].news)).at(0).news;
  EXPECT_EQ(of_zero.started, 3);
  EXPECT_EQ(of_one.started, 2);
  of_zero.under_way = {{.bucket = 2, .sent = {0, 4}}};  // the caller adds it
  EXPECT_FALSE(ledger.stopped_at(0, of_zero).value());
  const PlanLedger::End end = ledger.stopped_at(1, of_one).value().value();
  EXPECT_EQ(end.runs, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(end.flows, (std::vector<Flow>{{.bucket = 2, .from = 0, .to = 1, .messages = 4}}));

  const PlannerActions on_zero = respond(zero, PlanEnd{.runs = end.runs, .flows = end.flows});
  ASSERT_EQ(all_of<Cancel>(on_zero).size(), 1u);
  EXPECT_EQ(all_of<Cancel>(on_zero)[0].number, 2);
  EXPECT_EQ(all_of<Cancel>(on_zero)[0].arrivals, (std::vector<int32_t>{0, 0}));
  EXPECT_EQ(negotiated(on_zero), (std::vector<std::string>{"a", "b"}));
  const PlannerActions on_one = respond(one, PlanEnd{.runs = end.runs, .flows = end.flows});
  ASSERT_EQ(all_of<Discard>(on_one).size(), 1u);
  EXPECT_EQ(all_of<Discard>(on_one)[0].number, 2);
  EXPECT_EQ(all_of<Discard>(on_one)[0].arrivals, (std::vector<int32_t>{4, 0}));
  EXPECT_EQ(negotiated(on_one), std::vector<std::string>{"x"});
}

}  // namespace
}  // namespace rueda::control::examples_test
