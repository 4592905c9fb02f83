// Whole engines over the tests' libcuda, whose ranks map one another's device memory: sums and broadcasts
// have the bits of host memory, and where memory cannot be mapped the job goes on through host memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "engine_job.h"
#include "fixture.h"

namespace rueda::runtime::cuda_ipc_test {
namespace {

using cuda_test::CudaTest;
using cuda_test::DeviceVector;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

using CudaIpc = CudaTest;

constexpr uint64_t kSeed = 20'261'125;

Env settings(const std::string& use, int staging_bytes = 4096) {
  return {{"RUEDA_CUDA_LIBRARY", RUEDA_FAKE_CUDA},
          {"RUEDA_GPU_OPERATIONS", "staged"},
          {"RUEDA_CUDA_IPC", use},
          {"RUEDA_STAGING_BYTES", std::to_string(staging_bytes)}};
}

template <class T>
Tensor on_device(int32_t device, const std::string& name, const DeviceVector<T>& data, DType dtype,
                 Collective what = Collective::kAllreduce) {
  Tensor tensor = make_tensor(what, name, {static_cast<int64_t>(data.size())}, data.data());
  tensor.request.dtype = dtype;
  tensor.request.memory = MemoryKind::kDevice;
  tensor.request.device = device;
  tensor.memory = {.kind = MemoryKind::kDevice, .device = device};
  return tensor;
}

template <class T>
std::vector<T> random_values(Rank rank, size_t count) {
  std::mt19937_64 random(kSeed + static_cast<uint64_t>(rank));
  std::vector<T> values(count);
  for (T& value : values) {
    const double unit = static_cast<double>(random() % 20'001) / 1e4 - 1;
    if constexpr (std::is_same_v<T, uint16_t>)  // a bfloat16 of that size
      value = static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(unit)) >> 16);
    else
      value = static_cast<T>(unit * 1000);
  }
  return values;
}

// The first test here, because windows of the sizes that it tries must not be parked.
TEST_F(CudaIpc, a_device_with_little_memory_gives_smaller_slots_and_a_full_one_none) {
  const size_t count = 1 << 20;  // 4 MiB: two sections
  const auto run = [&](size_t free_bytes) {
    return [=](Engine& engine, Rank rank) {
      const DeviceVector<float> data(cuda_test::device(rank), std::vector<float>(count, 2));
      cuda_test::set_free_memory(rank, rank == 1 ? free_bytes : size_t{1} << 30);
      const Status status = run_one(engine, on_device(rank, "grad", data, DType::kFloat32));
      ASSERT_TRUE(status.is_ok()) << status.why;
      EXPECT_THAT(data.read(), Each(4.0F));
    };
  };
  const size_t before = cuda_test::calls("cuIpcOpenMemHandle");
  Job(2, "shm,tcp").run(run(8 << 20), settings("auto", 5 << 20));
  EXPECT_EQ(cuda_test::calls("cuIpcOpenMemHandle") - before, 2U) << "smaller slots are used";
  cuda_test::heal();
  testing::internal::CaptureStderr();
  Job(2, "shm,tcp").run(run(4096), settings("auto", 6 << 20));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));
  EXPECT_EQ(cuda_test::calls("cuIpcOpenMemHandle") - before, 2U) << "no window was mapped";
}

// What each rank has after an average with a prescale, by this way. [ranks]
template <class T>
std::vector<std::vector<T>> averages(Rank ranks, DType dtype, size_t count, const std::string& use) {
  std::vector<std::vector<T>> results(static_cast<size_t>(ranks));
  const Job job(ranks, "shm,tcp");
  job.run(
      [&](Engine& engine, Rank rank) {
        const int32_t device = rank % 4;
        for (int step = 0; step < 2; ++step) {
          const DeviceVector<T> data(cuda_test::device(device), random_values<T>(rank, count));
          Tensor tensor = on_device(device, "grad", data, dtype);
          tensor.request.op = ReduceOp::kAverage;
          tensor.request.prescale = dtype == DType::kInt64 ? 1.0 : 0.7;
          const Status status = run_one(engine, std::move(tensor));
          ASSERT_TRUE(status.is_ok()) << status.why;
          results[static_cast<size_t>(rank)] = data.read();
        }
      },
      settings(use));
  return results;
}

