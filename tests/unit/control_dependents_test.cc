// Operations of different process sets that share memory: the global order keeps the order of submission, and
// nothing waits in a circle.
#include "rueda/control/dependents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "control_fixture.h"

namespace rueda::control::dependents_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using L = std::vector<std::string>;

constexpr int32_t kWorld = 0, kSubset = 1, kOther = 2;

TensorRequest in_set(int32_t process_set, TensorRequest request) {
  request.process_set = process_set;
  return request;
}

// It shares memory with those.
TensorRequest after(TensorRequest request, std::vector<NameInSet> others) {
  request.shares_memory = true;
  request.after = std::move(others);
  return request;
}

class Order : public testing::Test {
 protected:
  static CoordinatorOptions options() {
    CoordinatorOptions options = world_of(4);
    options.process_sets = {{kSubset, {0, 1}}, {kOther, {1, 2}}};
    return options;
  }
  void submit(Rank rank, const Tensors& requests) { coordinator_.submit(rank, requests, now_, nullptr); }
  void submit(const std::vector<Rank>& ranks, const Tensors& requests) {
    for (const Rank rank : ranks) submit(rank, requests);
  }
  // The names that became ready since this was asked last, one after the other.
  L ready() {
    L all;
    responses_ = coordinator_.take_ready();
    for (const Response& response : responses_)
      for (const std::string& name : names(response)) all.push_back(name);
    return all;
  }

  Coordinator coordinator_{options()};
  std::vector<Response> responses_;
  Nanos now_ = 0;

  const TensorRequest a_ = allreduce("a");
  const TensorRequest b_ = after(in_set(kSubset, allreduce("b")), {{kWorld, "a"}});
};

TEST_F(Order, a_ready_subset_waits_for_the_world_that_was_submitted_before_it) {
  submit({0, 1}, {a_, b_});
  EXPECT_THAT(ready(), IsEmpty());
  submit(2, {a_});
  EXPECT_THAT(ready(), IsEmpty());
  submit(3, {a_});
  EXPECT_THAT(ready(), ElementsAre("a", "b"));
}

TEST_F(Order, it_is_enough_that_one_rank_shares_memory) {
  submit(0, {a_, in_set(kSubset, allreduce("b"))});
  submit(1, {a_, b_});
  EXPECT_THAT(ready(), IsEmpty());
  submit({2, 3}, {a_});
  EXPECT_THAT(ready(), ElementsAre("a", "b"));
}

TEST_F(Order, what_shares_no_memory_waits_for_nothing) {
  submit({0, 1}, {a_, in_set(kSubset, allreduce("b"))});
  EXPECT_THAT(ready(), ElementsAre("b"));
}

TEST_F(Order, what_is_ordered_already_is_waited_for_no_more) {
  submit({0, 1, 2, 3}, {a_});
  EXPECT_THAT(ready(), ElementsAre("a"));
  submit({2, 3}, {a_});  // its next round
  submit({0, 1}, {b_});
  EXPECT_THAT(ready(), ElementsAre("b"));
  submit({0, 1}, {a_});
  EXPECT_THAT(ready(), ElementsAre("a"));
}

TEST_F(Order, ranks_of_opposite_orders_wait_for_nobody) {
  const TensorRequest b_first = in_set(kSubset, allreduce("b"));
  submit(0, {a_, b_});
  submit(1, {b_first});
  EXPECT_THAT(ready(), ElementsAre("b")) << "rank 1 may wait for it before it submits a";
  submit(1, {a_});
  submit({2, 3}, {a_});
  EXPECT_THAT(ready(), ElementsAre("a"));
  submit(0, {a_, b_});
  submit(1, {b_first, after(a_, {{kSubset, "b"}})});
  submit({2, 3}, {a_});
  EXPECT_THAT(ready(), ElementsAre("b", "a"));
}

TEST_F(Order, of_three_and_more_follows_from_one_to_the_next) {
  const TensorRequest c = after(in_set(kOther, allreduce("c")), {{kSubset, "b"}});
  const TensorRequest d = after(in_set(kSubset, allreduce("d")), {{kOther, "c"}});
  submit(1, {a_, b_, c, d});
  submit(0, {a_, b_, in_set(kSubset, allreduce("d"))});
  submit(2, {in_set(kOther, allreduce("c"))});
  EXPECT_THAT(ready(), IsEmpty());
  EXPECT_THAT(coordinator_.pending_summary(), testing::AllOf(HasSubstr("a waits"), Not(HasSubstr("b"))));
  submit(3, {a_});
  EXPECT_THAT(ready(), IsEmpty());
  submit(2, {a_});
  EXPECT_THAT(ready(), ElementsAre("a", "b", "c", "d"));
}

