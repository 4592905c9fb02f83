// Tensors whose caller names the stream in whose order they become ready, and records no event.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "nccl_job.h"
#include "rueda/runtime/ready_streams.h"

namespace rueda::runtime::ready_streams_test {
namespace {

using nccl_job::OnDevice;
using nccl_job::soon;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr size_t kCount = 100;

std::vector<float> filled(float value) { return std::vector<float>(kCount, value); }

// As OnDevice makes it, without an event.
template <class T>
Tensor on_stream(OnDevice& mine, const std::string& name, const T& data) {
  Tensor tensor = mine.tensor(Collective::kAllreduce, name, data);
  tensor.memory.ready = nullptr;
  tensor.ready_stream = {.is_given = true, .handle = mine.user().handle()};
  return tensor;
}

class ReadyStream : public nccl_job::NcclJob {};

TEST_F(ReadyStream, is_followed_and_waited_for_by_many_tensors_of_many_steps) {
  constexpr int kTensors = 40, kSteps = 12;
  for (const char* way : {"nccl", "staged"}) {
    run(2,
        [&](Engine& engine, Rank rank, OnDevice& mine) {
          std::vector<std::shared_ptr<cuda_test::DeviceVector<float>>> data;
          for (int i = 0; i < kTensors; ++i) data.push_back(mine.vector(filled(-1)));
          for (int step = 0; step < kSteps; ++step) {
            std::vector<int64_t> handles;
            for (int i = 0; i < kTensors; ++i) {
              const auto value = static_cast<float>((rank + 1) * (i + step));
              mine.user().enqueue([&, i, value] { data[static_cast<size_t>(i)]->write(filled(value)); });
              handles.push_back(must_submit(
                  engine, on_stream(mine, "grad" + std::to_string(i), *data[static_cast<size_t>(i)])));
            }
            size_t ended = 0;
            const Status waited = engine.wait_all_on_stream(handles, mine.user().handle(), soon(), ended);
            ASSERT_TRUE(waited.is_ok()) << waited.why;
            ASSERT_EQ(ended, handles.size());
            std::vector<std::vector<float>> seen(kTensors);
            mine.user().enqueue([&] {
              for (size_t i = 0; i < kTensors; ++i) seen[i] = data[i]->read();
            });
            mine.user().synchronize();
            for (int i = 0; i < kTensors; ++i)
              ASSERT_THAT(seen[static_cast<size_t>(i)], Each(static_cast<float>(3 * (i + step)))) << way;
            engine.operations().release(handles);
          }
        },
        {{"RUEDA_GPU_OPERATIONS", way}});
  }
}

TEST_F(ReadyStream, that_is_captured_or_of_another_device_is_refused_before_anything_starts) {
  run(2, [](Engine& engine, Rank rank, OnDevice& mine) {
    const auto data = mine.vector(filled(1));
    if (rank == 0) {
      OnDevice elsewhere(3), captured(0);
      const auto submit_on = [&](void* stream) {
        std::vector<Tensor> tensors;
        tensors.push_back(on_stream(mine, "grad", *data));
        tensors.back().ready_stream.handle = stream;
        return engine.submissions().submit(std::move(tensors));
      };
      const Result<int64_t> refused = submit_on(elsewhere.user().handle());
      EXPECT_EQ(refused.status().code, Code::kInvalidArgument);
      EXPECT_THAT(refused.status().why, HasSubstr("not one of device 0"));
      cuda_test::Capturing capturing(captured.user().handle());
      EXPECT_THAT(submit_on(captured.user().handle()).status().why, HasSubstr("captured into a CUDA graph"));
      EXPECT_TRUE(capturing.end());
    }
    ASSERT_TRUE(wait(engine, must_submit(engine, on_stream(mine, "grad", *data))).is_ok());
    EXPECT_THAT(data->read(), Each(2.0F));
  });
}

TEST_F(ReadyStream, of_a_job_of_one_rank_orders_what_ends_at_once) {
  run(1, [](Engine& engine, Rank, OnDevice& mine) {
    OnDevice other(0);
    const auto data = mine.vector(filled(0));
    for (int step = 1; step < 6; ++step) {
      mine.user().enqueue([&] { data->write(filled(static_cast<float>(step))); });
      const int64_t handle = must_submit(engine, on_stream(mine, "grad", *data));
      EXPECT_TRUE(engine.operations().find(handle)->is_done.load());
      const size_t records = cuda_test::calls("cuEventRecord");
      ASSERT_TRUE(engine.wait_on_stream(handle, mine.user().handle(), soon()).is_ok());
      EXPECT_EQ(cuda_test::calls("cuEventRecord"), records) << "its own stream has nothing to wait for";
      if (step % 2 == 0) {
        ASSERT_TRUE(engine.wait(handle, soon()).is_ok());
        EXPECT_THAT(data->read(), Each(static_cast<float>(step)));
      } else {
        ASSERT_TRUE(engine.wait_on_stream(handle, other.user().handle(), soon()).is_ok());
        std::vector<float> seen;
        other.user().enqueue([&] { seen = data->read(); });
        other.user().synchronize();
        EXPECT_THAT(seen, Each(static_cast<float>(step)));
      }
      engine.operations().release(handle);
    }
    EXPECT_EQ(engine.counters().batches, 5);
  });
}

TEST_F(ReadyStream, of_a_job_of_one_rank_does_not_overtake_what_still_writes_the_memory) {
  run(1, [](Engine& engine, Rank, OnDevice& mine) {
    for (int step = 0; step < 10; ++step) {
      const auto data = mine.vector(filled(1));
      Tensor scaled = on_stream(mine, "scaled", *data);
      scaled.request.prescale = 3.0;  // the engine does this
      const int64_t first = must_submit(engine, std::move(scaled));
      while (!engine.operations().find(first)->is_done.load()) std::this_thread::yield();
      const int64_t second = must_submit(engine, on_stream(mine, "plain", *data));
      ASSERT_TRUE(engine.wait_on_stream(second, mine.user().handle(), soon()).is_ok());
      std::vector<float> seen;
      mine.user().enqueue([&] { seen = data->read(); });
      mine.user().synchronize();
      EXPECT_THAT(seen, Each(3.0F)) << step;
      for (const int64_t handle : {first, second}) engine.operations().release(handle);
    }
  });
}

TEST_F(ReadyStream, marks_share_an_event_until_the_next_begin) {
  cuda::Devices devices(cuda_test::driver());
  ReadyStreams streams(&devices);
  OnDevice mine(0), captured(0);
  const auto data = mine.vector(filled(1));
  Tensor first = on_stream(mine, "a", *data), second = on_stream(mine, "b", *data);
  Tensor third = on_stream(mine, "c", *data),
         on_host = make_tensor(Collective::kAllreduce, "d", {1}, nullptr);
  streams.begin();
  for (Tensor* tensor : {&first, &second, &on_host}) {
    ASSERT_TRUE(streams.accept(*tensor).is_ok());
    streams.mark(*tensor);
  }
  EXPECT_NE(first.memory.ready, nullptr);
  EXPECT_EQ(first.memory.ready, second.memory.ready);
  EXPECT_TRUE(first.ready_stream.outcome.is_ok());
  EXPECT_EQ(on_host.memory.ready, nullptr);
  streams.begin();
  void* const marked = first.memory.ready;
  streams.mark(first);
  EXPECT_EQ(first.memory.ready, marked) << "a tensor is marked once";
  streams.mark(third);
  EXPECT_NE(third.memory.ready, marked);
  first.forget_ready();
  EXPECT_EQ(first.memory.ready, nullptr);
  // The program has begun to capture since it submitted.
  Tensor late = on_stream(mine, "e", *data);
  late.ready_stream.handle = captured.user().handle();
  ASSERT_TRUE(streams.accept(late).is_ok());
  cuda_test::Capturing capturing(captured.user().handle());
  streams.begin();
  streams.mark(late);
  EXPECT_FALSE(late.ready_stream.is_marked) << "the capture may end before the tensor is due";
  streams.mark(late, true);
  EXPECT_THAT(late.ready_stream.outcome.why, HasSubstr("captured into a CUDA graph"));
  EXPECT_TRUE(capturing.end());
}

TEST_F(ReadyStream, of_the_thread_is_marked_by_the_thread_that_submits) {
  cuda::Devices devices(cuda_test::driver());
  ReadyStreams streams(&devices);
  OnDevice mine(0);
  const auto data = mine.vector(filled(1));
  Tensor tensor = on_stream(mine, "a", *data);
  tensor.ready_stream.handle = reinterpret_cast<void*>(uintptr_t{2});  // CU_STREAM_PER_THREAD
  ASSERT_TRUE(streams.accept(tensor).is_ok());
  EXPECT_TRUE(tensor.ready_stream.is_marked);
  EXPECT_NE(tensor.memory.ready, nullptr);
  EXPECT_THAT(streams.accept(tensor, tensor.ready_stream.handle).why, HasSubstr("per-thread default stream"));
}

}  // namespace
}  // namespace rueda::runtime::ready_streams_test