template <class T>
void expect_bits_of_host_memory(Rank ranks, DType dtype, size_t count) {
  const size_t opened = cuda_test::calls("cuIpcOpenMemHandle");
  const auto staged = averages<T>(ranks, dtype, count, "off");
  EXPECT_EQ(cuda_test::calls("cuIpcOpenMemHandle"), opened);
  const auto mapped = averages<T>(ranks, dtype, count, "on");
  EXPECT_EQ(cuda_test::calls("cuIpcOpenMemHandle") - opened, static_cast<size_t>(ranks * (ranks - 1)));
  EXPECT_EQ(cuda_test::calls("cuIpcOpenMemHandle"), cuda_test::calls("cuIpcCloseMemHandle"));
  for (size_t rank = 0; rank < staged.size(); ++rank) {
    EXPECT_EQ(mapped[rank], staged[rank]) << "rank " << rank << ", " << name_of(dtype) << ", seed " << kSeed;
    EXPECT_EQ(mapped[rank], mapped[0]);
  }
}

TEST_F(CudaIpc, sums_have_the_bits_of_host_memory) {
  expect_bits_of_host_memory<float>(2, DType::kFloat32, 10'000);
  expect_bits_of_host_memory<uint16_t>(3, DType::kBfloat16, 9'001);
  expect_bits_of_host_memory<uint16_t>(4, DType::kFloat16, 777);
  expect_bits_of_host_memory<int64_t>(3, DType::kInt64, 3'001);
  expect_bits_of_host_memory<double>(2, DType::kFloat64, 1);
}

TEST_F(CudaIpc, many_fused_tensors_broadcasts_and_host_memory_keep_one_order) {
  const Job job(3, "shm,tcp");
  job.run(
      [](Engine& engine, Rank rank) {
        for (int step = 0; step < 3; ++step) {
          std::vector<DeviceVector<float>> data;
          std::vector<int64_t> handles;
          std::vector<float> host(50, static_cast<float>(rank));
          for (int i = 0; i < 40; ++i) {
            const int32_t device = (rank + (i % 5 == 0 ? 1 : 0)) % 4;  // some on another GPU of the rank
            data.emplace_back(cuda_test::device(device), std::vector<float>(static_cast<size_t>(1 + 97 * i),
                                                                            static_cast<float>(rank + i)));
            const bool is_sum = i % 4 != 3;
            Tensor tensor = on_device(device, "t" + std::to_string(i), data.back(), DType::kFloat32,
                                      is_sum ? Collective::kAllreduce : Collective::kBroadcast);
            if (!is_sum) tensor.request.root = 1;
            handles.push_back(must_submit(engine, std::move(tensor)));
          }
          ASSERT_TRUE(
              run_one(engine, make_tensor(Collective::kAllreduce, "host", {50}, host.data())).is_ok());
          EXPECT_THAT(host, Each(3.0F));
          for (int i = 0; i < 40; ++i) {
            const Status status = wait(engine, handles[static_cast<size_t>(i)]);
            ASSERT_TRUE(status.is_ok()) << status.why;
            engine.operations().release(handles[static_cast<size_t>(i)]);
            EXPECT_THAT(data[static_cast<size_t>(i)].read(),
                        Each(i % 4 != 3 ? static_cast<float>(3 + 3 * i) : static_cast<float>(1 + i)));
          }
        }
      },
      settings("on"));
}

TEST_F(CudaIpc, a_rank_that_has_joined_adds_nothing_and_takes_nothing) {
  const Job job(3, "shm,tcp");
  job.run(
      [](Engine& engine, Rank rank) {
        for (int step = 0; step <= static_cast<int>(rank); ++step) {
          const DeviceVector<float> data(cuda_test::device(rank), std::vector<float>(5000, 1));
          ASSERT_TRUE(run_one(engine, on_device(rank, "grad", data, DType::kFloat32)).is_ok());
          EXPECT_THAT(data.read(), Each(3.0F - static_cast<float>(step)));
        }
        ASSERT_TRUE(run_one(engine, make_tensor(Collective::kJoin, "join", {}, nullptr)).is_ok());
      },
      settings("on"));
}

// Runs a sum on two ranks, which must succeed, and returns what was logged.
std::string logged_by_a_sum(
    Env env, int32_t (*device_of)(Rank) = [](Rank rank) { return rank; }, size_t count = 50'000) {
  testing::internal::CaptureStderr();
  const Job job(2, "shm,tcp");
  job.run(
      [&](Engine& engine, Rank rank) {
        const int32_t device = device_of(rank);
        for (int step = 0; step < 2; ++step) {
          const DeviceVector<float> data(cuda_test::device(device), std::vector<float>(count, 2));
          const Status status = run_one(engine, on_device(device, "grad", data, DType::kFloat32));
          ASSERT_TRUE(status.is_ok()) << status.why;
          EXPECT_THAT(data.read(), Each(4.0F));
        }
      },
      env);
  return testing::internal::GetCapturedStderr();
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_F(CudaIpc, memory_that_cannot_be_exported_or_mapped_is_one_sentence_and_goes_through_host_memory) {
  // A size of window that no other test has parked.
  cuda_test::plant("cuIpcGetMemHandle", 1, cuda::CUDA_ERROR_INVALID_VALUE);
  const std::string exported = logged_by_a_sum(
      settings("auto", 3 << 20), [](Rank rank) { return rank; }, 1 << 20);
  EXPECT_THAT(exported, HasSubstr("cannot export memory of device"));
  EXPECT_EQ(count_of(exported, "pass through host memory"), 1U) << exported;
  cuda_test::plant("cuIpcOpenMemHandle", 1, cuda::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  const std::string mapped = logged_by_a_sum(settings("auto"));
  EXPECT_THAT(mapped, AllOf(HasSubstr("GPU tensors of all ranks pass through host memory"),
                            HasSubstr("CUDA_ERROR_PEER_ACCESS_UNSUPPORTED")));
  EXPECT_EQ(count_of(mapped, "pass through host memory"), 1U) << mapped;
}

TEST_F(CudaIpc, that_is_asked_for_and_impossible_fails_on_all_ranks) {
  cuda_test::plant("cuIpcOpenMemHandle", 1, cuda::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  const Job job(2, "shm,tcp");
  job.run(
      [](Engine& engine, Rank rank) {
        const DeviceVector<float> data(cuda_test::device(rank), std::vector<float>(100, 2));
        EXPECT_THAT(run_one(engine, on_device(rank, "grad", data, DType::kFloat32)).why,
                    AllOf(HasSubstr("RUEDA_CUDA_IPC=on cannot be kept"), HasSubstr("PEER_ACCESS")));
      },
      settings("on"));
}

TEST_F(CudaIpc, ranks_on_one_gpu_are_named_once_with_the_gpu) {
  for (const char* use : {"off", "auto"}) {
    const std::string logged = logged_by_a_sum(settings(use), [](Rank) { return 3; });
    if (std::string(use) == "off") {
      EXPECT_EQ(count_of(logged, "rank 0 and rank 1 use the same GPU"), 1U) << logged;
      EXPECT_THAT(logged, HasSubstr("UUID 46000000-0000-0000-0000-000000000003"));
    } else {
      EXPECT_EQ(count_of(logged, "use the same GPU"), 0U) << "a process says it once: " << logged;
    }
  }
}

TEST_F(CudaIpc, a_device_that_fails_in_a_sum_ends_it_on_all_ranks) {
  const Job job(2, "shm,tcp");
  job.run(
      [](Engine& engine, Rank rank) {
        const DeviceVector<float> data(cuda_test::device(rank), std::vector<float>(5000, 2));
        ASSERT_TRUE(run_one(engine, on_device(rank, "first", data, DType::kFloat32)).is_ok());
        if (rank == 1) cuda_test::fail_device(1, cuda::CUDA_ERROR_ILLEGAL_ADDRESS);
        const Status status = run_one(engine, on_device(rank, "grad", data, DType::kFloat32));
        EXPECT_THAT(status.why, HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
      },
      settings("on"));
}

}  // namespace
}  // namespace rueda::runtime::cuda_ipc_test
