// Which response starts next on one rank, event by event; and random programs of several ranks, which always
// end.
#include "rueda/control/order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "control_fixture.h"

namespace rueda::control::order_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using What = OrderAction::What;
using Memory = Readiness::Memory;

Bucket bucket_of(const std::string& name, Collective what = Collective::kAllreduce, int32_t process_set = 0) {
  Bucket bucket;
  bucket.what = what;
  bucket.process_set = process_set;
  bucket.entries.push_back({.name = name, .shape = {4}, .rows = {}});
  return bucket;
}

// One rank with two backends. Calls whose names begin with b run on the second, the others on the first.
class DispatchOrder : public testing::Test {
 protected:
  const Ordered& keep(const std::string& name, const Ordered& ordered) {
    if (ordered.key >= names_.size()) names_.resize(ordered.key + 1);
    names_[ordered.key] = name;
    return ordered;
  }
  const Ordered& enqueue(const std::string& name, Collective what = Collective::kAllreduce) {
    return keep(name, order_.enqueue(bucket_of(name, what)));
  }
  void plan(const std::string& name, int64_t number) {
    keep(name, order_.enqueue_planned(bucket_of(name), number));
  }
  int16_t backend_of(const std::string& name) const {
    return no_backend_ == name  ? Readiness::kNoBackend
           : elsewhere_ == name ? Readiness::kNotHere
                                : name[0] == 'b';
  }
  Readiness look(const OrderAction& action) {
    const std::string& name = names_[action.key];
    const int16_t backend = backend_of(name);
    const auto running = std::ranges::count(order_.running(), backend, &Ordered::backend);
    looked_at_.push_back(name);
    return {.backend = backend,
            .has_room = running < room_,
            .memory = memory_.contains(name) ? memory_.at(name) : Memory::kItsOwn};
  }
  // What happens now: "start a", "answer b", …
  std::vector<std::string> settle() {
    static const std::map<What, std::string> words{{What::kStart, "start "},
                                                   {What::kDiscard, "discard "},
                                                   {What::kRefuse, "refuse "},
                                                   {What::kAnswer, "answer "},
                                                   {What::kForget, "forget "}};
    std::vector<std::string> done;
    OrderAction action = order_.next();
    while (action.what != What::kNothing) {
      if (action.what == What::kLook) {
        action = order_.looked(look(action));
        continue;
      }
      done.push_back(words.at(action.what) + names_[action.key]);
      action = order_.next();
    }
    return done;
  }
  bool end(const std::string& name) {
    for (const Ordered& one : order_.running())
      if (names_[one.key] == name) return order_.ended(OrderKey{one.key});
    ADD_FAILURE() << name << " does not run";
    return false;
  }
  std::vector<std::string> names_of(const std::vector<OrderKey>& keys) const {
    std::vector<std::string> names;
    for (const OrderKey key : keys) names.push_back(names_[key]);
    return names;
  }

  Order order_{2};
  ptrdiff_t room_ = 1;
  std::map<std::string, Memory> memory_;
  std::string no_backend_, elsewhere_;
  std::vector<std::string> names_;  // [key]
  std::vector<std::string> looked_at_;
};

TEST_F(DispatchOrder, calls_of_different_backends_overlap_and_each_backend_keeps_the_order) {
  for (const char* name : {"a1", "a2", "b1", "a3", "b2"}) enqueue(name);
  EXPECT_THAT(settle(), ElementsAre("start a1", "start b1"));
  EXPECT_EQ(order_.backlog(), 5u);
  EXPECT_THAT(settle(), IsEmpty());
  EXPECT_TRUE(end("b1"));
  EXPECT_THAT(settle(), ElementsAre("start b2"));
  EXPECT_TRUE(end("a1"));
  EXPECT_THAT(settle(), ElementsAre("start a2"));
  end("b2");
  end("a2");
  EXPECT_THAT(settle(), ElementsAre("start a3"));
  end("a3");
  EXPECT_TRUE(order_.is_idle());
}

TEST_F(DispatchOrder, as_many_calls_run_as_the_backend_has_room_for_and_end_in_any_order) {
  room_ = 2;
  for (const char* name : {"a1", "a2", "a3"}) enqueue(name);
  EXPECT_THAT(settle(), ElementsAre("start a1", "start a2"));
  end("a2");
  EXPECT_THAT(settle(), ElementsAre("start a3"));
}

