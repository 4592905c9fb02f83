#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control_fixture.h"

namespace rueda::control::fusion_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

CoordinatorOptions with_threshold(int64_t bytes) {
  CoordinatorOptions options = world_of(1);
  options.fusion_bytes = bytes;
  return options;
}

std::vector<std::vector<std::string>> plan(const CoordinatorOptions& options, std::vector<Request> requests) {
  Coordinator coordinator(options);
  coordinator.submit(0, std::move(requests), 0, nullptr);
  std::vector<std::vector<std::string>> out;
  for (const Response& response : coordinator.take_ready()) {
    EXPECT_TRUE(is<Bucket>(response)) << error_of(response);
    out.push_back(names(response));
  }
  return out;
}

Tensors concat(std::vector<Tensors> parts) {
  Tensors out;
  for (auto& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

using L = std::vector<std::string>;

TEST(Fusion, looks_past_tensors_of_another_kind) {
  EXPECT_THAT(plan(with_threshold(64), {allreduce("a"), allreduce("i", {4}, DType::kInt32), allreduce("b")}),
              ElementsAre(L{"a", "b"}, L{"i"}));
}

TEST(Fusion, stays_at_or_below_the_threshold) {
  EXPECT_THAT(
      plan(with_threshold(32), {allreduce("a"), allreduce("b"), allreduce("c"), allreduce("big", {100})}),
      ElementsAre(L{"a", "b"}, L{"c"}, L{"big"}));
}

TEST(Fusion, threshold_zero_fuses_nothing) {
  EXPECT_THAT(plan(with_threshold(0), {allreduce("a", {0}), allreduce("b", {0})}),
              ElementsAre(L{"a"}, L{"b"}));
  EXPECT_THAT(plan(with_threshold(0), group("g", {allreduce(""), allreduce("")})),
              ElementsAre(L{"g_1of2"}, L{"g_2of2"}));
}

TEST(Fusion, large_tensors_travel_alone_where_they_would_have_to_be_packed) {
  CoordinatorOptions options = with_threshold(64);
  options.traits_of = [](int32_t, const Terms&) { return BackendTraits{.alone_bytes = 32}; };
  EXPECT_THAT(plan(options, {allreduce("a"), allreduce("big", {8}), allreduce("b"), allreduce("less", {7})}),
              ElementsAre(L{"a", "b", "less"}, L{"big"}));
  EXPECT_THAT(plan(options, group("g", {allreduce(""), allreduce("", {8}), allreduce("")})),
              ElementsAre(L{"g_1of3", "g_3of3"}, L{"g_2of3"}));
}

TEST(Fusion, what_travels_alone_is_asked_for_each_process_set_and_kind_of_tensors) {
  CoordinatorOptions options = with_threshold(64);
  options.traits_of = [](int32_t, const Terms& terms) {
    return BackendTraits{.alone_bytes = terms.memory == MemoryKind::kDevice ? 0 : 32};
  };
  const auto on_device = [](TensorRequest request) {
    request.memory = MemoryKind::kDevice;
    return request;
  };
  EXPECT_THAT(plan(options, {allreduce("a", {8}), allreduce("b", {8}), on_device(allreduce("c", {8})),
                             on_device(allreduce("d", {8}))}),
              ElementsAre(L{"a"}, L{"b"}, L{"c", "d"}));
}

TEST(Fusion, factors_ops_and_devices_keep_tensors_apart) {
  TensorRequest scaled = allreduce("s");
  scaled.prescale = 2;
  TensorRequest min = allreduce("m");
  min.op = ReduceOp::kMin;
  TensorRequest gpu = allreduce("g");
  gpu.device = 1;
  EXPECT_THAT(plan(with_threshold(1024), {allreduce("a"), scaled, min, gpu, allreduce("b")}),
              ElementsAre(L{"a", "b"}, L{"s"}, L{"m"}, L{"g"}));
}

TEST(Fusion, allgather_and_reducescatter_fuse_and_broadcast_and_alltoall_do_not) {
  Tensors requests;
  for (const Collective what : {Collective::kAllgather, Collective::kReducescatter, Collective::kBroadcast,
                                Collective::kAlltoall, Collective::kBarrier})
    for (const char* suffix : {"1", "2"})
      requests.push_back(collective(what, std::string(name_of(what)) + suffix));
  EXPECT_THAT(
      plan(with_threshold(1024), requests),
      ElementsAre(L{"ALLGATHER1", "ALLGATHER2"}, L{"REDUCESCATTER1", "REDUCESCATTER2"}, L{"BROADCAST1"},
                  L{"BROADCAST2"}, L{"ALLTOALL1"}, L{"ALLTOALL2"}, L{"BARRIER1"}, L{"BARRIER2"}));
}

TEST(Fusion, a_group_of_two_dtypes_runs_in_two_responses_one_after_the_other) {
  const auto mixed = group("g", {allreduce(""), allreduce("", {4}, DType::kInt32), allreduce("")});
  EXPECT_THAT(plan(with_threshold(1024), concat({{allreduce("a")}, mixed, {allreduce("b")}})),
              ElementsAre(L{"a"}, L{"g_1of3", "g_3of3", "b"}, L{"g_2of3"}));
}

TEST(Fusion, a_group_rides_along_whole_or_gets_its_own_response) {
  const auto two = group("g", {allreduce(""), allreduce("")});
  EXPECT_THAT(plan(with_threshold(48), concat({{allreduce("a")}, two})),
              ElementsAre(L{"a", "g_1of2", "g_2of2"}));
  EXPECT_THAT(plan(with_threshold(32), concat({{allreduce("a")}, two})),
              ElementsAre(L{"a"}, L{"g_1of2", "g_2of2"}));
}

TEST(Fusion, a_group_above_the_threshold_takes_as_few_responses_as_fit) {
  const auto odd =
      group("g", {allreduce("", {6}), allreduce("", {5}), allreduce("", {4}), allreduce("", {5})});
  EXPECT_THAT(plan(with_threshold(40), odd), ElementsAre(L{"g_1of4", "g_3of4"}, L{"g_2of4", "g_4of4"}));
}

TEST(Fusion, with_group_fusion_disabled_a_group_fuses_only_with_itself) {
  CoordinatorOptions options = with_threshold(1024);
  options.group_fusion_disabled = true;
  const auto two = group("g", {allreduce(""), allreduce("")});
  EXPECT_THAT(plan(options, concat({{allreduce("a")}, two, {allreduce("b")}})),
              ElementsAre(L{"a", "b"}, L{"g_1of2", "g_2of2"}));
}

TEST(Groups, wait_until_every_member_is_ready) {
  Coordinator coordinator(world_of(2));
  const auto two = group("g", {allreduce(""), allreduce("")});
  coordinator.submit(0, two, 0, nullptr);
  coordinator.submit(1, {two[0]}, 0, nullptr);
  EXPECT_THAT(coordinator.take_ready(), IsEmpty());
  coordinator.submit(1, {two[1]}, 0, nullptr);
  EXPECT_THAT(coordinator.take_ready(), SizeIs(1));
}

TEST(Groups, one_member_in_error_fails_the_whole_group) {
  Coordinator coordinator(world_of(2));
  coordinator.submit(0, group("g", {allreduce(""), allreduce("")}), 0, nullptr);
  coordinator.submit(1, group("g", {allreduce(""), allreduce("", {5})}), 0, nullptr);
  const auto responses = coordinator.take_ready();
  ASSERT_THAT(responses, SizeIs(1));
  EXPECT_TRUE(is<Failure>(responses[0]));
  EXPECT_THAT(names(responses[0]), ElementsAre("g_1of2", "g_2of2"));
  EXPECT_THAT(as<Failure>(responses[0]).error, HasSubstr("Mismatched ALLREDUCE tensor shapes"));
}

TEST(Groups, of_different_length_fail_on_all_ranks_instead_of_hanging) {
  for (const size_t other : {1u, 2u}) {
    Coordinator coordinator(world_of(3));
    coordinator.submit(0, group("g", {allreduce(""), allreduce(""), allreduce("")}), 0, nullptr);
    coordinator.submit(1, group("g", Tensors(other, allreduce(""))), 0, nullptr);
    EXPECT_THAT(coordinator.take_ready(), IsEmpty()) << "rank 2 may still agree with one of them";
    coordinator.submit(2, group("g", {allreduce(""), allreduce(""), allreduce("")}), 0, nullptr);
    const auto responses = coordinator.take_ready();
    ASSERT_THAT(responses, SizeIs(1));
    EXPECT_TRUE(is<Failure>(responses[0]));
    EXPECT_THAT(names(responses[0]), SizeIs(3 + other));
    EXPECT_THAT(as<Failure>(responses[0]).error, HasSubstr("Mismatched groups"));
    EXPECT_THAT(as<Failure>(responses[0]).error, HasSubstr(" Outnumbered: rank 1."));
    EXPECT_EQ(coordinator.pending_summary(), "");
  }
}

TEST(Groups, of_one_base_and_two_lengths_run_when_ranks_agree) {
  Coordinator coordinator(world_of(2));
  for (const Rank rank : {0, 1})
    coordinator.submit(
        rank, concat({group("g", {allreduce(""), allreduce("")}), group("g", {allreduce("")})}), 0, nullptr);
  const auto responses = coordinator.take_ready();
  ASSERT_THAT(responses, SizeIs(1));
  EXPECT_THAT(names(responses[0]), ElementsAre("g_1of2", "g_2of2", "g_1of1"));
}

// The C ABI lets callers name members freely, so that lengths or members differ under equal names.
Tensors free_group(std::vector<std::string> members) {
  Tensors out;
  for (size_t i = 0; i < members.size(); ++i) {
    TensorRequest request = allreduce(members[i]);
    request.group_index = static_cast<int32_t>(i);
    request.group_size = static_cast<int32_t>(members.size());
    request.group_name = members.size() > 1 ? members[0] : "";
    out.push_back(request);
  }
  return out;
}

TEST(Groups, with_other_members_fail_with_all_their_members_on_all_ranks) {
  const std::vector<std::pair<L, L>> cases = {{{"a", "b", "c"}, {"a", "b"}},
                                              {{"a", "b"}, {"a", "c"}},
                                              {{"a", "b"}, {"b", "c"}},
                                              {{"a", "b"}, {"b", "a"}},
                                              {{"a", "b"}, {"a"}}};
  for (const auto& [one, other] : cases) {
    for (const bool is_reversed : {false, true}) {
      Coordinator coordinator(world_of(2));
      coordinator.submit(is_reversed ? 1 : 0, free_group(one), 0, nullptr);
      coordinator.submit(is_reversed ? 0 : 1, free_group(other), 0, nullptr);
      const auto responses = coordinator.take_ready();
      ASSERT_THAT(responses, SizeIs(1));
      EXPECT_TRUE(is<Failure>(responses[0]));
      EXPECT_THAT(as<Failure>(responses[0]).error, HasSubstr("Mismatched groups"));
      EXPECT_EQ(coordinator.pending_summary(), "");
    }
  }
}

}  // namespace
}  // namespace rueda::control::fusion_test
