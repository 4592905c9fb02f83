#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control_fixture.h"

namespace rueda::control::join_test {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

TEST(Join, a_joined_rank_counts_as_present_for_allreduces_and_is_listed) {
  Coordinator coordinator(world_of(3));
  coordinator.submit(0, {allreduce("a", {2, 3})}, 0, nullptr);
  coordinator.submit(2, {allreduce("a", {2, 3})}, 0, nullptr);
  coordinator.submit(1, {join()}, 0, nullptr);
  const auto responses = coordinator.take_ready();
  ASSERT_THAT(responses, SizeIs(1));
  EXPECT_TRUE(is<Bucket>(responses[0]));
  EXPECT_THAT(as<Bucket>(responses[0]).joined, ElementsAre(1));
  EXPECT_THAT(as<Bucket>(responses[0]).entries[0].shape, ElementsAre(2, 3));
}

TEST(Join, counts_for_allreduces_of_other_sets_too) {
  CoordinatorOptions options = world_of(3);
  options.process_sets = {{1, {1, 2}}};
  Coordinator coordinator(options);
  coordinator.submit(2, {join()}, 0, nullptr);
  TensorRequest request = allreduce("a");
  request.process_set = 1;
  coordinator.submit(1, {request}, 0, nullptr);
  const auto responses = coordinator.take_ready();
  ASSERT_THAT(responses, SizeIs(1));
  EXPECT_THAT(as<Bucket>(responses[0]).joined, ElementsAre(2));
}

TEST(Join, allreduces_with_and_without_joined_ranks_are_not_fused) {
  Coordinator coordinator(world_of(2));
  coordinator.submit(1, {allreduce("a"), join()}, 0, nullptr);
  coordinator.submit(0, {allreduce("a"), allreduce("b")}, 0, nullptr);
  const auto responses = coordinator.take_ready();
  ASSERT_THAT(responses, SizeIs(2));
  EXPECT_THAT(as<Bucket>(responses[0]).joined, IsEmpty());
  EXPECT_THAT(as<Bucket>(responses[1]).joined, ElementsAre(1));
}

TEST(Join, other_collectives_fail_on_those_that_called_them) {
  const std::vector<std::pair<Collective, std::string>> cases = {
      {Collective::kAllgather, "Allgather is not supported with Join at this time. "},
      {Collective::kAlltoall, "Alltoall is not supported with Join at this time."},
      {Collective::kReducescatter, "Reducescatter is not supported with Join at this time."},
      {Collective::kBroadcast, "Broadcast is not supported with Join at this time."}};
  for (const auto& [what, text] : cases) {
    Coordinator coordinator(world_of(3));
    coordinator.submit(1, {join()}, 0, nullptr);
    const TensorRequest request = collective(what, "t", {3});
    coordinator.submit(0, {request}, 0, nullptr);
    coordinator.submit(2, {request}, 0, nullptr);
    const auto responses = coordinator.take_ready();
    ASSERT_THAT(responses, SizeIs(1));
    EXPECT_TRUE(is<Failure>(responses[0]));
    EXPECT_THAT(as<Failure>(responses[0]).error, StartsWith(text));
    EXPECT_THAT(as<Failure>(responses[0]).error, HasSubstr("rank 1 has joined"));
  }
}

TEST(Join, what_a_rank_submitted_before_joining_still_runs) {
  Coordinator coordinator(world_of(2));
  const TensorRequest gather = collective(Collective::kAllgather, "g");
  coordinator.submit(1, {gather, join()}, 0, nullptr);
  coordinator.submit(0, {gather}, 0, nullptr);
  const auto responses = coordinator.take_ready();
  ASSERT_THAT(responses, SizeIs(1));
  EXPECT_TRUE(is<Bucket>(responses[0]));
  EXPECT_THAT(as<Bucket>(responses[0]).joined, IsEmpty());
}

TEST(Join, a_barrier_counts_joined_ranks_as_arrived) {
  Coordinator coordinator(world_of(2));
  coordinator.submit(0, {join()}, 0, nullptr);
  coordinator.submit(1, {collective(Collective::kBarrier, "barrier.noname", {})}, 0, nullptr);
  const auto responses = coordinator.take_ready();
  ASSERT_THAT(responses, SizeIs(1));
  EXPECT_EQ(as<Bucket>(responses[0]).what, Collective::kBarrier);
  EXPECT_TRUE(is<Bucket>(responses[0]));
}

TEST(Join, the_highest_of_the_last_round_is_last_and_the_largest_tag_wins) {
  Coordinator coordinator(world_of(3));
  coordinator.submit(2, {join(-5)}, 0, nullptr);
  coordinator.take_ready();
  coordinator.submit(1, {join(-9)}, 0, nullptr);
  coordinator.submit(0, {join(-7)}, 0, nullptr);
  const auto responses = coordinator.take_ready();
  ASSERT_THAT(responses, SizeIs(1));
  EXPECT_TRUE(is<Joined>(responses[0]));
  EXPECT_EQ(as<Joined>(responses[0]).last, 1);
  EXPECT_EQ(as<Joined>(responses[0]).tag, -5);
}

TEST(Join, resets_when_all_have_joined) {
  Coordinator coordinator(world_of(2));
  for (int i = 0; i < 2; ++i) {
    const auto joined = run(coordinator, {join(), join()});
    ASSERT_THAT(joined, SizeIs(1));
    EXPECT_TRUE(is<Joined>(joined[0]));
    coordinator.submit(0, {allreduce("a")}, 0, nullptr);
    EXPECT_THAT(coordinator.take_ready(), IsEmpty());
    coordinator.submit(1, {allreduce("a")}, 0, nullptr);
    EXPECT_THAT(coordinator.take_ready(), SizeIs(1));
  }
}

TEST(Join, what_waits_for_the_last_rank_runs_before_everybody_is_released) {
  Coordinator coordinator(world_of(2));
  coordinator.submit(0, {allreduce("a"), join()}, 0, nullptr);
  coordinator.submit(1, {join()}, 0, nullptr);
  const auto responses = coordinator.take_ready();
  ASSERT_THAT(responses, SizeIs(2));
  EXPECT_TRUE(is<Bucket>(responses[0]));
  EXPECT_TRUE(is<Joined>(responses[1]));
}

TEST(Join, twice_by_one_rank_is_an_error_for_that_rank_alone) {
  Coordinator coordinator(world_of(2));
  coordinator.submit(0, {join(), join()}, 0, nullptr);
  const auto responses = coordinator.take_ready();
  ASSERT_THAT(responses, SizeIs(1));
  EXPECT_TRUE(is<Failure>(responses[0]));
  EXPECT_THAT(as<Failure>(responses[0]).failed[0].ranks, ElementsAre(0));
}

TEST(Join, under_different_names_is_answered_to_every_rank) {
  Coordinator coordinator(world_of(2));
  for (const Rank rank : {0, 1}) {
    TensorRequest mine = join();
    mine.name = "join" + std::to_string(rank);
    coordinator.submit(rank, {mine}, 0, nullptr);
  }
  const auto responses = coordinator.take_ready();
  ASSERT_THAT(responses, SizeIs(1));
  EXPECT_THAT(names(responses[0]), ElementsAre("join0", "join1"));
}

TEST(Join, groups_complete_through_a_join) {
  Coordinator coordinator(world_of(2));
  coordinator.submit(0, group("g", {allreduce(""), allreduce("")}), 0, nullptr);
  coordinator.submit(1, {join()}, 0, nullptr);
  const auto responses = coordinator.take_ready();
  ASSERT_THAT(responses, SizeIs(1));
  EXPECT_THAT(names(responses[0]), ElementsAre("g_1of2", "g_2of2"));
}

TEST(Join, joined_ranks_are_not_reported_missing) {
  Coordinator coordinator(world_of(3));
  coordinator.submit(0, {join()}, 0, nullptr);
  coordinator.submit(1, {allreduce("a")}, kSecond, nullptr);
  const auto reports = coordinator.check_stalls(61 * kSecond);
  ASSERT_THAT(reports, SizeIs(1));
  EXPECT_THAT(reports[0].text, HasSubstr("Missing ranks:\n2: [a]\nStalled tensors:\na (ALLREDUCE)"));
}

TEST(Join, is_a_stall_when_nothing_else_moves_and_names_the_ranks_that_have_not_joined) {
  CoordinatorOptions options = world_of(4);
  options.stall_shutdown = 90 * kSecond;
  Coordinator coordinator(options);
  coordinator.submit(0, {join()}, 0, nullptr);
  coordinator.submit(2, {join()}, kSecond, nullptr);
  EXPECT_THAT(coordinator.check_stalls(60 * kSecond), IsEmpty());
  EXPECT_EQ(coordinator.next_check(60 * kSecond), 61 * kSecond);
  const auto reports = coordinator.check_stalls(61 * kSecond);
  ASSERT_THAT(reports, SizeIs(1));
  EXPECT_THAT(reports[0].text, HasSubstr("Missing ranks:\n1: [join()]\n3: [join()]\n"
                                         "Stalled tensors:\njoin() (JOIN): waiting 60 s for ranks 1, 3\n"));
  EXPECT_FALSE(reports[0].is_fatal);
  const auto last = coordinator.check_stalls(91 * kSecond);
  ASSERT_THAT(last, SizeIs(1));
  EXPECT_TRUE(last[0].is_fatal);
  EXPECT_THAT(last[0].text, EndsWith(" Stalled: ranks 1, 3."));
}

TEST(Join, waits_without_a_stall_for_ranks_that_train) {
  CoordinatorOptions options = world_of(3);
  options.stall_shutdown = 60 * kSecond;
  Coordinator coordinator(options);
  coordinator.submit(0, {join()}, 0, nullptr);
  Nanos now = 0;
  for (int step = 0; step < 5; ++step) {
    now += 40 * kSecond;
    coordinator.submit(1, {allreduce("a")}, now, nullptr);
    EXPECT_THAT(coordinator.check_stalls(now), IsEmpty());
    now += 10 * kSecond;
    coordinator.submit(2, {allreduce("a")}, now, nullptr);  // complete
    EXPECT_THAT(coordinator.check_stalls(now), IsEmpty());
    EXPECT_THAT(coordinator.take_ready(), SizeIs(1));
  }
  coordinator.moves(now + 30 * kSecond);  // what is ready takes its time
  EXPECT_THAT(coordinator.check_stalls(now + 60 * kSecond), IsEmpty());
  EXPECT_THAT(coordinator.check_stalls(now + 90 * kSecond), SizeIs(1));
}

TEST(Join, is_judged_once_it_counts_as_stalled) {
  Coordinator coordinator(world_of(3));
  coordinator.submit(0, {join()}, 0, nullptr);
  EXPECT_THAT(coordinator.waiting_longer_than(5 * kSecond, 50 * kSecond), IsEmpty()) << "a step may take it";
  const auto waits = coordinator.waiting_longer_than(5 * kSecond, 60 * kSecond);
  ASSERT_THAT(waits, SizeIs(1));
  EXPECT_EQ(waits[0].age, 60 * kSecond);
  EXPECT_THAT(waits[0].waiting, ElementsAre(0));
  EXPECT_THAT(waits[0].missing, ElementsAre(1, 2));
  coordinator.submit(1, {join()}, 60 * kSecond, nullptr);
  coordinator.submit(2, {join()}, 60 * kSecond, nullptr);
  EXPECT_THAT(coordinator.waiting_longer_than(5 * kSecond, 1000 * kSecond), IsEmpty()) << "all have joined";
}

TEST(ProcessSets, are_added_with_the_smallest_free_id) {
  Coordinator coordinator(world_of(3));
  const auto add = [&](std::vector<Rank> ranks) {
    return run(coordinator, std::vector<Request>(3, add_set(std::move(ranks)))).at(0);
  };
  EXPECT_EQ(as<SetAdded>(add({0, 1})).id, 1);
  EXPECT_EQ(as<SetAdded>(add({2, 0})).id, 2);
  EXPECT_TRUE(is<SetRemoved>(run(coordinator, std::vector<Request>(3, remove_set(1))).at(0)));
  const Response third = add({2, 1});
  EXPECT_TRUE(is<SetAdded>(third));
  EXPECT_EQ(as<SetAdded>(third).id, 1);
  EXPECT_THAT(as<SetAdded>(third).ranks, ElementsAre(1, 2));
  EXPECT_THAT(names(third), ElementsAre("add_process_set"));
  const Response empty = add({});
  EXPECT_TRUE(is<SetAdded>(empty));
  EXPECT_EQ(as<SetAdded>(empty).id, 3);
  EXPECT_THAT(coordinator.process_sets(), SizeIs(3));
}

TEST(ProcessSets, bad_requests_are_errors_on_all_ranks) {
  Coordinator coordinator(world_of(2));
  const auto error = [&](const Request& a, const Request& b) {
    const Response response = run(coordinator, {a, b}).at(0);
    EXPECT_TRUE(is<Failure>(response));
    return as<Failure>(response).error;
  };
  EXPECT_THAT(error(add_set({0, 2}), add_set({0, 2})), StartsWith("invalid rank: 2"));
  EXPECT_THAT(error(add_set({-1}), add_set({-1})), StartsWith("invalid rank: -1"));
  EXPECT_THAT(error(add_set({1, 1}), add_set({1, 1})), StartsWith("duplicate rank: 1"));
  EXPECT_THAT(error(add_set({1, 0}), add_set({1, 0})),
              StartsWith("Attempted to add a duplicate process set: [0, 1]"));
  EXPECT_THAT(error(add_set({1}), add_set({0})), HasSubstr("mismatching values on different ranks"));
  EXPECT_THAT(error(add_set({1}), add_set({})), HasSubstr("mismatching size on different ranks"));
  EXPECT_THAT(error(add_set({1}), remove_set(1)), HasSubstr("mismatching values on different ranks"));
  EXPECT_THAT(error(remove_set(1), remove_set(1)), HasSubstr("Process set provided does not exist"));
  EXPECT_THAT(error(remove_set(0), remove_set(0)), HasSubstr("Process set provided does not exist"));
  EXPECT_TRUE(is<SetAdded>(run(coordinator, {add_set({1}), add_set({1})}).at(0)));
  EXPECT_THAT(error(add_set({1}), add_set({1})), StartsWith("Attempted to add a duplicate process set: [1]"));
  EXPECT_THAT(coordinator.process_sets(), SizeIs(1));
}

TEST(ProcessSets, removal_fails_what_is_outstanding_and_runs_what_was_ready) {
  CoordinatorOptions options = world_of(2);
  options.process_sets = {{1, {1}}, {4, {0}}};
  Coordinator coordinator(options);
  EXPECT_EQ(as<SetAdded>(run(coordinator, {add_set({}), add_set({})}).at(0)).id, 2);
  TensorRequest request = allreduce("ready");
  request.process_set = 1;
  coordinator.submit(1, {request}, 0, nullptr);
  auto half = group("open", {request, request});
  coordinator.submit(1, {half[0], remove_set(1)}, 0, nullptr);
  coordinator.submit(0, {remove_set(1)}, 0, nullptr);
  const auto responses = coordinator.take_ready();
  ASSERT_THAT(responses, SizeIs(3));
  EXPECT_TRUE(is<Bucket>(responses[0]));
  EXPECT_TRUE(is<Failure>(responses[1]));
  EXPECT_EQ(as<Failure>(responses[1]).process_set, 1);
  EXPECT_THAT(names(responses[1]), ElementsAre("open_1of2"));
  EXPECT_TRUE(is<SetRemoved>(responses[2]));
  coordinator.submit(1, {request}, 0, nullptr);
  EXPECT_THAT(as<Failure>(coordinator.take_ready().at(0)).error, HasSubstr("does not exist"));
}

TEST(ProcessSets, changes_while_a_rank_has_joined_fail_instead_of_hanging) {
  Coordinator coordinator(world_of(2));
  coordinator.submit(0, {add_set({1})}, 0, nullptr);
  coordinator.submit(1, {join()}, 0, nullptr);
  const auto responses = coordinator.take_ready();
  ASSERT_THAT(responses, SizeIs(1));
  EXPECT_TRUE(is<Failure>(responses[0]));
  EXPECT_THAT(as<Failure>(responses[0]).error, HasSubstr("not supported with Join"));
}

TEST(ProcessSets, a_missing_change_is_reported_as_a_stall) {
  Coordinator coordinator(world_of(2));
  coordinator.submit(1, {add_set({1})}, 0, nullptr);
  const auto reports = coordinator.check_stalls(60 * kSecond);
  ASSERT_THAT(reports, SizeIs(1));
  EXPECT_THAT(reports[0].text, HasSubstr("Missing ranks:\n0: [add_process_set]\n"));
}

}  // namespace
}  // namespace rueda::control::join_test