TEST_F(DispatchOrder, nothing_more_is_looked_at_once_all_backends_are_full) {
  for (const char* name : {"a1", "b1", "a2", "b2", "a3"}) enqueue(name);
  settle();
  looked_at_.clear();
  EXPECT_THAT(settle(), IsEmpty());
  EXPECT_THAT(looked_at_, ElementsAre("a2", "b2"));
}

TEST_F(DispatchOrder, a_call_overtakes_fifteen_others_at_most) {
  enqueue("a");
  settle();
  for (int i = 0; i < 16; ++i) enqueue("a" + std::to_string(i));
  enqueue("b");
  EXPECT_THAT(settle(), IsEmpty());
  end("a");
  EXPECT_THAT(settle(), ElementsAre("start a0", "start b"));
}

TEST_F(DispatchOrder, a_barrier_and_a_notice_wait_for_all_before_them_and_hold_up_all_behind) {
  enqueue("a1");
  keep("notice", order_.enqueue(SetAdded{.names = {}, .id = 3, .ranks = {0}}));
  enqueue("a_barrier", Collective::kBarrier);
  enqueue("b1");
  EXPECT_THAT(settle(), ElementsAre("start a1"));
  end("a1");
  EXPECT_THAT(settle(), ElementsAre("answer notice", "start a_barrier", "start b1"));
}

TEST_F(DispatchOrder, a_barrier_waits_for_room_like_any_call) {
  room_ = 0;
  enqueue("a_barrier", Collective::kBarrier);
  enqueue("a1");
  EXPECT_THAT(settle(), IsEmpty());
  room_ = 1;
  EXPECT_THAT(settle(), ElementsAre("start a_barrier"));
}

TEST_F(DispatchOrder, what_no_backend_takes_is_refused_and_what_runs_elsewhere_is_forgotten) {
  no_backend_ = "a1";
  elsewhere_ = "a2";
  for (const char* name : {"a1", "a2", "a3"}) enqueue(name);
  EXPECT_THAT(settle(), ElementsAre("refuse a1", "forget a2", "start a3"));
  EXPECT_EQ(order_.backlog(), 1u);
}

TEST_F(DispatchOrder, what_shares_memory_overtakes_nothing_and_is_not_overtaken) {
  for (const char* name : {"a1", "a2", "b1", "b2"}) enqueue(name);
  memory_["b1"] = Memory::kFree;
  EXPECT_THAT(settle(), ElementsAre("start a1"));
  end("a1");
  EXPECT_THAT(settle(), ElementsAre("start a2", "start b1"));
}

TEST_F(DispatchOrder, a_call_waits_while_memory_is_in_use_and_all_behind_it_wait_too) {
  room_ = 2;
  for (const char* name : {"a1", "a2", "b1"}) enqueue(name);
  memory_["a2"] = Memory::kInUse;
  EXPECT_THAT(settle(), ElementsAre("start a1"));
  memory_["a2"] = Memory::kFree;
  EXPECT_THAT(settle(), ElementsAre("start a2", "start b1"));
}

TEST_F(DispatchOrder, calls_of_all_process_sets_are_counted_and_anew_with_each_generation) {
  EXPECT_EQ(enqueue("a1").place, 0u);
  keep("notice", order_.enqueue(Joined{}));
  EXPECT_EQ(order_.enqueue(bucket_of("a2", Collective::kAllreduce, 9)).place, 1u);
  order_.set_generation(1);
  const Ordered& third = enqueue("a3");
  EXPECT_EQ(third.place, 0u);
  EXPECT_EQ(third.generation, 1);
  EXPECT_EQ(order_.enqueue_planned(bucket_of("a4"), 7).place, 7u);
  EXPECT_EQ(enqueue("a5").place, 1u) << "buckets of a plan are not counted";
}

TEST_F(DispatchOrder, a_key_is_free_again_when_its_response_has_left) {
  const OrderKey first = enqueue("a1").key;
  EXPECT_NE(enqueue("a2").key, first);
  settle();
  end("a1");
  EXPECT_EQ(enqueue("a3").key, first);
  order_.clear();
  EXPECT_TRUE(order_.is_idle());
  EXPECT_LT(enqueue("a4").key, 2u);
  EXPECT_LT(enqueue("a5").key, 2u);
}

