// What happens to a job when NCCL fails, or a member is lost: every operation fails on every rank, what was
// launched ends, and the process can go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "nccl_job.h"

namespace rueda::runtime::nccl_failures_test {
namespace {

using nccl_job::OnDevice;
using nccl_job::soon;
using nccl_job::with_nccl;
using nccl_test::control;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

class NcclFailures : public nccl_job::NcclJob {
 protected:
  static constexpr Rank kRanks = 2;
  const Job job_{kRanks, "shm,tcp"};

  // One sum, which works.
  static void warm_up(Engine& engine, Rank rank, OnDevice& mine) {
    const auto data = mine.vector(std::vector<float>(100, 1.0F * (rank + 1)));
    ASSERT_TRUE(engine.wait(must_submit(engine, mine.tensor(Collective::kAllreduce, "first", *data)), soon())
                    .is_ok());
    EXPECT_THAT(data->read(), Each(3.0F));
  }
  static Status sum(Engine& engine, OnDevice& mine, const std::string& name) {
    const auto data = mine.vector(std::vector<float>(100, 1.0F));
    std::vector<Tensor> tensors;
    tensors.push_back(mine.tensor(Collective::kAllreduce, name, *data));
    const Result<int64_t> handle = engine.submissions().submit(std::move(tensors));
    const Status status = handle.is_ok() ? engine.wait(handle.value(), soon()) : handle.status();
    mine.user().synchronize();
    return status;
  }
};

TEST_F(NcclFailures, a_member_that_nccl_loses_ends_the_epoch_and_what_was_launched) {
  job_.run(
      [&](Engine& engine, Rank rank) {
        OnDevice mine(rank);
        warm_up(engine, rank, mine);
        if (rank == 1) control().lost_member = 1;
        const Status status = sum(engine, mine, "second");
        if (rank == 0) {
          EXPECT_FALSE(status.is_ok());
          EXPECT_THAT(status.why, HasSubstr("NCCL in the world (ranks 0, 1) failed: remote process exited"));
        }
        EXPECT_FALSE(sum(engine, mine, "third").is_ok());
        EXPECT_FALSE(engine.health().is_ok());
      },
      with_nccl());
  EXPECT_GE(control().aborts, 1);
}

TEST_F(NcclFailures, a_process_can_begin_again_after_an_abort) {
  for (int epoch = 0; epoch < 2; ++epoch) {
    const Job job(kRanks, "shm,tcp");
    job.run(
        [&](Engine& engine, Rank rank) {
          OnDevice mine(rank);
          warm_up(engine, rank, mine);
          if (rank == 1) control().lost_member = 1;
          EXPECT_TRUE(rank == 1 || !sum(engine, mine, "second").is_ok());
          if (rank == 1) (void)sum(engine, mine, "second");
          EXPECT_FALSE(sum(engine, mine, "third").is_ok());
          engine.shutdown();
        },
        with_nccl());
  }
}

TEST_F(NcclFailures, a_rank_that_dies_is_named_to_the_others_whose_launched_calls_fail) {
  const Job job(3, "shm,tcp");
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      Result<Session> started = job.start(rank, with_nccl());
      ASSERT_TRUE(started.is_ok()) << started.status().why;
      OnDevice mine(rank);
      // Rank 2 has no engine: its connections end with its session, as those of a process that dies.
      auto session = std::make_unique<Session>(std::move(started).value());
      if (rank == 2) {
        ++ready;
        while (ready < 3) std::this_thread::yield();
        session.reset();
        return;
      }
      const std::shared_ptr<Engine> engine = Engine::start(std::move(*session)).value();
      ++ready;
      const Status status = sum(*engine, mine, "grad");
      EXPECT_EQ(status.code, Code::kPeerLost);
      EXPECT_THAT(status.why, AllOf(HasSubstr("rank 2 (host a"), HasSubstr("was lost")));
      EXPECT_EQ(engine->lost_rank(), 2);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The stream of the program is busy until all ranks have ended, so what NCCL was given on it cannot end
// before.
TEST_F(NcclFailures, a_stream_that_does_not_end_keeps_no_rank) {
  std::atomic<bool> is_free{false};
  std::vector<std::unique_ptr<OnDevice>> busy(kRanks);
  std::vector<std::shared_ptr<cuda_test::DeviceVector<float>>> data(kRanks);
  job_.run(
      [&](Engine& engine, Rank rank) {
        OnDevice mine(rank);
        warm_up(engine, rank, mine);
        const auto at = static_cast<size_t>(rank);
        busy[at] = std::make_unique<OnDevice>(rank);
        data[at] = busy[at]->vector(std::vector<float>(100, 1.0F));
        busy[at]->user().enqueue([&] { is_free.wait(false); });
        const int64_t handle =
            must_submit(engine, busy[at]->tensor(Collective::kAllreduce, "late", *data[at]));
        ASSERT_TRUE(engine.wait_on_stream(handle, busy[at]->user().handle(), soon()).is_ok()) << "launched";
        if (rank == 1) control().failing_member = 1;
        if (rank == 1) control().fail_group = nccl::kInternalError;
        EXPECT_FALSE(sum(engine, mine, "bad").is_ok());
        engine.shutdown();
      },
      with_nccl());
  is_free = true;
  is_free.notify_all();
  for (const auto& one : busy) one->user().synchronize();
  for (const Deadline deadline = soon(); control().communicators != 0 && !deadline.is_past();)
    std::this_thread::yield();  // what the stream of NCCL still had keeps them
}

// CUDA lets whoever enqueues wait while the queue of a stream is full; the engine must not come to that. Each
// tensor is a call, or, for a device without memory to pack, a part of one call.
TEST_F(NcclFailures, calls_behind_a_busy_gpu_do_not_keep_a_rank_from_the_news) {
  for (const bool is_one_call : {false, true}) {
    std::atomic<bool> is_free{false};
    std::vector<std::unique_ptr<OnDevice>> busy(kRanks);
    std::vector<std::shared_ptr<cuda_test::DeviceVector<float>>> data(kRanks);
    const auto body = [&](Engine& engine, Rank rank) {
      constexpr int kTensors = 600;
      OnDevice mine(rank);
      const auto at = static_cast<size_t>(rank);
      busy[at] = std::make_unique<OnDevice>(rank);
      data[at] = busy[at]->vector(std::vector<float>(kTensors, 1.0F));
      if (is_one_call) cuda_test::set_free_memory(rank, 100'000);
      warm_up(engine, rank, mine);
      busy[at]->user().enqueue([&] { is_free.wait(false); });
      std::vector<Tensor> tensors;
      for (int i = 0; i < kTensors; ++i) {
        tensors.push_back(busy[at]->tensor(Collective::kAllreduce, "t" + std::to_string(i), *data[at]));
        tensors.back().request.shape = {1};
        tensors.back().input = tensors.back().output = data[at]->data() + i;
        if (!is_one_call) continue;
        tensors.back().request.group_name = "all";
        tensors.back().request.group_index = i;
        tensors.back().request.group_size = kTensors;
      }
      int64_t last = 0;
      if (is_one_call)
        last = engine.submissions().submit(std::move(tensors)).value();
      else
        for (Tensor& one : tensors) last = must_submit(engine, std::move(one));
      std::this_thread::sleep_for(std::chrono::milliseconds(500));  // as much is launched as can be
      if (rank == 1) cuda_test::fail_device(1, 700);                // with the next work
      if (rank == 1) mine.user().enqueue([] {});
      const Status status = engine.wait(last, soon());
      EXPECT_FALSE(status.is_ok());
      EXPECT_THAT(status.why, HasSubstr("rank 1 (host a")) << "rank " << rank;
      is_free = true;
      is_free.notify_all();
    };
    const Job job(kRanks, "shm,tcp");
    job.run(body, with_nccl({{"RUEDA_FUSION_THRESHOLD", "0"}}));
    busy[0]->user().synchronize();
    busy.clear();
    cuda_test::heal();
    control().communicators = 0;  // what the device that failed was given keeps some
  }
}

TEST_F(NcclFailures, a_device_that_fails_after_the_launch_ends_the_epoch_though_nobody_waits_for_it) {
  job_.run(
      [&](Engine& engine, Rank rank) {
        OnDevice mine(rank);
        warm_up(engine, rank, mine);
        const auto data = mine.vector(std::vector<float>(100, 1.0F));
        const int64_t handle = must_submit(engine, mine.tensor(Collective::kAllreduce, "last", *data));
        if (rank == 1) cuda_test::fail_device(1, 700);  // with the next work
        (void)engine.wait_on_stream(handle, mine.user().handle(), soon());
        for (const Deadline deadline = soon(); engine.health().is_ok() && !deadline.is_past();)
          std::this_thread::yield();
        EXPECT_THAT(engine.health().why, HasSubstr("rank 1 (host a")) << "rank " << rank;
      },
      with_nccl());
  control().communicators = 0;  // as above
}

TEST_F(NcclFailures, communicators_that_do_not_come_up_are_warned_of_and_fail_at_a_deadline) {
  testing::internal::CaptureStderr();
  control().never_ready = true;
  job_.run(
      [&](Engine& engine, Rank rank) {
        OnDevice mine(rank);
        const Status status = sum(engine, mine, "grad");
        EXPECT_THAT(status.why, AllOf(HasSubstr("NCCL has not connected the world (ranks 0, 1) within 12 s"),
                                      HasSubstr("NCCL_SOCKET_IFNAME")));
      },
      with_nccl({{"RUEDA_PEER_TIMEOUT_SECONDS", "3"}}));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("within 3 s, although all of them have begun"));
  EXPECT_EQ(said.find("within 3 s"), said.rfind("within 3 s")) << "one rank says it once";
}

TEST_F(NcclFailures, of_the_start_or_a_launch_on_one_rank_reach_all_ranks) {
  for (const std::string what : {"begin", "init", "group"}) {
    SCOPED_TRACE(what);
    control().reset();
    control().failing_member = 1;
    const bool is_start = what != "group";
    if (is_start) (what == "begin" ? control().fail_begin : control().fail_init) = nccl::kSystemError;
    const Job job(kRanks, "shm,tcp");
    job.run(
        [&](Engine& engine, Rank rank) {
          OnDevice mine(rank);
          if (!is_start) {
            warm_up(engine, rank, mine);
            if (rank == 1) control().fail_group = nccl::kInternalError;
          }
          EXPECT_FALSE(sum(engine, mine, "grad").is_ok() && sum(engine, mine, "next").is_ok());
          for (const Deadline deadline = soon(); engine.health().is_ok() && !deadline.is_past();)
            std::this_thread::yield();
          EXPECT_THAT(engine.health().why, AllOf(HasSubstr("rank 1"), HasSubstr("failed: internal error")));
        },
        with_nccl());
  }
}

}  // namespace
}  // namespace rueda::runtime::nccl_failures_test