TEST_F(Order, is_kept_in_one_set_too_when_the_first_of_it_follows_another_set) {
  TensorRequest again = in_set(kSubset, allreduce("again"));
  again.shares_memory = true;
  submit({0, 1}, {a_, b_, in_set(kSubset, allreduce("apart")), again});
  EXPECT_THAT(ready(), ElementsAre("apart"));
  submit({2, 3}, {a_});
  EXPECT_THAT(ready(), ElementsAre("a", "b", "again"));
}

TEST_F(Order, holds_for_groups_as_a_whole) {
  const Tensors first = group("first", {allreduce(""), allreduce("")});
  Tensors second = group("second", {in_set(kSubset, allreduce("")), in_set(kSubset, allreduce(""))});
  second[1] = after(second[1], {{kWorld, "first_1of2"}});
  submit({0, 1}, first);
  submit({0, 1}, second);
  submit(2, first);
  EXPECT_THAT(ready(), IsEmpty());
  submit(3, first);
  EXPECT_THAT(ready(), ElementsAre("first_1of2", "first_2of2", "second_1of2", "second_2of2"));
}

TEST_F(Order, a_circle_of_three_sets_runs_in_the_order_in_which_they_became_ready) {
  CoordinatorOptions options = world_of(3);
  options.process_sets = {{1, {0, 1}}, {2, {1, 2}}, {3, {0, 2}}};
  Coordinator ring(options);
  const auto link = [](int32_t set, int32_t before) {
    return after(in_set(set, allreduce("link")), {{before, "link"}});
  };
  ring.submit(0, Tensors{in_set(3, allreduce("link")), link(1, 3)}, 0, nullptr);
  ring.submit(1, Tensors{in_set(1, allreduce("link")), link(2, 1)}, 0, nullptr);
  EXPECT_THAT(ring.take_ready(), IsEmpty());
  ring.submit(2, Tensors{in_set(2, allreduce("link")), link(3, 2)}, 0, nullptr);
  std::vector<int32_t> sets;
  for (const Response& response : ring.take_ready()) sets.push_back(as<Bucket>(response).process_set);
  EXPECT_THAT(sets, ElementsAre(3, 1, 2)) << "the last one that became ready waits for nobody";
}

TEST_F(Order, an_error_of_the_first_frees_the_second) {
  submit({0, 1}, {a_, b_});
  submit(2, {a_});
  submit(3, {allreduce("a", {5})});
  EXPECT_THAT(ready(), ElementsAre("a", "b"));
  EXPECT_TRUE(is<Failure>(responses_[0]) && is<Bucket>(responses_[1]));
}

TEST_F(Order, an_error_of_the_second_is_told_at_once) {
  submit(0, {a_, b_});
  submit(1, {a_, after(in_set(kSubset, allreduce("b", {5})), {{kWorld, "a"}})});
  EXPECT_THAT(ready(), ElementsAre("b"));
  EXPECT_TRUE(is<Failure>(responses_[0]));
}

TEST_F(Order, the_removal_of_the_set_of_the_first_frees_the_second) {
  const TensorRequest first = in_set(kOther, allreduce("first"));
  const TensorRequest second = after(in_set(kSubset, allreduce("second")), {{kOther, "first"}});
  submit(1, {first, second});
  submit(0, {in_set(kSubset, allreduce("second"))});
  EXPECT_THAT(ready(), IsEmpty());
  for (Rank rank = 0; rank < 4; ++rank) coordinator_.submit(rank, {remove_set(kOther)}, now_, nullptr);
  EXPECT_THAT(ready(), ElementsAre("first", "second", "remove_process_set"));
  EXPECT_TRUE(is<Failure>(responses_[0]) && is<Bucket>(responses_[1]));
}

TEST_F(Order, the_removal_of_its_own_set_fails_what_waits) {
  submit({0, 1}, {a_, b_});
  for (Rank rank = 0; rank < 4; ++rank) coordinator_.submit(rank, {remove_set(kSubset)}, now_, nullptr);
  EXPECT_THAT(ready(), ElementsAre("b", "remove_process_set"));
  EXPECT_THAT(error_of(responses_[0]), HasSubstr("was removed while operations of it were outstanding"));
  submit({2, 3}, {a_});
  EXPECT_THAT(ready(), ElementsAre("a"));
}

