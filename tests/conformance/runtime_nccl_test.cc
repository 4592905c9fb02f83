// Whole engines with the NCCL backend: what it launches, in which order streams see it, what it shares with
// host tensors, and what happens when NCCL or a member fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "nccl_job.h"
#include "rueda/backend/nccl/probe.h"

namespace rueda::runtime::on_nccl_test {
namespace {

using nccl_job::OnDevice;
using nccl_job::soon;
using nccl_job::with_nccl;
using nccl_test::control;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr int64_t kCount = 1000;

std::vector<float> filled(Rank rank, size_t count = kCount) {
  return std::vector<float>(count, static_cast<float>(rank + 1));
}

class Nccl : public nccl_job::NcclJob {};

TEST_F(Nccl, a_stream_that_waits_sees_the_sums_and_reads_tensors_only_when_they_are_ready) {
  for (const char* hosts : {"aaa", "aab"}) {
    run(
        3,
        [](Engine& engine, Rank rank, OnDevice& mine) {
          for (int step = 0; step < 10; ++step) {
            const auto data = mine.vector(std::vector<float>(kCount, -1.0F));
            mine.user().enqueue([&] { data->write(filled(rank)); });  // later
            const int64_t handle = must_submit(engine, mine.tensor(Collective::kAllreduce, "grad", *data));
            ASSERT_TRUE(engine.wait_on_stream(handle, mine.user().handle(), soon()).is_ok());
            std::vector<float> seen;
            mine.user().enqueue([&] { seen = data->read(); });
            mine.user().synchronize();
            EXPECT_THAT(seen, Each(6.0F)) << "step " << step;
            engine.operations().release(handle);
          }
        },
        {}, hosts);
    EXPECT_EQ(control().starts, 3) << "one communicator for the world";
    EXPECT_GE(control().groups, 30);
    control().reset();
  }
}

TEST_F(Nccl, the_tensors_of_a_group_share_a_launch) {
  run(2, [](Engine& engine, Rank rank, OnDevice& mine) {
    std::vector<std::shared_ptr<cuda_test::DeviceVector<float>>> data;
    std::vector<Tensor> tensors;
    for (int i = 0; i < 9; ++i) {
      data.push_back(mine.vector(filled(rank, static_cast<size_t>(i * 37))));
      tensors.push_back(mine.tensor(Collective::kAllreduce, "grad" + std::to_string(i), *data.back()));
      tensors.back().request.op = ReduceOp::kAverage;
      tensors.back().request.prescale = 2.0;
      tensors.back().request.group_name = "grads";
      tensors.back().request.group_index = i;
      tensors.back().request.group_size = 9;
    }
    const int64_t handle = engine.submissions().submit(std::move(tensors)).value();
    ASSERT_TRUE(engine.wait(handle, soon()).is_ok());
    EXPECT_EQ(engine.operations().find(handle)->events.size(), 1U);
    for (const auto& tensor : data) EXPECT_THAT(tensor->read(), Each(3.0F));
  });
  EXPECT_EQ(control().operations, 2 * (static_cast<int>(nccl::Probe::kCalls) + 1))
      << "one allreduce on each rank";
}

// A small sum then costs no wake-up of the engine's own thread.
TEST_F(Nccl, the_thread_that_waits_launches_where_the_engines_own_thread_sleeps) {
  run(2, [](Engine& engine, Rank rank, OnDevice& mine) {
    const auto data = mine.vector(filled(rank));
    for (int step = 0; step < 100; ++step) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the engine's own thread goes to sleep
      std::vector<Tensor> tensors;
      tensors.push_back(mine.tensor(Collective::kAllreduce, "grad", *data));
      const bool on_stream = step % 2 == 1;
      const int64_t handle = engine.submissions().submit(std::move(tensors), !on_stream).value();
      if (on_stream)
        ASSERT_TRUE(engine.wait_on_stream(handle, mine.user().handle(), soon()).is_ok());
      else
        ASSERT_TRUE(engine.wait(handle, soon()).is_ok());
      engine.operations().release(handle);
    }
  });
  EXPECT_GT(control().groups_elsewhere, 0);
  RecordProperty("launched_by_waiting_threads", control().groups_elsewhere);
  RecordProperty("launched", control().groups);
}

TEST_F(Nccl, host_and_device_tensors_of_one_job_do_not_disturb_one_another) {
  run(2, [](Engine& engine, Rank rank, OnDevice& mine) {
    for (int step = 0; step < 30; ++step) {
      const auto device = mine.vector(filled(rank));
      std::vector<float> host = filled(rank);
      const int64_t first = must_submit(engine, mine.tensor(Collective::kAllreduce, "device", *device));
      const int64_t second =
          must_submit(engine, make_tensor(Collective::kAllreduce, "host", {kCount}, host.data()));
      ASSERT_TRUE(engine.wait(second, soon()).is_ok());
      ASSERT_TRUE(engine.wait(first, soon()).is_ok());
      EXPECT_THAT(host, Each(3.0F));
      EXPECT_THAT(device->read(), Each(3.0F));
      engine.operations().release(first);
      engine.operations().release(second);
    }
  });
}

// A collective on device memory whose result the engine allocates there.
Tensor made_there(OnDevice& mine, Collective what, const std::string& name,
                  const cuda_test::DeviceVector<float>& data) {
  Tensor tensor = mine.tensor(what, name, data);
  tensor.output = nullptr;
  return tensor;
}

TEST_F(Nccl, collectives_with_uneven_counts_give_each_rank_its_rows) {
  run(3, [](Engine& engine, Rank rank, OnDevice& mine) {
    // Rank r has r rows of value r; the last gather is even.
    for (const int even : {0, 2}) {
      const auto rows =
          mine.vector(std::vector<float>(even > 0 ? 2 : static_cast<size_t>(rank), 1.0F * rank));
      const int64_t gather = must_submit(engine, made_there(mine, Collective::kAllgather, "gather", *rows));
      ASSERT_TRUE(engine.wait(gather, soon()).is_ok());
      EXPECT_EQ(result_of(engine, gather),
                even > 0 ? (std::vector<float>{0, 0, 1, 1, 2, 2}) : (std::vector<float>{1, 2, 2}));
      engine.operations().release(gather);
    }
    const auto seven = mine.vector(std::vector<float>{1, 2, 3, 4, 5, 6, 7});
    const int64_t scatter =
        must_submit(engine, made_there(mine, Collective::kReducescatter, "scatter", *seven));
    ASSERT_TRUE(engine.wait(scatter, soon()).is_ok());
    const std::vector<std::vector<float>> parts = {{3, 6, 9}, {12, 15}, {18, 21}};
    EXPECT_EQ(result_of(engine, scatter), parts[static_cast<size_t>(rank)]);
    const auto six = mine.vector(std::vector<float>(6, 10.0F * rank));
    Tensor all = made_there(mine, Collective::kAlltoall, "all", *six);
    all.request.splits = {1, 2, 3};
    const int64_t exchange = must_submit(engine, std::move(all));
    ASSERT_TRUE(engine.wait(exchange, soon()).is_ok());
    std::vector<float> expected;
    for (int from = 0; from < 3; ++from)
      expected.insert(expected.end(), static_cast<size_t>(rank) + 1, 10.0F * from);
    EXPECT_EQ(result_of(engine, exchange), expected);
    const auto data = mine.vector(filled(rank));
    Tensor broadcast = mine.tensor(Collective::kBroadcast, "cast", *data);
    broadcast.request.root = 2;
    const int64_t cast = must_submit(engine, std::move(broadcast));
    ASSERT_TRUE(engine.wait(cast, soon()).is_ok());
    EXPECT_THAT(data->read(), Each(3.0F));
    for (const int64_t handle : {scatter, exchange, cast}) engine.operations().release(handle);
  });
}

TEST_F(Nccl, process_sets_have_communicators_of_their_own_made_when_first_used) {
  const Job job(3, "shm,tcp");
  InitOptions options;
  options.process_sets = {{0, 2}, {1, 2}};
  job.run(
      [](Engine& engine, Rank rank) {
        OnDevice mine(rank);
        EXPECT_EQ(control().starts, 0) << "none before a GPU is used";
        EXPECT_TRUE(run_one(engine, make_tensor(Collective::kBarrier, "begin", {}, nullptr)).is_ok());
        const auto sum_in = [&](int32_t set, float expected) {
          const auto data = mine.vector(filled(rank));
          Tensor tensor = mine.tensor(Collective::kAllreduce, "in" + std::to_string(set), *data);
          tensor.request.process_set = set;
          EXPECT_TRUE(engine.wait(must_submit(engine, std::move(tensor)), soon()).is_ok());
          EXPECT_THAT(data->read(), Each(expected));
        };
        if (rank != 1) sum_in(1, 4.0F);
        if (rank != 0) sum_in(2, 5.0F);
        sum_in(0, 6.0F);
        const int32_t added = engine.add_process_set({0, 1}).value();
        if (rank != 2) sum_in(added, 3.0F);
        EXPECT_TRUE(run_one(engine, make_tensor(Collective::kBarrier, "end", {}, nullptr)).is_ok());
      },
      with_nccl({{"RUEDA_DYNAMIC_PROCESS_SETS", "1"}}), options);
  EXPECT_EQ(control().starts, 2 + 2 + 3 + 2);
}

// bfloat16 has 8 bits of significand. Here each 1 is lost at its hop, wherever a ring begins and whichever
// way it goes: the sum is 516, where one rounding of 518 would give 520. The average of float16 is divided
// before it is summed, so it does not overflow, where a sum of 60000 four times would.
TEST_F(Nccl, sums_of_16_bit_floats_round_at_every_hop_and_averages_of_float16_do_not_overflow) {
  run(4, [](Engine& engine, Rank rank, OnDevice& mine) {
    const uint16_t addends[] = {0x4380, 0x3F80, 0x4382, 0x3F80};  // 256, 1, 260, 1
    const auto brain = mine.vector(std::vector<uint16_t>(1, addends[rank]));
    const int64_t sum =
        must_submit(engine, mine.tensor(Collective::kAllreduce, "brain", *brain, DType::kBfloat16));
    ASSERT_TRUE(engine.wait(sum, soon()).is_ok());
    EXPECT_EQ(brain->read()[0], 0x4401);
    const auto half = mine.vector(std::vector<uint16_t>(50, 0x7B53));  // 60000
    Tensor tensor = mine.tensor(Collective::kAllreduce, "half", *half, DType::kFloat16);
    tensor.request.op = ReduceOp::kAverage;
    ASSERT_TRUE(engine.wait(must_submit(engine, std::move(tensor)), soon()).is_ok());
    EXPECT_THAT(half->read(), Each(0x7B53));
  });
}

TEST_F(Nccl, a_rank_that_has_joined_contributes_identity_elements) {
  run(2, [](Engine& engine, Rank rank, OnDevice& mine) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kProduct}) {
      const auto data = mine.vector(std::vector<float>(70'000, -2.0F));
      const auto scaled = mine.vector(std::vector<float>(70'000, -2.0F));
      if (rank == 0) {
        Tensor tensor = mine.tensor(Collective::kAllreduce, "more", *data);
        tensor.request.op = op;
        ASSERT_TRUE(engine.wait(must_submit(engine, std::move(tensor)), soon()).is_ok());
        EXPECT_THAT(data->read(), Each(-2.0F));
        Tensor with_factor = mine.tensor(Collective::kAllreduce, "scaled", *scaled);
        with_factor.request.op = op;
        with_factor.request.prescale = -0.5;  // of what is given, not of what stands in for a rank
        ASSERT_TRUE(engine.wait(must_submit(engine, std::move(with_factor)), soon()).is_ok());
        EXPECT_THAT(scaled->read(), Each(1.0F));
      }
      ASSERT_TRUE(run_one(engine, make_tensor(Collective::kJoin, "join", {}, nullptr)).is_ok());
    }
  });
}

TEST_F(Nccl, the_tensors_of_a_group_may_lie_on_two_devices_of_a_rank) {
  run(2, [](Engine& engine, Rank rank, OnDevice& mine) {
    OnDevice other(rank + 2);
    std::vector<std::pair<OnDevice*, std::shared_ptr<cuda_test::DeviceVector<float>>>> data;
    for (int step = 0; step < 5; ++step) {
      for (OnDevice* const device : {&mine, &other, &mine, &other})
        data.emplace_back(device, device->vector(filled(rank)));
      std::vector<int64_t> handles;
      for (size_t i = 0; i < data.size(); ++i) {
        Tensor tensor =
            data[i].first->tensor(Collective::kAllreduce, "t" + std::to_string(i), *data[i].second);
        tensor.request.prescale = 0.5;
        handles.push_back(must_submit(engine, std::move(tensor)));
      }
      for (const int64_t handle : handles) ASSERT_TRUE(engine.wait(handle, soon()).is_ok());
      for (const auto& [device, vector] : data) EXPECT_THAT(vector->read(), Each(1.5F));
      data.clear();
    }
    other.user().synchronize();
  });
}

// Handle 0 is the default stream of whatever device is current, and the rank's NCCL runs on another one.
TEST_F(Nccl, the_default_stream_of_a_tensors_own_device_waits_too) {
  run(2, [](Engine& engine, Rank rank, OnDevice& mine) {
    const auto first = mine.vector(filled(rank));  // NCCL stays on this device
    ASSERT_TRUE(engine.wait(must_submit(engine, mine.tensor(Collective::kAllreduce, "first", *first)), soon())
                    .is_ok());
    OnDevice other(rank + 2);
    cuda::EventPool pool(other.device());
    for (int step = 0; step < 5; ++step) {
      const auto data = other.vector(filled(rank));
      const int64_t handle = must_submit(engine, other.tensor(Collective::kAllreduce, "t", *data));
      ASSERT_TRUE(engine.wait_on_stream(handle, nullptr, soon()).is_ok());
      const cuda::ScopedContext context(*other.device());
      const cuda::Driver& driver = other.device()->driver();
      const auto behind = pool.take().value();
      ASSERT_EQ(driver.cuEventRecord(behind->handle(), nullptr), cuda::CUDA_SUCCESS);
      const Deadline deadline = soon();
      while (!behind->outcome() && !deadline.is_past()) std::this_thread::yield();
      EXPECT_THAT(data->read(), Each(3.0F));
      ASSERT_TRUE(engine.wait(handle, soon()).is_ok());
    }
  });
}

// A rank has memory for 2 MiB of packed tensors, half of what is left, where a call has 4.
TEST_F(Nccl, a_rank_whose_gpu_is_full_makes_all_pack_less_at_once) {
  constexpr size_t kLarge = 160 << 10;  // elements; 7 of them are 4.4 MiB
  for (const size_t free_bytes : {size_t{0}, size_t{5} << 20}) {
    control().reset();
    run(2, [&](Engine& engine, Rank rank, OnDevice& mine) {
      std::vector<std::shared_ptr<cuda_test::DeviceVector<float>>> data;
      std::vector<Tensor> tensors;
      for (int i = 0; i < 7; ++i) {
        data.push_back(mine.vector(filled(rank, kLarge)));
        tensors.push_back(mine.tensor(Collective::kAllreduce, "grad" + std::to_string(i), *data.back()));
        tensors.back().request.op = ReduceOp::kAverage;
        tensors.back().request.prescale = 2.0;
        tensors.back().request.group_name = "grads";
        tensors.back().request.group_index = i;
        tensors.back().request.group_size = 7;
      }
      mine.user().synchronize();
      if (rank == 1) cuda_test::set_free_memory(1, free_bytes);
      const int64_t handle = engine.submissions().submit(std::move(tensors)).value();
      const Status ended = engine.wait(handle, soon());
      ASSERT_TRUE(ended.is_ok()) << ended.why;
      for (const auto& tensor : data) EXPECT_THAT(tensor->read(), Each(3.0F));
    });
    // Each tensor alone, or three in 1.9 MiB.
    EXPECT_EQ(control().operations, 2 * (free_bytes == 0 ? 7 : 3)) << free_bytes;
  }
}

// What is wrong on rank 1 alone ends the epoch, and every rank says what it was.
void expect_on_all_ranks(
    const std::function<Tensor(OnDevice&, const cuda_test::DeviceVector<float>&)>& of_rank_1,
    const testing::Matcher<std::string>& sentence) {
  const Job job(2, "shm,tcp");
  job.run(
      [&](Engine& engine, Rank rank) {
        OnDevice mine(rank);
        const auto data = mine.vector(filled(rank));
        Tensor tensor =
            rank == 1 ? of_rank_1(mine, *data) : mine.tensor(Collective::kAllreduce, "grad", *data);
        const Status status = run_one(engine, std::move(tensor));
        EXPECT_FALSE(status.is_ok()) << "rank " << rank;
        EXPECT_THAT(status.why, sentence) << "rank " << rank;
      },
      with_nccl());
}

TEST_F(Nccl, a_tensor_on_another_device_than_was_given_is_named) {
  expect_on_all_ranks(
      [](OnDevice& mine, const auto& data) {
        Tensor tensor = mine.tensor(Collective::kAllreduce, "grad", data);
        tensor.memory.device = tensor.request.device = 0;
        return tensor;
      },
      AllOf(HasSubstr("Tensor grad"), HasSubstr("on CUDA device 1, but device 0 was given")));
}

TEST_F(Nccl, a_tensor_in_host_memory_that_claims_a_device_is_named) {
  std::vector<float> host(kCount, 1);
  expect_on_all_ranks(
      [&](OnDevice& mine, const auto& data) {
        Tensor tensor = mine.tensor(Collective::kAllreduce, "grad", data);
        tensor.input = tensor.output = host.data();
        return tensor;
      },
      AllOf(HasSubstr("Tensor grad"), HasSubstr("not memory of a CUDA device")));
}

TEST_F(Nccl, a_stream_that_is_being_captured_is_refused) {
  OnDevice captured(1);
  const cuda_test::Capturing capturing(captured.user().handle());
  void* const ready = captured.user().record();
  expect_on_all_ranks(
      [&](OnDevice& mine, const auto& data) {
        Tensor tensor = mine.tensor(Collective::kAllreduce, "grad", data);
        tensor.memory.ready = ready;
        return tensor;
      },
      AllOf(HasSubstr("Tensor grad"), HasSubstr("captured into a CUDA graph")));
}

TEST_F(Nccl, a_graph_that_the_program_captures_meanwhile_is_not_lost) {
  OnDevice captured(3);
  cuda_test::Capturing capturing(captured.user().handle());
  run(2, [](Engine& engine, Rank rank, OnDevice& mine) {
    const auto data = mine.vector(filled(rank));
    ASSERT_TRUE(wait(engine, must_submit(engine, mine.tensor(Collective::kAllreduce, "a", *data))).is_ok());
    EXPECT_THAT(data->read(), Each(3.0F));
  });
  EXPECT_TRUE(capturing.end());
}

TEST_F(Nccl, is_not_used_where_settings_ask_for_another_way) {
  for (const Env& settings :
       {Env{{"RUEDA_GPU_OPERATIONS", "staged"}}, Env{{"RUEDA_DETERMINISM", "bitwise"}}}) {
    run(
        2,
        [](Engine& engine, Rank rank, OnDevice& mine) {
          const auto data = mine.vector(filled(rank));
          const int64_t handle = must_submit(engine, mine.tensor(Collective::kAllreduce, "grad", *data));
          ASSERT_TRUE(engine.wait(handle, soon()).is_ok());
          EXPECT_THAT(data->read(), Each(3.0F));
        },
        settings);
  }
  EXPECT_EQ(control().starts, 0);
}

}  // namespace
}  // namespace rueda::runtime::on_nccl_test
