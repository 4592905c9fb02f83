// Collectives of a learned plan whose rows change from pass to pass: what is told before them, which they
// are, and in which order both run.
#include "rueda/control/row_counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control_fixture.h"
#include "rueda/control/bucketing.h"
#include "rueda/control/order.h"
#include "rueda/control/plan_learner.h"
#include "rueda/control/planner.h"

namespace rueda::control::row_counts_test {
namespace {

using testing::HasSubstr;
using Rows = std::vector<int64_t>;

Entry entry(const std::string& name, std::vector<int64_t> shape, Rows rows, bool rows_vary = true) {
  return {.name = name, .shape = std::move(shape), .rows = std::move(rows), .rows_vary = rows_vary};
}

Bucket bucket_of(Collective what, std::vector<Entry> entries) {
  Bucket bucket;
  bucket.what = what;
  bucket.entries = std::move(entries);
  return bucket;
}

TEST(RowCounts, of_several_gathered_tensors_are_told_in_one_call) {
  const Bucket bucket =
      bucket_of(Collective::kAllgather, {entry("x", {1, 9}, {1, 1}), entry("y", {7}, {7, 0})});
  const Bucket before = row_counts_before(bucket);
  EXPECT_EQ(before.what, Collective::kAllgather);
  EXPECT_EQ(before.dtype, DType::kInt64);
  EXPECT_EQ(before.entries.front().shape, Rows{2});
  EXPECT_EQ(before.entries.front().rows, (Rows{2, 2}));
  EXPECT_FALSE(has_varying_rows(before));
  const Result<std::vector<Rows>> rows = rows_of(bucket, Rows{3, 5, 2, 0});
  ASSERT_TRUE(rows.is_ok());
  EXPECT_EQ(rows.value(), (std::vector<Rows>{{3, 2}, {5, 0}}));
}

TEST(RowCounts, of_an_alltoall_are_the_splits_of_all_members) {
  const Bucket bucket =
      bucket_of(Collective::kAlltoall, {entry("x", {3}, {1, 2, 0, 0}), entry("y", {3}, {1, 2, 0, 0})});
  EXPECT_EQ(row_counts_before(bucket).entries.front().rows, (Rows{4, 4}));
  TensorRequest request;
  request.what = Collective::kAlltoall;
  request.splits = {4, 1};
  Rows told;
  tell_rows(request, told);
  tell_rows(request, told);
  EXPECT_EQ(told, (Rows{4, 1, 4, 1}));
  const Result<std::vector<Rows>> rows = rows_of(bucket, Rows{1, 2, 3, 4, 5, 6, 7, 8});
  ASSERT_TRUE(rows.is_ok());
  EXPECT_EQ(rows.value(), (std::vector<Rows>{{1, 2, 5, 6}, {3, 4, 7, 8}}));
}

TEST(RowCounts, that_no_rank_can_have_are_refused_in_the_name_of_the_tensor) {
  const Bucket bucket = bucket_of(Collective::kAllgather, {entry("x", {1, 1 << 20}, {1, 1})});
  EXPECT_THAT(rows_of(bucket, Rows{3, -1}).status().why, HasSubstr("Tensor x cannot have -1 rows"));
  EXPECT_THAT(rows_of(bucket, Rows{INT64_MAX, 1}).status().why, HasSubstr("Tensor x"));
  EXPECT_THAT(rows_of(bucket, Rows{int64_t{1} << 42, 1}).status().why, HasSubstr("Tensor x is too large"));
}

TEST(RowCounts, survive_the_wire) {
  const std::vector<Response> sent = {
      PlanBucket{.bucket = bucket_of(Collective::kAllgather, {entry("x", {1, 9}, {1, 1})})}};
  EXPECT_EQ(decode_responses(encode(sent)).value(), sent);
}

// ---- one rank ----

class OneRankOfRows : public testing::Test {
 protected:
  PlannerActions respond(Response response) {
    Result<std::optional<PlannerActions>> decided = planner_.response(response, kSecond);
    EXPECT_TRUE(decided.is_ok()) << decided.status().why;
    return decided.is_ok() ? std::move(decided).value().value_or(PlannerActions{}) : PlannerActions{};
  }
  // A plan of the gradient g, of the gathered tensors x and y, and of the gradient h.
  void begin() {
    for (const Bucket& bucket :
         {bucket_of(Collective::kAllreduce, {entry("g", {4}, {}, false)}),
          bucket_of(Collective::kAllgather, {entry("x", {1, 9}, {1, 1, 1}), entry("y", {7}, {7, 0, 7})}),
          bucket_of(Collective::kAllreduce, {entry("h", {4}, {}, false)})})
      respond(PlanBucket{.bucket = bucket});
    respond(PlanBegin{.plan_number = 1, .sets = {}});
  }
  bool submit(TensorRequest request) {
    const TensorRequest* const one = &request;
    return !planner_.submitted(++operations_, std::span(&one, 1), kSecond).positions.empty();
  }
  std::optional<StartBucket> room() { return planner_.room(kSecond, planner_.started()); }