TEST_F(DispatchOrder, no_bucket_starts_between_a_pause_and_what_follows_it) {
  plan("a1", 0);
  plan("a2", 1);
  settle();
  EXPECT_THAT(names_of(order_.pause()), ElementsAre("a1")) << "the other has sent nothing";
  EXPECT_TRUE(end("a1"));
  EXPECT_THAT(settle(), IsEmpty());
  EXPECT_THAT(order_.resume(), IsEmpty());
  EXPECT_THAT(settle(), ElementsAre("start a2")) << "all ranks have come to it";
}

TEST_F(DispatchOrder, what_was_negotiated_before_the_plan_starts_during_a_pause) {
  enqueue("a1");
  plan("a2", 0);
  order_.pause();
  EXPECT_THAT(settle(), ElementsAre("start a1"));
}

TEST_F(DispatchOrder, a_bucket_is_cancelled_by_its_number_whether_it_runs_or_waits) {
  room_ = 2;
  plan("a1", 0);
  plan("a2", 1);
  plan("a3", 2);
  settle();
  EXPECT_THAT(names_of(order_.pause()), ElementsAre("a1", "a2"));
  EXPECT_EQ(order_.cancel(2).what, What::kForget) << "it waited";
  const OrderAction running = order_.cancel(1);
  EXPECT_EQ(running.what, What::kCancel);
  EXPECT_EQ(names_[running.key], "a2");
  EXPECT_THAT(names_of(order_.resume()), ElementsAre("a1"));
  EXPECT_FALSE(end("a2")) << "its operations stay open";
  EXPECT_TRUE(end("a1"));
  EXPECT_TRUE(order_.is_idle());
}

// A plan with other buckets may begin while the last bucket of the one before still runs here.
TEST_F(DispatchOrder, a_bucket_of_the_plan_before_is_neither_cancelled_nor_paused_with_the_plan) {
  plan("a.old", 11);
  settle();
  order_.set_generation(2);
  EXPECT_EQ(order_.first_open_bucket(99), 99);
  EXPECT_THAT(order_.pause(), IsEmpty());
  EXPECT_THAT(order_.resume(), IsEmpty());
  plan("a.new", 11);
  EXPECT_EQ(order_.first_open_bucket(99), 11);
  EXPECT_EQ(order_.cancel(11).what, What::kForget) << "the new one waits";
  EXPECT_FALSE(order_.running().front().is_cancelled);
}

TEST_F(DispatchOrder, nothing_starts_while_a_cancelled_bucket_still_uses_its_tensors_but_discarding_does) {
  plan("a1", 0);
  settle();
  order_.pause();
  order_.cancel(0);
  order_.resume();
  keep("b0", order_.enqueue_discarded(bucket_of("b0"), 1));
  enqueue("b1");
  EXPECT_THAT(settle(), ElementsAre("discard b0"));
  EXPECT_FALSE(end("b0")) << "it has no result";
  EXPECT_THAT(settle(), IsEmpty());
  EXPECT_FALSE(end("a1"));
  EXPECT_THAT(settle(), ElementsAre("start b1"));
}

TEST_F(DispatchOrder, the_next_bucket_of_a_plan_starts_at_once_if_nothing_waits_and_there_is_room) {
  EXPECT_EQ(order_.opening().what, What::kStart);
  plan("a1", 0);
  EXPECT_EQ(order_.opening().what, What::kNothing) << "one waits";
  settle();
  EXPECT_EQ(order_.opening().what, What::kLook);
  EXPECT_EQ(names_[order_.opening().key], "a1");
  end("a1");
  enqueue("a_barrier", Collective::kBarrier);
  settle();
  EXPECT_EQ(order_.opening().what, What::kNothing) << "it is a barrier";
}

TEST_F(DispatchOrder, knows_whether_a_call_of_the_world_is_under_way) {
  keep("notice", order_.enqueue(Joined{}));
  keep("a1", order_.enqueue(bucket_of("a1", Collective::kAllreduce, 2)));
  EXPECT_FALSE(order_.is_in_world());
  enqueue("a2");
  EXPECT_TRUE(order_.is_in_world());
  settle();
  end("a1");
  settle();
  EXPECT_TRUE(order_.is_in_world());
  end("a2");
  EXPECT_FALSE(order_.is_in_world());
}

}  // namespace
}  // namespace rueda::control::order_test
