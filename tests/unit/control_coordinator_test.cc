#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control_fixture.h"

namespace rueda::control::coordinator_test {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

TEST(Coordinator, nothing_runs_until_every_member_has_submitted_the_name) {
  Coordinator coordinator(world_of(3));
  coordinator.submit(0, {allreduce("a")}, 0, nullptr);
  coordinator.submit(2, {allreduce("a")}, 0, nullptr);
  EXPECT_THAT(coordinator.take_ready(), IsEmpty());
  coordinator.submit(1, {allreduce("a")}, 0, nullptr);
  const auto responses = coordinator.take_ready();
  ASSERT_THAT(responses, SizeIs(1));
  EXPECT_TRUE(is<Bucket>(responses[0]));
  EXPECT_THAT(names(responses[0]), ElementsAre("a"));
  EXPECT_THAT(coordinator.take_ready(), IsEmpty());
}

TEST(Coordinator, order_is_that_of_becoming_ready_not_of_submission) {
  CoordinatorOptions options = world_of(2);
  options.fusion_bytes = 0;
  Coordinator coordinator(options);
  coordinator.submit(0, {allreduce("a"), allreduce("b")}, 0, nullptr);
  coordinator.submit(1, {allreduce("b"), allreduce("a")}, 0, nullptr);
  const auto responses = coordinator.take_ready();
  ASSERT_THAT(responses, SizeIs(2));
  EXPECT_THAT(names(responses[0]), ElementsAre("b"));
  EXPECT_THAT(names(responses[1]), ElementsAre("a"));
}

TEST(Coordinator, one_name_in_two_sets_does_not_clash) {
  CoordinatorOptions options = world_of(2);
  options.process_sets = {{1, {1}}};
  Coordinator coordinator(options);
  TensorRequest in_set = allreduce("a", {7});
  in_set.process_set = 1;
  coordinator.submit(1, {allreduce("a"), in_set}, 0, nullptr);
  auto responses = coordinator.take_ready();
  ASSERT_THAT(responses, SizeIs(1));
  EXPECT_EQ(as<Bucket>(responses[0]).process_set, 1);
  coordinator.submit(0, {allreduce("a")}, 0, nullptr);
  responses = coordinator.take_ready();
  ASSERT_THAT(responses, SizeIs(1));
  EXPECT_EQ(as<Bucket>(responses[0]).process_set, 0);
}

struct Disagreement {
  std::string what;
  TensorRequest a;
  TensorRequest b;
  std::string text;
};

TensorRequest with(TensorRequest request, void (*change)(TensorRequest&)) {
  change(request);
  return request;
}

std::vector<Disagreement> disagreements() {
  const TensorRequest sum = allreduce("t");
  const TensorRequest rs = collective(Collective::kReducescatter, "t");
  const TensorRequest bc = collective(Collective::kBroadcast, "t");
  const auto gather = [](std::vector<int64_t> shape) {
    return collective(Collective::kAllgather, "t", std::move(shape));
  };
  const auto toall = [](std::vector<int64_t> shape) {
    return collective(Collective::kAlltoall, "t", std::move(shape));
  };
  return {
      {"dtype", sum, allreduce("t", {4}, DType::kInt32),
       "Mismatched data types: One rank had type float32, but another rank had type int32. Tensor t: rank 0 "
       "has float32, rank 1 has int32."},
      {"dtype_before_shape", sum, allreduce("t", {5}, DType::kInt32), "Mismatched data types: "},
      {"operation", sum, gather({4}),
       "Mismatched operations: One rank did an ALLREDUCE, but another rank did an ALLGATHER."},
      {"adasum", sum, with(sum, [](TensorRequest& r) { r.op = ReduceOp::kAdasum; }),
       "Mismatched operations: One rank did an ALLREDUCE, but another rank did an ADASUM."},
      {"barrier", collective(Collective::kBarrier, "t", {}), sum,
       "Mismatched operations: One rank did an BARRIER, but another rank did an ALLREDUCE."},
      {"shape", allreduce("t", {2, 3}), allreduce("t", {2}),
       "Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape [2, 3], but another rank sent a "
       "tensor of shape [2]."},
      {"broadcast_shape", bc, collective(Collective::kBroadcast, "t", {}),
       "Mismatched BROADCAST tensor shapes: One rank sent a tensor of shape [4], but another rank sent a "
       "tensor of shape []."},
      {"factors", sum, with(sum, [](TensorRequest& r) { r.prescale = 0.5; }),
       "Mismatched prescale and/or postscale factors: One rank sent factors (1, 1), but another rank sent "
       "factors (0.5, 1)."},
      {"reducescatter_op", rs, with(rs, [](TensorRequest& r) { r.op = ReduceOp::kAverage; }),
       "Mismatched prescale and/or postscale factors: One rank sent factors (1, 1), but another rank sent "
       "factors (1, 0.5)."},
      {"op", sum, with(sum, [](TensorRequest& r) { r.op = ReduceOp::kMin; }),
       "Mismatched reduction operation: One rank sent reduction op 1, but another rank sent reduction op 3."},
      {"scalar_allgather", gather({}), gather({1}),
       "Process-set rank zero tried to ALLGATHER a rank-zero tensor."},
      {"scalar_alltoall", toall({}), toall({}),
       "Process-set rank zero tried to ALLTOALL a rank-zero tensor."},
      {"gather_rank", gather({1, 2}), gather({1}),
       "Mismatched ALLGATHER tensor shapes: One rank sent a tensor of rank 2, but another rank sent a tensor "
       "of rank 1."},
      {"alltoall_dimension", toall({2, 3, 4}), toall({4, 3, 5}),
       "Mismatched ALLTOALL tensor shapes: One rank sent a tensor with dimension 2 equal to 4, but another "
       "rank sent a tensor with dimension 2 equal to 5."},
      {"root", bc, with(bc, [](TensorRequest& r) { r.root = 1; }),
       "Mismatched BROADCAST root ranks: One rank specified root rank 0, but another rank specified root "
       "rank 1."},
      {"device", sum, with(sum, [](TensorRequest& r) { r.device = 0; }),
       "Mismatched ALLREDUCE CPU/GPU device selection: One rank specified device CPU, but another rank "
       "specified device GPU."},
      {"memory", sum, with(sum, [](TensorRequest& r) { r.memory = MemoryKind::kDevice; }),
       "Mismatched ALLREDUCE memory: One rank gave host memory, but another rank gave device memory."},
  };
}

class Mismatch : public testing::TestWithParam<Disagreement> {};

TEST_P(Mismatch, is_told_with_the_lowest_ranks_value_first_and_frees_the_name) {
  Coordinator coordinator(world_of(2));
  coordinator.submit(1, {GetParam().b}, 0, nullptr);
  coordinator.submit(0, {GetParam().a}, 0, nullptr);
  const auto responses = coordinator.take_ready();
  ASSERT_THAT(responses, SizeIs(1));
  EXPECT_TRUE(is<Failure>(responses[0]));
  EXPECT_EQ(as<Failure>(responses[0]).code, Code::kMismatch);
  EXPECT_THAT(names(responses[0]), ElementsAre("t"));
  EXPECT_THAT(as<Failure>(responses[0]).error, StartsWith(GetParam().text));
  const auto again = run(coordinator, {allreduce("t"), allreduce("t")});
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_TRUE(is<Bucket>(again[0]));
}

INSTANTIATE_TEST_SUITE_P(Contract, Mismatch, testing::ValuesIn(disagreements()),
                         [](const auto& info) { return info.param.what; });

TEST(Coordinator, a_mismatch_text_lists_which_ranks_hold_which_value) {
  Coordinator coordinator(world_of(3));
  const auto responses =
      run(coordinator, {allreduce("x"), allreduce("x", {4}, DType::kInt64), allreduce("x")});
  ASSERT_THAT(responses, SizeIs(1));
  EXPECT_THAT(as<Failure>(responses[0]).error,
              HasSubstr("Tensor x: ranks 0, 2 have float32, rank 1 has int64."));
}

TEST(Coordinator, a_mismatch_text_names_the_outnumbered_ranks_where_that_is_certain) {
  const auto error_of = [](const std::vector<Request>& requests) {
    Coordinator coordinator(world_of(static_cast<Rank>(requests.size())));
    const auto responses = run(coordinator, requests);
    return as<Failure>(responses.at(0)).error;
  };
  const TensorRequest usual = allreduce("x", {3}), other = allreduce("x", {4}), third = allreduce("x", {5});
  EXPECT_THAT(error_of({usual, usual, other}), EndsWith(" Outnumbered: rank 2."));
  EXPECT_THAT(error_of({other, usual, usual}), EndsWith(" Outnumbered: rank 0."));
  EXPECT_THAT(error_of({usual, other, usual, third}), EndsWith(" Outnumbered: ranks 1, 3."));
  EXPECT_THAT(error_of({usual, other}), Not(HasSubstr("Outnumbered")));
  EXPECT_THAT(error_of({usual, other, usual, other, third}), Not(HasSubstr("Outnumbered")));
}

TEST(Coordinator, rows_tell_everybody_the_sizes_of_the_outputs) {
  Coordinator coordinator(world_of(2));
  auto responses = run(coordinator, {collective(Collective::kAllgather, "g", {0, 3}),
                                     collective(Collective::kAllgather, "g", {5, 3})});
  ASSERT_THAT(responses, SizeIs(1));
  EXPECT_THAT(as<Bucket>(responses[0]).entries[0].rows, ElementsAre(0, 5));

  responses = run(coordinator, {collective(Collective::kReducescatter, "r", {3}),
                                collective(Collective::kReducescatter, "r", {3})});
  ASSERT_THAT(responses, SizeIs(1));
  EXPECT_THAT(as<Bucket>(responses[0]).entries[0].rows, ElementsAre(2, 1));

  TensorRequest given = collective(Collective::kAlltoall, "a", {4});
  given.splits = {3, 0};
  responses = run(coordinator, {given, collective(Collective::kAlltoall, "a", {2})});
  ASSERT_THAT(responses, SizeIs(1));
  EXPECT_THAT(as<Bucket>(responses[0]).entries[0].rows, ElementsAre(3, 0, 1, 1));
}

TEST(Coordinator, scalars_and_empty_tensors_run) {
  Coordinator coordinator(world_of(2));
  for (const TensorRequest& request :
       {allreduce("a", {}), allreduce("b", {0, 3}), collective(Collective::kBroadcast, "c", {}),
        collective(Collective::kReducescatter, "d", {0, 3}),
        collective(Collective::kAlltoall, "e", {0, 3})}) {
    const auto responses = run(coordinator, {request, request});
    ASSERT_THAT(responses, SizeIs(1));
    EXPECT_TRUE(is<Bucket>(responses[0])) << error_of(responses[0]);
  }
}

TEST(Coordinator, a_duplicate_submission_is_an_error_for_all_and_no_crash) {
  Coordinator coordinator(world_of(2));
  coordinator.submit(0, {allreduce("a"), allreduce("a")}, 0, nullptr);
  coordinator.submit(1, {allreduce("a")}, 0, nullptr);
  const auto responses = coordinator.take_ready();
  ASSERT_THAT(responses, SizeIs(1));
  EXPECT_EQ(as<Failure>(responses[0]).code, Code::kDuplicateName);
  EXPECT_THAT(as<Failure>(responses[0]).error,
              HasSubstr("with the same name as another tensor that is currently being processed"));
}

TEST(Coordinator, odd_requests_are_errors_or_ignored) {
  CoordinatorOptions options = world_of(2);
  options.process_sets = {{1, {1}}};
  Coordinator coordinator(options);
  TensorRequest unknown = allreduce("u");
  unknown.process_set = 77;
  TensorRequest foreign = allreduce("f");
  foreign.process_set = 1;
  coordinator.submit(0, {unknown, foreign}, 0, nullptr);
  coordinator.submit(9, {allreduce("x")}, 0, nullptr);
  coordinator.submit(-1, {allreduce("x")}, 0, nullptr);
  const auto responses = coordinator.take_ready();
  ASSERT_THAT(responses, SizeIs(2));
  for (const Response& response : responses)
    EXPECT_THAT(as<Failure>(response).failed[0].ranks, ElementsAre(0));
  EXPECT_THAT(as<Failure>(responses[1]).error, HasSubstr("not a member"));
  EXPECT_EQ(as<Failure>(responses[0]).process_set, 77);
  EXPECT_EQ(as<Failure>(responses[0]).error,
            "Allreduce: Process set provided does not exist, or has not been registered.");
}

TEST(Coordinator, an_error_names_the_ranks_whose_submission_it_answers) {
  Coordinator coordinator(world_of(3));
  TensorRequest other = allreduce("x");
  other.dtype = DType::kInt32;
  coordinator.submit(0, {allreduce("x")}, 0, nullptr);
  coordinator.submit(2, {allreduce("x")}, 0, nullptr);
  coordinator.submit(1, {other}, 0, nullptr);
  const auto responses = coordinator.take_ready();
  ASSERT_THAT(responses, SizeIs(1));
  EXPECT_TRUE(is<Failure>(responses[0]));
  EXPECT_THAT(as<Failure>(responses[0]).failed[0].ranks, testing::UnorderedElementsAre(0, 1, 2));
}

TEST(Coordinator, a_request_its_own_rank_should_have_refused_fails_for_all) {
  Coordinator coordinator(world_of(2));
  TensorRequest bad = collective(Collective::kAlltoall, "a", {4});
  bad.splits = {9, 9};
  auto responses = run(coordinator, {bad, collective(Collective::kAlltoall, "a", {4})});
  ASSERT_THAT(responses, SizeIs(1));
  EXPECT_TRUE(is<Failure>(responses[0]));
  const TensorRequest huge = allreduce("h", {INT64_MAX, INT64_MAX});
  responses = run(coordinator, {huge, huge});
  ASSERT_THAT(responses, SizeIs(1));
  EXPECT_THAT(as<Failure>(responses[0]).error, HasSubstr("too large"));
}

TEST(Coordinator, stall_report_has_the_known_shape_and_comes_once_per_interval) {
  Coordinator coordinator(world_of(3));
  std::vector<Request> many;
  for (const char* name : {"g", "b", "a", "c", "d", "f", "e"}) many.push_back(allreduce(name));
  coordinator.submit(0, many, 0, nullptr);
  coordinator.submit(1, {allreduce("a")}, 0, nullptr);
  EXPECT_EQ(coordinator.next_check(0), 60 * kSecond);
  EXPECT_THAT(coordinator.check_stalls(59 * kSecond), IsEmpty());
  const auto reports = coordinator.check_stalls(61 * kSecond);
  ASSERT_THAT(reports, SizeIs(1));
  EXPECT_FALSE(reports[0].is_fatal);
  EXPECT_THAT(
      reports[0].text,
      StartsWith(
          "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks "
          "and are waiting for remainder of ranks for more than 60 seconds. "));
  EXPECT_THAT(reports[0].text, HasSubstr("which will cause deadlock"));
  EXPECT_THAT(reports[0].text,
              HasSubstr("\nMissing ranks:\n1: [b, c, d, e, f, g ...]\n2: [a, b, c, d, e, f ...]\n"));
  EXPECT_THAT(reports[0].text, HasSubstr("\na (ALLREDUCE): waiting 61 s for rank 2\n"));
  EXPECT_THAT(coordinator.check_stalls(62 * kSecond), IsEmpty());
  EXPECT_EQ(coordinator.next_check(62 * kSecond), 121 * kSecond);
  EXPECT_THAT(coordinator.check_stalls(121 * kSecond), SizeIs(1));
  EXPECT_EQ(coordinator.pending_summary().substr(0, 18), "g waits for ranks ");
}

TEST(Coordinator, only_a_stall_with_a_new_tensor_is_reported_in_full) {
  Coordinator coordinator(world_of(3));
  coordinator.submit(0, {allreduce("a")}, 0, nullptr);
  const auto first = coordinator.check_stalls(60 * kSecond);
  ASSERT_THAT(first, SizeIs(1));
  EXPECT_TRUE(first[0].is_news);
  const auto again = coordinator.check_stalls(120 * kSecond);
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_FALSE(again[0].is_news);
  EXPECT_EQ(again[0].short_text,
            "One tensor is waiting for ranks 1, 2, the longest (a) for 120 s. The log of rank 0 lists them.");
  coordinator.submit(1, {allreduce("b")}, 121 * kSecond, nullptr);
  const auto grown = coordinator.check_stalls(181 * kSecond);
  ASSERT_THAT(grown, SizeIs(1));
  EXPECT_TRUE(grown[0].is_news);
  EXPECT_THAT(grown[0].short_text, StartsWith("2 tensors are waiting for ranks 0, 1, 2, the longest (a) "));
}

TEST(Coordinator, a_later_wait_under_the_same_name_is_reported_in_full_again) {
  Coordinator coordinator(world_of(2));
  coordinator.submit(0, {allreduce("a")}, 0, nullptr);
  ASSERT_THAT(coordinator.check_stalls(60 * kSecond), SizeIs(1));
  coordinator.submit(1, {allreduce("a")}, 61 * kSecond, nullptr);
  ASSERT_THAT(coordinator.take_ready(), SizeIs(1));
  coordinator.submit(0, {allreduce("a")}, 62 * kSecond, nullptr);
  const auto later = coordinator.check_stalls(122 * kSecond);
  ASSERT_THAT(later, SizeIs(1));
  EXPECT_TRUE(later[0].is_news);
}

TEST(Coordinator, a_stall_beyond_the_shutdown_time_is_fatal_and_marks_the_rank) {
  CoordinatorOptions options = world_of(2);
  options.stall_shutdown = 90 * kSecond;
  Coordinator coordinator(options);
  coordinator.submit(1, {allreduce("a")}, 0, nullptr);
  ASSERT_THAT(coordinator.check_stalls(60 * kSecond), SizeIs(1));
  EXPECT_EQ(coordinator.next_check(60 * kSecond), 90 * kSecond);
  const auto reports = coordinator.check_stalls(90 * kSecond);
  ASSERT_THAT(reports, SizeIs(1));
  EXPECT_TRUE(reports[0].is_fatal);
  EXPECT_THAT(reports[0].text, HasSubstr("\n0!: [a]\n"));
  EXPECT_TRUE(
      reports[0].text.ends_with("\nOne or more rank (marked by \"!\") is stalled for longer than 90 seconds. "
                                "Will shutdown. Stalled: rank 0."));
}

TEST(Coordinator, only_ranks_that_one_tensor_waits_for_too_long_are_called_stalled_at_the_end) {
  CoordinatorOptions options = world_of(4);
  options.stall_shutdown = 90 * kSecond;
  Coordinator coordinator(options);
  coordinator.submit(1, {allreduce("a")}, 0, nullptr);
  coordinator.submit(2, {allreduce("a")}, 0, nullptr);
  coordinator.submit(0, {allreduce("b")}, 30 * kSecond, nullptr);
  coordinator.submit(3, {allreduce("b")}, 30 * kSecond, nullptr);
  const auto reports = coordinator.check_stalls(90 * kSecond);
  ASSERT_THAT(reports, SizeIs(1));
  EXPECT_THAT(reports[0].text, HasSubstr("\n0!: [a]\n1: [b]\n2: [b]\n3!: [a]\n"));
  EXPECT_THAT(reports[0].text, EndsWith(" Stalled: ranks 0, 3."));
}

TEST(Coordinator, a_stall_report_says_when_the_job_ends_and_which_setting_ends_it) {
  CoordinatorOptions options = world_of(2);
  options.stall_shutdown = 1800 * kSecond;
  Coordinator coordinator(options);
  coordinator.submit(1, {allreduce("a")}, 0, nullptr);
  const std::string end =
      "The job ends in 1740 s, when this wait has lasted for 1800 s: RUEDA_STALL_SHUTDOWN_TIME_SECONDS sets "
      "the limit, and 0 lifts it.";
  const auto reports = coordinator.check_stalls(60 * kSecond + 1);
  ASSERT_THAT(reports, SizeIs(1));
  EXPECT_TRUE(reports[0].text.ends_with("\n" + end)) << reports[0].text;
  EXPECT_TRUE(reports[0].short_text.ends_with(". " + end)) << reports[0].short_text;
}

TEST(Coordinator, a_stall_report_announces_no_end_where_there_is_none) {
  CoordinatorOptions options = world_of(2);
  options.stall_shutdown = 0;
  Coordinator coordinator(options);
  coordinator.submit(1, {allreduce("a")}, 0, nullptr);
  const auto reports = coordinator.check_stalls(60 * kSecond);
  ASSERT_THAT(reports, SizeIs(1));
  EXPECT_THAT(reports[0].text, Not(HasSubstr("The job ends")));
}

TEST(Coordinator, a_shutdown_time_below_the_warning_time_never_shuts_down) {
  CoordinatorOptions options = world_of(2);
  options.stall_shutdown = 10 * kSecond;
  Coordinator coordinator(options);
  coordinator.submit(1, {allreduce("a")}, 0, nullptr);
  EXPECT_EQ(coordinator.next_check(0), 60 * kSecond);
  const auto reports = coordinator.check_stalls(600 * kSecond);
  ASSERT_THAT(reports, SizeIs(1));
  EXPECT_FALSE(reports[0].is_fatal);
}

TEST(Coordinator, finished_and_disabled_checks_report_nothing) {
  Coordinator coordinator(world_of(2));
  run(coordinator, {allreduce("a"), allreduce("a")});
  EXPECT_THAT(coordinator.check_stalls(1000 * kSecond), IsEmpty());
  EXPECT_EQ(coordinator.pending_summary(), "");
  CoordinatorOptions options = world_of(2);
  options.stall_check_disabled = true;
  Coordinator silent(options);
  silent.submit(0, {allreduce("a")}, 0, nullptr);
  EXPECT_THAT(silent.check_stalls(1000 * kSecond), IsEmpty());
}

}  // namespace
}  // namespace rueda::control::coordinator_test
