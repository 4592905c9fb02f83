// Whole engines over the tests' libcuda: calls in device memory are launched and end later, in the order of
// streams; what is wrong on one rank is one sentence on all of them; and nothing hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "engine_job.h"
#include "rank_devices.h"
#include "rueda/runtime/gpu.h"

namespace rueda::runtime::on_cuda_test {
namespace {

using cuda_test::CudaTest;
using cuda_test::DeviceVector;
using cuda_test::UserStream;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr Rank kRanks = 2;
constexpr size_t kCount = 1000;
const Env kCuda = {{"RUEDA_CUDA_LIBRARY", RUEDA_FAKE_CUDA}};

using Cuda = CudaTest;

Deadline soon() { return Deadline::after(20 * kSecond); }

std::shared_ptr<const cuda::Device> device_of(Rank rank) { return cuda_test::device(rank); }

DeviceVector<float> filled(Rank rank, float value, size_t count = kCount) {
  return {device_of(rank), std::vector<float>(count, value)};
}

Tensor on_device(Rank rank, const std::string& name, const DeviceVector<float>& data, void* ready = nullptr,
                 Collective what = Collective::kAllreduce) {
  Tensor tensor = make_tensor(what, name, {static_cast<int64_t>(data.size())}, data.data());
  tensor.memory = {.kind = MemoryKind::kDevice, .device = rank, .ready = ready};
  tensor.request.memory = MemoryKind::kDevice;
  tensor.request.device = rank;
  return tensor;
}

// Something that holds up a stream until it is let go.
class Gate {
 public:
  ~Gate() { open(); }
  void hold(UserStream& stream) {
    stream.enqueue([is_open = is_open_] { is_open->wait(false); });
  }
  void open() {
    *is_open_ = true;
    is_open_->notify_all();
  }