  Planner planner_{{.me = 1, .ranks = 3}};
  OperationId operations_ = 0;
};

TensorRequest gather(const std::string& name, std::vector<int64_t> shape) {
  TensorRequest request = collective(Collective::kAllgather, name, std::move(shape));
  return request;
}

TEST_F(OneRankOfRows, takes_any_rows_and_no_other_shape) {
  begin();
  EXPECT_TRUE(submit(gather("x", {40, 9})));
  EXPECT_TRUE(submit(gather("y", {0})));
  EXPECT_FALSE(submit(gather("x", {1, 8})));
}

TEST_F(OneRankOfRows, starts_the_call_that_tells_the_rows_together_with_the_bucket) {
  begin();
  submit(collective(Collective::kAllreduce, "g", {4}));
  submit(gather("y", {3}));
  EXPECT_EQ(room().value().number, 0);
  EXPECT_FALSE(room().has_value()) << "x is missing";
  EXPECT_EQ(planner_.place(kSecond, true).lacks, "x");
  submit(gather("x", {2, 9}));
  const std::optional<StartBucket> started = room();
  ASSERT_TRUE(started.has_value());
  EXPECT_EQ(started->number, 2);
  EXPECT_EQ(started->first_position, 1u);
  ASSERT_NE(started->row_counts, nullptr);
  EXPECT_EQ(started->row_counts->entries.front().shape, Rows{2});
  EXPECT_EQ(planner_.started(), 3);
  submit(collective(Collective::kAllreduce, "h", {4}));
  EXPECT_EQ(room().value().number, 3);
}

TEST_F(OneRankOfRows, takes_back_both_calls_and_negotiates_each_tensor_once) {
  begin();
  submit(collective(Collective::kAllreduce, "g", {4}));
  submit(gather("x", {2, 9}));
  submit(gather("y", {3}));
  room();
  room();
  const PlannerActions actions = respond(PlanEnd{.runs = {1, 0, 0, 0}, .flows = {}});
  std::vector<int64_t> cancelled;
  for (const Cancel& one : all_of<Cancel>(actions)) cancelled.push_back(one.number);
  EXPECT_EQ(cancelled, (std::vector<int64_t>{1, 2}));
  const std::vector<Negotiate> again = all_of<Negotiate>(actions);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].requests, (std::vector<Request>{gather("x", {2, 9}), gather("y", {3})}));
}

TEST_F(OneRankOfRows, refuses_a_plan_that_cannot_tell_rows) {
  Response bucket = PlanBucket{.bucket = bucket_of(Collective::kBroadcast, {entry("b", {4}, {1, 1, 1})})};
  respond(bucket);
  Response begins = PlanBegin{.plan_number = 1, .sets = {}};
  EXPECT_THAT(planner_.response(begins, 0).status().why, HasSubstr("cannot tell the rows of tensor b"));
}

TEST(OrderOfRows, holds_a_bucket_until_its_rows_are_told) {
  Order order(2);
  const Bucket bucket = bucket_of(Collective::kAllgather, {entry("x", {1, 9}, {1, 1})});
  const OrderKey counts = order.enqueue_planned(row_counts_before(bucket), 4).key;
  const OrderKey rows = order.enqueue_planned(bucket, 5).key;
  const OrderKey behind = order.enqueue_planned(bucket_of(Collective::kAllreduce, {}), 6).key;
  const auto start = [&](OrderKey key, int16_t backend) {
    const OrderAction look = order.next();
    EXPECT_EQ(look.what, OrderAction::What::kLook);
    EXPECT_EQ(look.key, key);
    EXPECT_EQ(order.looked({.backend = backend, .has_room = true}).what, OrderAction::What::kStart);
  };
  start(counts, 0);
  EXPECT_EQ(order.next().what, OrderAction::What::kNothing) << "also for what is behind it";
  EXPECT_TRUE(order.ended(counts));
  start(rows, 1);
  start(behind, 0);
}

// ---- what is learned ----