TEST_F(Order, ranks_that_have_joined_keep_nobody_waiting) {
  submit({0, 1}, {a_, b_});
  submit({2, 3}, {join()});
  EXPECT_THAT(ready(), ElementsAre("a", "b"));
  submit({0, 1}, {join()});
  EXPECT_THAT(ready(), ElementsAre("join.noname"));
}

TEST_F(Order, when_all_join_what_waits_comes_before_the_answer) {
  const TensorRequest first = in_set(kOther, allreduce("first"));
  submit(1, {first, after(in_set(kSubset, allreduce("second")), {{kOther, "first"}}), join()});
  submit({0, 3}, {join()});
  EXPECT_THAT(ready(), IsEmpty());
  submit(2, {join()});
  EXPECT_THAT(ready(), ElementsAre("first", "second", "join.noname"));
}

TEST_F(Order, what_waits_is_no_part_of_the_stall_and_what_it_waits_for_is) {
  submit({0, 1}, {a_, b_});
  submit(2, {a_});
  now_ = 61 * kSecond;
  const std::vector<StallReport> reports = coordinator_.check_stalls(now_);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_THAT(reports[0].text, HasSubstr("3: [a]"));
}

TEST_F(Order, no_plan_begins_while_something_waits) {
  submit({0, 1}, {a_, b_});
  EXPECT_FALSE(coordinator_.may_begin_plan(are_named({"a"})));
  submit({2, 3}, {a_});
  ready();
  EXPECT_TRUE(coordinator_.may_begin_plan(are_named({"a"})));
}

// Ranks that submit the operations in the same order, as far as each takes part in them, or in orders of
// their own. Some of them share memory with some that come before.
struct Program {
  explicit Program(std::mt19937_64& random) : random_(random) {
    members = options.process_sets = {{1, {0, 1}}, {2, {1, 2}}, {3, {0, 2, 3}}};
    members[0] = {0, 1, 2, 3};
    for (int i = 0; i < 12; ++i) add(in_set(pick(0, 3), allreduce("t" + std::to_string(i))));
  }
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  void add(TensorRequest next) {
    for (const TensorRequest& before : requests) {
      const auto is_common = [&](Rank rank) {
        return std::ranges::count(members[before.process_set], rank) > 0;
      };
      if (pick(0, 2) > 0 || std::ranges::none_of(members[next.process_set], is_common)) continue;
      next.shares_memory = true;
      pairs.emplace_back(before.name, next.name);
      if (before.process_set != next.process_set) next.after.push_back({before.process_set, before.name});
    }
    requests.push_back(next);
  }
  // The place of each name in the global order, for some interleaving of the ranks.
  std::map<std::string, size_t> run(bool do_agree) {
    std::map<Rank, std::vector<TensorRequest>> queues;
    for (const TensorRequest& request : requests)
      for (const Rank rank : members[request.process_set]) queues[rank].push_back(request);
    if (!do_agree)
      for (auto& [rank, queue] : queues) std::ranges::shuffle(queue, random_);
    Coordinator coordinator(options);
    std::map<std::string, size_t> places;
    while (std::ranges::any_of(queues, [](const auto& one) { return !one.second.empty(); })) {
      const Rank rank = pick(0, 3);
      if (queues[rank].empty()) continue;
      coordinator.submit(rank, {queues[rank].front()}, 0, nullptr);
      queues[rank].erase(queues[rank].begin());
      for (const Response& response : coordinator.take_ready())
        for (const std::string& name : names(response)) places.emplace(name, places.size());
    }
    return places;
  }

  CoordinatorOptions options = world_of(4);
  std::map<int32_t, std::vector<Rank>> members;
  std::vector<std::pair<std::string, std::string>> pairs;  // the first comes before the second
  std::vector<TensorRequest> requests;

 private:
  std::mt19937_64& random_;
};

TEST(OrderProperties, ranks_that_agree_get_their_order_and_nothing_ever_waits_forever) {
  const uint64_t seed = std::random_device{}();
  std::printf("seed %lu\n", seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    Program program(random);
    EXPECT_EQ(program.run(false).size(), program.requests.size());
    std::map<std::string, size_t> places = program.run(true);
    ASSERT_EQ(places.size(), program.requests.size());
    for (const auto& [first, second] : program.pairs)
      EXPECT_LT(places[first], places[second]) << first << " before " << second;
  }
}

}  // namespace
}  // namespace rueda::control::dependents_test