 private:
  std::shared_ptr<std::atomic<bool>> is_open_ = std::make_shared<std::atomic<bool>>(false);
};

TEST_F(Cuda, a_stream_that_waits_sees_the_sums_and_the_host_goes_on_meanwhile) {
  const Job job(kRanks, "shm,tcp");
  job.run(
      [](Engine& engine, Rank rank) {
        UserStream user(device_of(rank));
        for (int step = 0; step < 10; ++step) {
          const DeviceVector<float> data = filled(rank, -1);
          std::vector<float> seen;
          Gate gate;
          gate.hold(user);
          user.enqueue([&] { std::fill_n(data.data(), kCount, static_cast<float>(rank + 1)); });
          const int64_t handle = must_submit(engine, on_device(rank, "grad", data, user.record()));
          EXPECT_EQ(engine.operations().poll(handle), 0) << "its tensor has no value yet";
          gate.open();
          ASSERT_TRUE(engine.wait_on_stream(handle, user.handle(), soon()).is_ok());
          user.enqueue([&] { seen = data.read(); });
          user.synchronize();
          EXPECT_THAT(seen, Each(3.0F)) << "step " << step;
          EXPECT_EQ(engine.operations().poll(handle), 1);
          engine.operations().release(handle);
        }
      },
      kCuda);
}

TEST_F(Cuda, a_stream_waits_for_the_copies_back_to_the_device) {
  const Job job(1, "shm,tcp");
  job.run(
      [](Engine& engine, Rank rank) {
        // One section after the other goes through the buffers, and each copy back comes late.
        const DeviceVector<float> data = filled(rank, 1, 200'000);
        UserStream user(device_of(rank));
        std::vector<float> seen;
        Tensor tensor = on_device(rank, "grad", data);
        tensor.request.prescale = 5.0;
        const int64_t handle = must_submit(engine, std::move(tensor));
        ASSERT_TRUE(engine.wait_on_stream(handle, user.handle(), soon()).is_ok());
        user.enqueue([&] { seen = data.read(); });
        user.synchronize();
        EXPECT_THAT(seen, Each(5.0F));
      },
      {{"RUEDA_CUDA_LIBRARY", RUEDA_FAKE_CUDA}, {"RUEDA_STAGING_BYTES", "4096"}});
}

TEST_F(Cuda, an_output_that_the_engine_allocates_is_on_the_device_of_the_input_and_freed_with_the_handle) {
  const size_t before = cuda_test::device_bytes();
  const Job job(kRanks, "shm,tcp");
  job.run(
      [](Engine& engine, Rank rank) {
        const DeviceVector<float> mine = filled(rank, static_cast<float>(rank), 3);
        const int64_t handle =
            must_submit(engine, on_device(rank, "rows", mine, nullptr, Collective::kAllgather));
        ASSERT_TRUE(wait(engine, handle).is_ok());
        EXPECT_TRUE(
            device_of(rank)->check_memory(engine.operations().find(handle)->tensors[0].output).is_ok());
        EXPECT_THAT(result_of(engine, handle), ElementsAre(0, 0, 0, 1, 1, 1));
        engine.operations().release(handle);
      },
      kCuda);
  EXPECT_EQ(cuda_test::device_bytes(), before);
}

TEST_F(Cuda, a_rank_that_has_joined_needs_no_device) {
  const Job job(kRanks, "shm,tcp");
  job.run(
      [](Engine& engine, Rank rank) {
        if (rank == 0) {
          const DeviceVector<float> data = filled(0, 7);
          ASSERT_TRUE(run_one(engine, on_device(0, "grad", data)).is_ok());
          EXPECT_THAT(data.read(), Each(7.0F));
        }
        ASSERT_TRUE(run_one(engine, make_tensor(Collective::kJoin, "join", {}, nullptr)).is_ok());
      },
      kCuda);
}

TEST_F(Cuda, a_full_device_is_no_obstacle_to_fused_tensors) {
  const Job job(kRanks, "shm,tcp");
  job.run(
      [](Engine& engine, Rank rank) {
        std::vector<DeviceVector<float>> data;
        std::vector<Tensor> tensors;
        for (int i = 0; i < 50; ++i) {
          data.push_back(filled(rank, static_cast<float>(i), 10));
          tensors.push_back(on_device(rank, "grad" + std::to_string(i), data.back()));
          tensors.back().request.group_name = "grads";
          tensors.back().request.group_index = i;
          tensors.back().request.group_size = 50;
        }
        cuda_test::set_free_memory(rank, 0);
        const int64_t handle = engine.submissions().submit(std::move(tensors)).value();
        ASSERT_TRUE(wait(engine, handle).is_ok());
        for (int i = 0; i < 50; ++i) EXPECT_THAT(data[static_cast<size_t>(i)].read(), Each(2.0F * i));
      },
      kCuda);
}

// What is wrong on rank 1 alone ends the epoch, and every rank says what it was.
void expect_on_all_ranks(const std::function<Tensor(const DeviceVector<float>&)>& of_rank_1,
                         const testing::Matcher<std::string>& sentence) {
  const Job job(kRanks, "shm,tcp");
  job.run(
      [&](Engine& engine, Rank rank) {
        const DeviceVector<float> data = filled(rank, 1);
        Tensor tensor = rank == 1 ? of_rank_1(data) : on_device(rank, "grad", data);
        const Status status = run_one(engine, std::move(tensor));
        EXPECT_FALSE(status.is_ok()) << "rank " << rank;
        EXPECT_THAT(status.why, sentence) << "rank " << rank;
      },
      kCuda);
}

TEST_F(Cuda, a_tensor_on_another_device_than_was_given_is_named) {
  expect_on_all_ranks([](const DeviceVector<float>& data) { return on_device(0, "grad", data); },
                      AllOf(HasSubstr("Tensor grad"), HasSubstr("on CUDA device 1, but device 0 was given")));
}

TEST_F(Cuda, a_tensor_in_host_memory_that_claims_a_device_is_named) {
  std::vector<float> host(kCount, 1);
  expect_on_all_ranks(
      [&](const DeviceVector<float>& data) {
        Tensor tensor = on_device(1, "grad", data);
        tensor.input = tensor.output = host.data();
        return tensor;
      },
      AllOf(HasSubstr("Tensor grad"), HasSubstr("not memory of a CUDA device")));
}

TEST_F(Cuda, a_device_that_is_not_there_is_named) {
  expect_on_all_ranks([](const DeviceVector<float>& data) { return on_device(5, "grad", data); },
                      AllOf(HasSubstr("no CUDA device 5"), HasSubstr("finds 4 devices")));
}

TEST_F(Cuda, a_stream_that_is_being_captured_is_refused) {
  UserStream captured(device_of(1));
  const cuda_test::Capturing capturing(captured.handle());
  void* const ready = captured.record();
  expect_on_all_ranks([&](const DeviceVector<float>& data) { return on_device(1, "grad", data, ready); },
                      AllOf(HasSubstr("Tensor grad"), HasSubstr("captured into a CUDA graph")));
  const Job job(1, "shm,tcp");
  job.run(
      [&](Engine& engine, Rank) {
        const DeviceVector<float> data = filled(0, 1);
        const int64_t handle = must_submit(engine, on_device(0, "grad", data));
        EXPECT_THAT(engine.wait_on_stream(handle, captured.handle(), soon()).why,
                    HasSubstr("captured into a CUDA graph"));
        EXPECT_TRUE(engine.wait(handle, soon()).is_ok());
      },
      kCuda);
}

TEST_F(Cuda, a_graph_that_the_program_captures_meanwhile_is_not_lost) {
  UserStream captured(device_of(3));
  cuda_test::Capturing capturing(captured.handle());
  const Job job(kRanks, "shm,tcp");
  job.run(
      [](Engine& engine, Rank rank) {
        UserStream user(device_of(rank));
        for (int step = 0; step < 3; ++step) {
          const DeviceVector<float> data = filled(rank, static_cast<float>(rank + 1));
          const int64_t handle = must_submit(engine, on_device(rank, "grad", data, user.record()));
          ASSERT_TRUE(engine.wait(handle, soon()).is_ok());
          EXPECT_THAT(data.read(), Each(3.0F));
          engine.operations().release(handle);
        }
      },
      kCuda);
  EXPECT_TRUE(capturing.end());
}

TEST_F(Cuda, a_copy_that_cannot_be_enqueued_ends_the_epoch_on_all_ranks) {
  expect_on_all_ranks(
      [](const DeviceVector<float>& data) {
        cuda_test::plant("cuMemcpyAsync", 1, cuda::CUDA_ERROR_LAUNCH_FAILED);
        return on_device(1, "grad", data);
      },
      HasSubstr("copy 4000 bytes: CUDA_ERROR_LAUNCH_FAILED"));
}

TEST_F(Cuda, memory_that_cannot_be_pinned_ends_the_epoch_on_all_ranks) {
  expect_on_all_ranks(
      [](const DeviceVector<float>& data) {
        cuda_test::plant("cuMemHostAlloc", 1, cuda::CUDA_ERROR_OUT_OF_MEMORY);
        return on_device(1, "grad", data);
      },
      HasSubstr("bytes of host memory: CUDA_ERROR_OUT_OF_MEMORY"));
}

TEST_F(Cuda, a_device_without_memory_for_an_output_ends_the_epoch_on_all_ranks) {
  const Job job(kRanks, "shm,tcp");
  job.run(
      [](Engine& engine, Rank rank) {
        const DeviceVector<float> mine = filled(rank, 1);
        if (rank == 1) cuda_test::set_free_memory(1, 100);
        const Status status = run_one(engine, on_device(rank, "rows", mine, nullptr, Collective::kAllgather));
        EXPECT_THAT(status.why,
                    AllOf(HasSubstr("Tensor rows"), HasSubstr("allocate 8000 bytes on device 1")));
      },
      kCuda);
}

TEST_F(Cuda, a_device_that_fails_before_its_tensors_have_come_ends_the_epoch_on_all_ranks) {
  expect_on_all_ranks(
      [](const DeviceVector<float>& data) {
        cuda_test::fail_device(1, cuda::CUDA_ERROR_ILLEGAL_ADDRESS);
        return on_device(1, "grad", data);
      },
      HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
}

TEST_F(Cuda, a_device_that_fails_after_the_launch_ends_the_epoch_though_nobody_waits_for_it) {
  const Job job(kRanks, "shm,tcp");
  job.run(
      [](Engine& engine, Rank rank) {
        const DeviceVector<float> data = filled(rank, 1);
        UserStream user(device_of(rank));
        for (int step = 0; step < 3; ++step) {
          const int64_t handle = must_submit(engine, on_device(rank, "grad", data));
          ASSERT_TRUE(engine.wait_on_stream(handle, user.handle(), soon()).is_ok());
        }
        user.synchronize();
        std::vector<float> host(1, 1.0F);
        ASSERT_TRUE(run_one(engine, make_tensor(Collective::kAllreduce, "host", {1}, host.data())).is_ok());
        // The copy back of the last call is held up: the device fails with it.
        if (rank == 1) cuda_test::fail_device(1, cuda::CUDA_ERROR_ILLEGAL_ADDRESS);
        (void)engine.submissions().submit([&] {
          std::vector<Tensor> one;
          one.push_back(on_device(rank, "last", data));
          return one;
        }());
        const Deadline deadline = soon();
        while (engine.health().is_ok() && !deadline.is_past()) std::this_thread::yield();
        EXPECT_THAT(engine.health().why, HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS")) << "rank " << rank;
      },
      kCuda);
}

TEST_F(Cuda, the_end_of_an_epoch_waits_for_no_event_of_a_tensor) {
  Gate gate;
  UserStream blocked(device_of(0));
  gate.hold(blocked);
  void* const never = blocked.record();
  const Job job(kRanks, "shm,tcp");
  job.run(
      [&](Engine& engine, Rank rank) {
        const DeviceVector<float> data = filled(rank, 1), other = filled(rank, 1);
        const int64_t handle =
            must_submit(engine, on_device(rank, "grad", data, rank == 0 ? never : nullptr));
        if (rank == 1) must_submit(engine, on_device(0, "wrong", other));
        if (rank == 0) must_submit(engine, on_device(0, "wrong", other));
        EXPECT_THAT(engine.wait(handle, soon()).why, HasSubstr("Tensor wrong"));
        EXPECT_THAT(data.read(), Each(1.0F)) << "nothing touches it afterwards";
        gate.open();  // CUDA frees memory only when no stream of the device has work
      },
      kCuda);
}

TEST_F(Cuda, a_lost_rank_ends_what_waits_for_it) {
  const Job job(kRanks, "shm,tcp");
  std::atomic<bool> is_over{false};
  std::thread lost([&] {
    Result<Session> session = job.start(1, kCuda);
    ASSERT_TRUE(session.is_ok()) << session.status().why;
    session.value().links.reset();  // as if the process had died
    is_over.wait(false);
  });
  Result<Session> session = job.start(0, kCuda);
  ASSERT_TRUE(session.is_ok()) << session.status().why;
  const std::shared_ptr<Engine> engine = Engine::start(std::move(session).value()).value();
  const DeviceVector<float> data = filled(0, 1);
  const Status status = run_one(*engine, on_device(0, "grad", data));
  EXPECT_EQ(status.code, Code::kPeerLost);
  EXPECT_THAT(data.read(), Each(1.0F));
  is_over = true;
  is_over.notify_all();
  lost.join();
}

TEST_F(Cuda, tensors_of_a_job_in_which_one_rank_has_no_driver_are_refused_by_all_with_its_name) {
  const Job job(kRanks, "shm,tcp");
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Result<Session> session = job.start(rank, rank == 0 ? kCuda : Env{});
      ASSERT_TRUE(session.is_ok()) << session.status().why;
      if (rank == 1 && session.value().devices != nullptr) return;  // this machine has a driver
      const std::shared_ptr<Engine> engine = Engine::start(std::move(session).value()).value();
      const DeviceVector<float> data = filled(rank, 1);
      const Status status = run_one(*engine, on_device(rank, "grad", data));
      EXPECT_EQ(status.code, Code::kUnsupported);
      EXPECT_THAT(status.why, AllOf(HasSubstr("memory of tensor grad (rank 1 (host a"),
                                    HasSubstr("cannot use CUDA: it has no CUDA driver"),
                                    HasSubstr("copy the tensor to host memory first")));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Cuda, a_library_that_is_named_and_cannot_be_loaded_is_refused_at_init) {
  const Job job(1, "shm,tcp");
  const Result<Session> session = job.start(0, {{"RUEDA_CUDA_LIBRARY", "/nonexistent/libcuda.so.1"}});
  ASSERT_FALSE(session.is_ok());
  EXPECT_THAT(session.status().why, HasSubstr("RUEDA_CUDA_LIBRARY=/nonexistent/libcuda.so.1 is refused"));
}

TEST(WhyNoDevices, names_the_first_rank_that_cannot_use_cuda_and_nobody_where_none_or_all_can) {
  PeerInfo with, without, old;
  with.cuda_version = 12040;
  with.host = without.host = old.host = "h";
  old.cuda_fault = "the CUDA driver is older than CUDA 11.3.";
  EXPECT_EQ(why_no_devices({with, with}), "");
  EXPECT_EQ(why_no_devices({without, without}), "");
  EXPECT_THAT(why_no_devices({with, without, old}),
              AllOf(HasSubstr("rank 1 (host h"), HasSubstr("it has no CUDA driver")));
  EXPECT_THAT(why_no_devices({with, old, without}),
              AllOf(HasSubstr("rank 1"), HasSubstr("older than CUDA 11.3")));
  EXPECT_THAT(why_no_devices({old}), HasSubstr("older than CUDA 11.3"));
}

}  // namespace
}  // namespace rueda::runtime::on_cuda_test
