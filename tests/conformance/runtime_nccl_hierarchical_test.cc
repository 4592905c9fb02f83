// Whole engines with hierarchical allreduces: NCCL inside hosts, rueda's connections between them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "nccl_job.h"

namespace rueda::runtime::nccl_hierarchical_test {
namespace {

using nccl_job::OnDevice;
using nccl_job::soon;
using nccl_job::with_nccl;
using nccl_test::control;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

Env hierarchical(Env more = {}) {
  more.try_emplace("HOROVOD_HIERARCHICAL_ALLREDUCE", "1");
  return with_nccl(std::move(more));
}

class NcclHierarchical : public nccl_job::NcclJob {
 protected:
  static constexpr Rank kRanks = 4;
  static void run(const std::string& hosts, const nccl_job::DeviceBody& body,
                  const Env& settings = hierarchical()) {
    run_with(settings, static_cast<Rank>(hosts.size()), body, hosts);
  }
  static Status reduce(Engine& engine, Tensor tensor) {
    const int64_t handle = must_submit(engine, std::move(tensor));
    const Status status = engine.wait(handle, soon());
    engine.operations().release(handle);
    return status;
  }
};

TEST_F(NcclHierarchical, a_stream_that_waits_sees_the_sums_of_all_sizes) {
  for (const char* hosts : {"aabb", "abab"}) {
    control().reset();
    run(hosts, [](Engine& engine, Rank rank, OnDevice& mine) {
      for (const size_t count : {0, 1, 2, 3, 1000, 70'001}) {
        const auto data = mine.vector(std::vector<float>(count, -1.0F));
        mine.user().enqueue([&] { data->write(std::vector<float>(count, 1.0F * (rank + 1))); });  // later
        const int64_t handle =
            must_submit(engine, mine.tensor(Collective::kAllreduce, "grad" + std::to_string(count), *data));
        ASSERT_TRUE(engine.wait_on_stream(handle, mine.user().handle(), soon()).is_ok());
        std::vector<float> seen;
        mine.user().enqueue([&] { seen = data->read(); });
        mine.user().synchronize();
        EXPECT_THAT(seen, Each(10.0F)) << count;
        EXPECT_EQ(seen.size(), count);
        engine.operations().release(handle);
      }
    });
    EXPECT_EQ(control().starts, kRanks) << "one communicator for each host, on each of its ranks";
  }
}

// Each operation on each type, with factors before and after that are applied once.
TEST_F(NcclHierarchical, all_operations_and_types_are_reduced_and_scaled_once) {
  run("aabb", [](Engine& engine, Rank rank, OnDevice& mine) {
    const float value = rank + 1;
    const auto check = [&](const char* name, ReduceOp op, float expected, double prescale, double postscale) {
      const auto data = mine.vector(std::vector<float>(777, value));
      Tensor tensor = mine.tensor(Collective::kAllreduce, name, *data);
      tensor.request.op = op;
      tensor.request.prescale = prescale;
      tensor.request.postscale = postscale;
      ASSERT_TRUE(reduce(engine, std::move(tensor)).is_ok());
      EXPECT_THAT(data->read(), Each(expected)) << name;
    };
    check("sum", ReduceOp::kSum, 60, 2, 3);
    check("average", ReduceOp::kAverage, 15, 2, 3);
    check("min", ReduceOp::kMin, 1, 1, 1);
    check("max", ReduceOp::kMax, 4, 1, 1);
    check("product", ReduceOp::kProduct, 24, 1, 1);
    const auto check_type = [&]<class T>(const char* name, DType dtype, T mine_is, T expected) {
      const auto data = mine.vector(std::vector<T>(7, mine_is));
      ASSERT_TRUE(reduce(engine, mine.tensor(Collective::kAllreduce, name, *data, dtype)).is_ok());
      EXPECT_THAT(data->read(), Each(expected)) << name;
    };
    check_type("float64", DType::kFloat64, double{value}, 10.0);
    check_type("int64", DType::kInt64, int64_t{rank + 1}, int64_t{10});
    check_type("int32", DType::kInt32, int32_t{rank + 1}, int32_t{10});
    check_type("int16", DType::kInt16, static_cast<int16_t>(rank + 1), int16_t{10});  // staged
    check_type("int8", DType::kInt8, static_cast<int8_t>(rank + 1), int8_t{10});
    check_type("uint8", DType::kUint8, static_cast<uint8_t>(rank + 1), uint8_t{10});
    check_type("float16", DType::kFloat16, uint16_t{0x3C00}, uint16_t{0x4400});    // 1 -> 4
    check_type("bfloat16", DType::kBfloat16, uint16_t{0x3F80}, uint16_t{0x4080});  // 1 -> 4
  });
}

// 256 + 1 + 260 + 1: NCCL loses both ones where it adds them, so a host has 256 and 260, and the sum of these
// is rounded once.
TEST_F(NcclHierarchical, sums_of_16_bit_floats_are_added_between_hosts_as_rueda_adds_them) {
  run("aabb", [](Engine& engine, Rank rank, OnDevice& mine) {
    const uint16_t addends[] = {0x4380, 0x3F80, 0x4382, 0x3F80};
    const auto data = mine.vector(std::vector<uint16_t>(5, addends[rank]));
    ASSERT_TRUE(
        reduce(engine, mine.tensor(Collective::kAllreduce, "brain", *data, DType::kBfloat16)).is_ok());
    EXPECT_THAT(data->read(), Each(0x4401));
  });
}

TEST_F(NcclHierarchical, other_collectives_and_sets_of_one_level_use_a_communicator_of_all_members) {
  const Job job(kRanks, "shm,tcp", "aabb");
  InitOptions options;
  options.process_sets = {{0, 1}, {0, 2}};
  testing::internal::CaptureStderr();
  job.run(
      [](Engine& engine, Rank rank) {
        OnDevice mine(rank);
        const auto sum_in = [&](int32_t set, float expected) {
          const auto data = mine.vector(std::vector<float>(100, 1.0F * (rank + 1)));
          Tensor tensor = mine.tensor(Collective::kAllreduce, "in" + std::to_string(set), *data);
          tensor.request.process_set = set;
          EXPECT_TRUE(reduce(engine, std::move(tensor)).is_ok());
          EXPECT_THAT(data->read(), Each(expected));
        };
        if (rank < 2) sum_in(1, 3.0F);
        if (rank % 2 == 0) sum_in(2, 4.0F);
        sum_in(0, 10.0F);
        const auto data = mine.vector(std::vector<float>(100, 1.0F * (rank + 1)));
        Tensor broadcast = mine.tensor(Collective::kBroadcast, "cast", *data);
        broadcast.request.root = 2;
        EXPECT_TRUE(reduce(engine, std::move(broadcast)).is_ok());
        EXPECT_THAT(data->read(), Each(3.0F));
        EXPECT_TRUE(run_one(engine, make_tensor(Collective::kBarrier, "end", {}, nullptr)).is_ok());
      },
      hierarchical(), options);
  EXPECT_EQ(control().starts, 2 + 2 + 4 + 4) << "the sets, the hosts of the world, the world";
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::Not(HasSubstr("on one level")));
}

TEST_F(NcclHierarchical, hosts_of_different_sizes_are_reduced_on_one_level_with_one_sentence) {
  testing::internal::CaptureStderr();
  run("aab", [](Engine& engine, Rank rank, OnDevice& mine) {
    for (int i = 0; i < 2; ++i) {
      const auto data = mine.vector(std::vector<float>(100, 1.0F * (rank + 1)));
      ASSERT_TRUE(reduce(engine, mine.tensor(Collective::kAllreduce, "grad", *data)).is_ok());
      EXPECT_THAT(data->read(), Each(6.0F));
    }
  });
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("NCCL reduces the world (ranks 0, 1, 2) on one level: a hierarchical allreduce "
                              "needs equally many ranks on every host, but the hosts have 2, 1."));
  EXPECT_EQ(said.find("on one level"), said.rfind("on one level"));
  EXPECT_EQ(control().starts, 3);
}

TEST_F(NcclHierarchical, a_job_without_nccl_says_that_the_setting_has_no_effect) {
  testing::internal::CaptureStderr();
  run(
      "aab",
      [](Engine& engine, Rank, OnDevice& mine) {
        const auto data = mine.vector(std::vector<float>(100, 1.0F));
        ASSERT_TRUE(reduce(engine, mine.tensor(Collective::kAllreduce, "grad", *data)).is_ok());
        EXPECT_THAT(data->read(), Each(3.0F));
      },
      hierarchical({{"RUEDA_GPU_OPERATIONS", "staged"}}));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("RUEDA_HIERARCHICAL_ALLREDUCE has no effect"));
}