class LearnerOfRows : public testing::Test {
 protected:
  // As by a coordinator of two ranks, of which the second gives one row more.
  void run(const TensorRequest& request) {
    learner_.saw_submission(request);
    Bucket response;
    static_cast<Terms&>(response) = request;
    response.entries.push_back(
        {.name = request.name, .shape = request.shape, .rows = {}, .numbered_at = request.numbered_at});
    if (request.what == Collective::kAllgather)
      response.entries.front().rows = {request.shape[0], request.shape[0] + 1};
    learner_.saw_response(response);
  }
  // The names in the plan after such a step, and which of them have varying rows.
  std::string learn(const std::vector<TensorRequest>& step) {
    for (const TensorRequest& request : step) run(request);
    const std::optional<std::vector<SeenTensor>> learned = learner_.take_step();
    std::string names;
    if (learned)
      for (const SeenTensor& one : *learned) names += one.entry().name + (one.entry().rows_vary ? "* " : " ");
    return names;
  }

  PlanLearner learner_;
};

TensorRequest gradient(const std::string& name) { return collective(Collective::kAllreduce, name, {4}); }
TensorRequest numbered(int64_t number, int64_t rows) {
  TensorRequest request = gather("call " + std::to_string(number), {rows});
  request.numbered_at = 5;
  return request;
}

TEST_F(LearnerOfRows, marks_what_had_other_rows_in_other_steps) {
  std::string learned;
  int steps = 0;
  while (learned.empty() && ++steps < 50)
    learned = learn({gradient("a"), gather("metric", {steps}), gather("fixed", {3})});
  EXPECT_EQ(learned, "a metric* fixed ");
  EXPECT_EQ(steps, 7);
}

TEST_F(LearnerOfRows, tells_calls_without_a_name_apart_by_their_place_among_names) {
  std::string learned;
  int64_t number = 0;
  for (int step = 1; learned.empty() && step < 50; ++step, number += 3)
    learned =
        learn({gradient("a"), numbered(number + 1, 5), numbered(number + 2, step), numbered(number + 3, 7)});
  EXPECT_EQ(learned, "a call 19 call 20* call 21 ");
}

// As those of torch.distributed: an allreduce of gradients and an exchange of a mixture of experts.
TEST_F(LearnerOfRows, marks_calls_without_a_name_among_others_without_one) {
  std::string learned;
  int64_t number = 0;
  for (int step = 1; learned.empty() && step < 50; ++step, number += 2) {
    TensorRequest sum = numbered(number + 1, 100);
    sum.what = Collective::kAllreduce;
    learned = learn({sum, numbered(number + 2, step)});
  }
  EXPECT_EQ(learned, "call 13 call 14* ");
}

// Shards of different sizes are no shards of varying size.
TEST_F(LearnerOfRows, takes_a_step_of_many_sizes_for_what_it_is) {
  std::string learned;
  int64_t number = 0;
  for (int step = 0; learned.empty() && step < 50; ++step)
    for (int64_t call = 1; learned.empty() && call <= 9; ++call) learned = learn({numbered(++number, call)});
  EXPECT_THAT(learned, testing::Not(HasSubstr("*")));
  EXPECT_EQ(number, 27);
}

TEST_F(LearnerOfRows, takes_a_name_that_recurs_with_two_sizes_in_a_step_for_what_it_is) {
  std::string learned;
  for (int step = 0; learned.empty() && step < 50; ++step)
    learned = learn({gradient("a"), gather("x", {2}), gather("x", {3})});
  EXPECT_EQ(learned, "a x x ");
}

TEST_F(LearnerOfRows, marks_what_has_other_rows_than_it_had_in_a_plan) {
  const auto step = [&](int64_t rows) { return learn({gradient("a"), gather("metric", {rows})}); };
  std::string learned;
  while (learned.empty()) learned = step(4);
  EXPECT_EQ(learned, "a metric ");
  learner_.plan_ended(100);
  step(2);
  learned.clear();
  for (int i = 0; i < 3 && learned.empty(); ++i) learned = step(4);
  EXPECT_EQ(learned, "a metric* ");
}

TEST_F(LearnerOfRows, puts_only_what_is_alike_into_one_bucket) {
  SeenTensor one, other;
  one.bucket = bucket_of(Collective::kAllgather, {entry("x", {1}, {1, 1})});
  other.bucket = bucket_of(Collective::kAllgather, {entry("y", {1}, {1, 1}, false)});
  EXPECT_FALSE(can_fuse(one.bucket, other.bucket));
  EXPECT_TRUE(can_fuse(one.bucket, one.bucket));
}

}  // namespace
}  // namespace rueda::control::row_counts_test
