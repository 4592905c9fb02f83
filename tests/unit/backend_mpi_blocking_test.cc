#include "rueda/backend/mpi/blocking_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <climits>
#include <latch>
#include <thread>

#include "backend_mpi_fake.h"

namespace rueda::backend::mpi::backend_mpi_blocking_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

BlockingCall call_of(Collective what, int64_t count, const std::vector<std::vector<int64_t>>& counts) {
  static std::array<std::byte, 64> memory;
  BlockingCall call{.what = what, .me = 1, .size = 2, .root = 1, .terms = {}, .runs = {}, .counts = counts};
  for (const auto& each : counts)
    call.runs.push_back({.input = memory.data(), .output = memory.data(), .count = count, .counts = each});
  return call;
}

class BlockingMpi : public testing::Test {
 protected:
  Status run_call(const BlockingCall& call) { return run(library_, call); }
  std::optional<Status> outcome() {
    const Deadline deadline = Deadline::after(30 * kSecond);
    std::optional<Status> ended = worker_.take_outcome();
    while (!ended && !deadline.is_past()) {
      std::this_thread::yield();
      ended = worker_.take_outcome();
    }
    return ended;
  }
  FakeMpi mpi_;
  FakeLibrary library_{mpi_};
  Worker worker_;
};

TEST_F(BlockingMpi, each_tensor_is_one_function) {
  EXPECT_TRUE(run_call(call_of(Collective::kAllreduce, 9, {{}, {}})).is_ok());
  EXPECT_TRUE(run_call(call_of(Collective::kBroadcast, 4, {{}})).is_ok());
  EXPECT_TRUE(run_call(call_of(Collective::kAllgather, 3, {{2, 3}})).is_ok());
  EXPECT_TRUE(run_call(call_of(Collective::kReducescatter, 5, {{3, 2}})).is_ok());
  EXPECT_TRUE(run_call(call_of(Collective::kAlltoall, 7, {{1, 2, 3, 4}})).is_ok());
  EXPECT_THAT(mpi_.posted,
              ElementsAre("blocking allreduce 9", "blocking allreduce 9", "blocking bcast 4 1",
                          "blocking allgatherv 3", "blocking reduce_scatter 3", "blocking alltoallv 3 4"));
}

TEST_F(BlockingMpi, reductions_without_elements_call_nothing_on_any_member) {
  EXPECT_TRUE(run_call(call_of(Collective::kAllreduce, 0, {{}})).is_ok());
  EXPECT_TRUE(run_call(call_of(Collective::kBroadcast, 0, {{}})).is_ok());
  EXPECT_TRUE(mpi_.posted.empty());
}

TEST_F(BlockingMpi, the_first_failure_ends_a_call) {
  mpi_.failure = {Code::kUnavailable, "no route"};
  EXPECT_THAT(run_call(call_of(Collective::kAllreduce, 9, {{}, {}})).why, HasSubstr("no route"));
  EXPECT_EQ(mpi_.posted.size(), 1U);
}

TEST_F(BlockingMpi, counts_that_mpi_cannot_take_are_left_to_others) {
  schedule::Spec spec{.count = INT_MAX / 2, .counts = {}, .scale = {}, .segment_counts = {}};
  EXPECT_TRUE(counts_fit(spec));
  ++spec.count;
  EXPECT_FALSE(counts_fit(spec));
  spec.count = 0;
  spec.counts = {INT_MAX / 2, 1};
  EXPECT_FALSE(counts_fit(spec));
}

TEST_F(BlockingMpi, a_worker_runs_one_piece_after_the_other) {
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(worker_.begin([i] { return Status(Code::kUnavailable, std::to_string(i)); }).is_ok());
    const std::optional<Status> ended = outcome();
    ASSERT_TRUE(ended);
    EXPECT_EQ(ended->why, std::to_string(i));
    EXPECT_FALSE(worker_.is_running());
  }
}

TEST_F(BlockingMpi, a_worker_that_is_stuck_does_not_hold_its_owner) {
  const auto gate = std::make_shared<std::latch>(1), left = std::make_shared<std::latch>(1);
  {
    Worker stuck;
    ASSERT_TRUE(stuck
                    .begin([gate, left] {
                      gate->wait();
                      left->count_down();
                      return Status::ok();
                    })
                    .is_ok());
    EXPECT_FALSE(stuck.take_outcome());
    EXPECT_TRUE(stuck.is_running());
  }
  gate->count_down();
  left->wait();
}

}  // namespace
}  // namespace rueda::backend::mpi::backend_mpi_blocking_test