TEST_F(NcclHierarchical, a_rank_that_dies_is_named_to_all_others_on_both_levels) {
  for (const Rank victim : {3, 1}) {
    const Job job(kRanks, "shm,tcp", "aabb");
    std::atomic<int> ready{0};
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        Result<Session> started = job.start(rank, hierarchical());
        ASSERT_TRUE(started.is_ok()) << started.status().why;
        OnDevice mine(rank);
        // The victim has no engine: its connections end with its session, as those of a process that dies.
        auto session = std::make_unique<Session>(std::move(started).value());
        if (rank == victim) {
          ++ready;
          while (ready < kRanks) std::this_thread::yield();
          session.reset();
          return;
        }
        const std::shared_ptr<Engine> engine = Engine::start(std::move(*session)).value();
        ++ready;
        const auto data = mine.vector(std::vector<float>(100, 1.0F));
        // The loss may be known before the call.
        const Status status = run_one(*engine, mine.tensor(Collective::kAllreduce, "grad", *data));
        EXPECT_EQ(status.code, Code::kPeerLost);
        EXPECT_THAT(status.why,
                    AllOf(HasSubstr("rank " + std::to_string(victim) + " (host"), HasSubstr("was lost")));
        EXPECT_EQ(engine->lost_rank(), victim);
        mine.user().synchronize();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

// Rank 3 vanishes when its host has reduced: its peer on the other host waits in the network, and its
// neighbour in NCCL.
TEST_F(NcclHierarchical, a_rank_that_nccl_loses_ends_the_epoch_for_ranks_that_wait_between_hosts) {
  run("aabb", [](Engine& engine, Rank rank, OnDevice& mine) {
    const auto sum = [&](const char* name) {
      const auto data = mine.vector(std::vector<float>(100, 1.0F));
      std::vector<Tensor> tensors;
      tensors.push_back(mine.tensor(Collective::kAllreduce, name, *data));
      const Result<int64_t> handle = engine.submissions().submit(std::move(tensors));
      const Status status = handle.is_ok() ? engine.wait(handle.value(), soon()) : handle.status();
      mine.user().synchronize();
      return status;
    };
    ASSERT_TRUE(sum("first").is_ok());
    EXPECT_TRUE(run_one(engine, make_tensor(Collective::kBarrier, "barrier", {}, nullptr)).is_ok());
    if (rank == 0) {
      control().failing_member = 1;  // of each host's communicator
      control().fail_group = nccl::kInternalError;
    }
    EXPECT_TRUE(run_one(engine, make_tensor(Collective::kBarrier, "planted", {}, nullptr)).is_ok());
    EXPECT_FALSE(sum("second").is_ok() && sum("third").is_ok());
    for (const Deadline deadline = soon(); engine.health().is_ok() && !deadline.is_past();)
      std::this_thread::yield();
    EXPECT_THAT(engine.health().why, HasSubstr("failed: internal error"));
  });
  EXPECT_GE(control().aborts, 1);
}

}  // namespace
}  // namespace rueda::runtime::nccl_hierarchical_test
