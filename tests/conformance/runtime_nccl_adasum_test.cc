// Whole engines with Adasum over NCCL, compared with Adasum in host memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <mutex>
#include <random>

#include "../unit/kernels_reference.h"
#include "nccl_job.h"
#include "rueda/backend/nccl/probe.h"

namespace rueda::runtime::nccl_adasum_test {
namespace {

using kernels_test::Element;
using nccl_job::OnDevice;
using nccl_job::soon;
using nccl_job::with_nccl;
using nccl_test::control;
using testing::Each;
using testing::HasSubstr;

// What each rank's devices give.
template <class T>
using Results = std::vector<std::vector<std::vector<T>>>;  // [ranks][tensors][elements]

class NcclAdasum : public nccl_job::NcclJob {};

// Values of about one size, whose vectors point in nearly the same direction on all ranks.
template <DType kType>
std::vector<typename Element<kType>::Raw> values_of(Rank rank, size_t tensor, size_t count) {
  using E = Element<kType>;
  std::mt19937 shared(static_cast<uint32_t>(tensor)), own(static_cast<uint32_t>(100 * tensor + rank + 7));
  std::uniform_real_distribution<double> value(-1, 1);
  std::vector<typename E::Raw> made(count);
  for (auto& one : made) one = E::narrow(static_cast<typename E::Acc>(value(shared) + 0.5 * value(own)));
  return made;
}

struct Factors {
  double prescale = 1, postscale = 1;
};

// The tensors of one group, reduced together.
template <DType kType>
std::vector<Tensor> group_of(const std::vector<void*>& memory, const std::vector<size_t>& counts,
                             const std::string& name, Factors factors) {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < counts.size(); ++i) {
    tensors.push_back(make_tensor(Collective::kAllreduce, name + std::to_string(i),
                                  {static_cast<int64_t>(counts[i])}, memory[i]));
    auto& request = tensors.back().request;
    request.dtype = kType;
    request.op = ReduceOp::kAdasum;
    request.prescale = factors.prescale;
    request.postscale = factors.postscale;
    if (counts.size() == 1) continue;
    request.group_name = name;
    request.group_index = static_cast<int32_t>(i);
    request.group_size = static_cast<int32_t>(counts.size());
  }
  return tensors;
}

// Reduces the same values in host memory and in device memory.
template <DType kType>
void reduce_both(Engine& engine, Rank rank, OnDevice& mine, const std::vector<size_t>& counts,
                 Factors factors, std::vector<std::vector<typename Element<kType>::Raw>>& host,
                 std::vector<std::vector<typename Element<kType>::Raw>>& device) {
  using Raw = typename Element<kType>::Raw;
  std::vector<std::shared_ptr<cuda_test::DeviceVector<Raw>>> data;
  std::vector<void*> on_host, on_device;
  for (size_t i = 0; i < counts.size(); ++i) host.push_back(values_of<kType>(rank, i, counts[i]));
  for (auto& values : host) {
    on_host.push_back(values.data());
    data.push_back(mine.vector(values));
    on_device.push_back(data.back()->data());
  }
  std::vector<Tensor> in_host_memory = group_of<kType>(on_host, counts, "host", factors);
  std::vector<Tensor> tensors = group_of<kType>(on_device, counts, "device", factors);
  for (Tensor& tensor : tensors) {
    tensor.request.memory = MemoryKind::kDevice;
    tensor.request.device = mine.device()->ordinal();
    tensor.memory = {
        .kind = MemoryKind::kDevice, .device = mine.device()->ordinal(), .ready = mine.user().record()};
  }
  for (auto* const group : {&tensors, &in_host_memory}) {
    const int64_t handle = engine.submissions().submit(std::move(*group)).value();
    const Status status = engine.wait(handle, soon());
    ASSERT_TRUE(status.is_ok()) << status.why;
    engine.operations().release(handle);
  }
  for (const auto& vector : data) device.push_back(vector->read());
}

// Device memory has the same bits on all ranks, and the values of host memory but for rounding.
template <DType kType>
void expect_same(const Results<typename Element<kType>::Raw>& host,
                 const Results<typename Element<kType>::Raw>& device) {
  using E = Element<kType>;
  const double epsilon = kType == DType::kFloat64   ? 1e-14
                         : kType == DType::kFloat32 ? 1e-6
                         : kType == DType::kFloat16 ? 1e-3
                                                    : 8e-3;
  for (size_t rank = 0; rank < device.size(); ++rank) {
    ASSERT_EQ(device[rank], device[0]) << "rank " << rank;
    for (size_t i = 0; i < host[rank].size(); ++i) {
      ASSERT_EQ(device[rank][i].size(), host[rank][i].size());
      for (size_t at = 0; at < host[rank][i].size(); ++at) {
        const double wanted = E::widen(host[rank][i][at]), is = E::widen(device[rank][i][at]);
        ASSERT_NEAR(is, wanted, epsilon * std::max(1.0, std::abs(wanted)))
            << "tensor " << i << ", element " << at;
      }
    }
  }
}

template <DType kType>
void compare(Rank ranks, const std::vector<size_t>& counts, Factors factors, const Env& more = {},
             const std::string& hosts = {}) {
  using Raw = typename Element<kType>::Raw;
  Results<Raw> host(static_cast<size_t>(ranks)), device(static_cast<size_t>(ranks));
  const Job job(ranks, "shm,tcp", hosts);
  job.run(
      [&](Engine& engine, Rank rank) {
        OnDevice mine(rank);
        const auto at = static_cast<size_t>(rank);
        reduce_both<kType>(engine, rank, mine, counts, factors, host[at], device[at]);
        mine.user().synchronize();
      },
      with_nccl(more));
  expect_same<kType>(host, device);
}

TEST_F(NcclAdasum, combines_each_tensor_by_itself_as_host_memory_does) {
  const std::vector<size_t> counts = {1, 1000, 0, 33, 40'000, 7};
  for (Rank ranks = 1; ranks <= 4; ++ranks) {
    compare<DType::kFloat32>(ranks, counts, {});
    compare<DType::kFloat64>(ranks, counts, {});
    compare<DType::kFloat16>(ranks, counts, {});
    compare<DType::kBfloat16>(ranks, counts, {});
  }
}

TEST_F(NcclAdasum, takes_a_tensor_alone_where_it_lies_and_scales_before_and_after) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{70'001}}) {
    control().reset();
    compare<DType::kFloat32>(3, {count}, {.prescale = 0.5, .postscale = 3});
    compare<DType::kFloat16>(3, {count}, {.prescale = 0.5, .postscale = 3});
    // First ranks 0 and 1 exchange their vectors, then ranks 0 and 2, and rank 2 sends to rank 1 as well.
    const int exchanges = count == 0 ? 0 : 4 + 6;
    EXPECT_EQ(control().operations, 2 * (3 * static_cast<int>(nccl::Probe::kCalls) + exchanges));
  }
}

// A call of 4 MiB where packed tensors have 2 MiB: its parts take a quarter of that.
TEST_F(NcclAdasum, is_run_in_parts_where_there_is_little_memory) {
  const std::vector<size_t> counts = {160'000, 10, 160'000, 160'000, 300'000, 20, 160'000, 100};
  compare<DType::kFloat32>(2, counts, {.postscale = 0.25}, {{"RUEDA_FUSION_THRESHOLD", "1048576"}});
  compare<DType::kBfloat16>(2, counts, {.postscale = 0.25}, {{"RUEDA_FUSION_THRESHOLD", "1048576"}});
}

TEST_F(NcclAdasum, has_one_level_of_hosts_where_sums_are_hierarchical) {
  compare<DType::kFloat32>(4, {1000, 50}, {}, {{"HOROVOD_HIERARCHICAL_ALLREDUCE", "1"}}, "aabb");
}

TEST_F(NcclAdasum, reads_tensors_when_they_are_ready_and_a_stream_that_waits_sees_the_result) {
  run(2, [](Engine& engine, Rank rank, OnDevice& mine) {
    for (int step = 0; step < 10; ++step) {
      const auto data = mine.vector(std::vector<float>(1000, -1.0F));
      mine.user().enqueue([&] { data->write(std::vector<float>(1000, rank == 0 ? 2.0F : 4.0F)); });  // later
      Tensor tensor = mine.tensor(Collective::kAllreduce, "grad", *data);
      tensor.request.op = ReduceOp::kAdasum;
      const int64_t handle = must_submit(engine, std::move(tensor));
      ASSERT_TRUE(engine.wait_on_stream(handle, mine.user().handle(), soon()).is_ok());
      std::vector<float> seen;
      mine.user().enqueue([&] { seen = data->read(); });
      mine.user().synchronize();
      EXPECT_THAT(seen, Each(3.0F)) << "parallel vectors are averaged; step " << step;
      engine.operations().release(handle);
    }
  });
}

TEST_F(NcclAdasum, takes_a_rank_that_has_joined_for_zeros) {
  run(2, [](Engine& engine, Rank rank, OnDevice& mine) {
    const auto data = mine.vector(std::vector<float>(70'000, -2.0F));
    if (rank == 0) {
      Tensor tensor = mine.tensor(Collective::kAllreduce, "more", *data);
      tensor.request.op = ReduceOp::kAdasum;
      ASSERT_TRUE(engine.wait(must_submit(engine, std::move(tensor)), soon()).is_ok());
      EXPECT_THAT(data->read(), Each(-2.0F));
    }
    ASSERT_TRUE(run_one(engine, make_tensor(Collective::kJoin, "join", {}, nullptr)).is_ok());
  });
}

TEST_F(NcclAdasum, is_staged_by_all_where_one_rank_has_no_memory_for_its_vectors) {
  run(2, [](Engine& engine, Rank rank, OnDevice& mine) {
    const auto reduce = [&](const std::string& name, size_t count) {
      const auto data = mine.vector(std::vector<float>(count, rank == 0 ? 2.0F : 4.0F));
      Tensor tensor = mine.tensor(Collective::kAllreduce, name, *data);
      tensor.request.op = ReduceOp::kAdasum;
      const Status status = engine.wait(must_submit(engine, std::move(tensor)), soon());
      ASSERT_TRUE(status.is_ok()) << status.why;
      EXPECT_THAT(data->read(), Each(3.0F)) << name;
    };
    reduce("small", 1000);
    mine.user().synchronize();
    if (rank == 1) cuda_test::set_free_memory(1, 20 << 20);  // the tensor of 12 MiB, and not as much again
    for (int step = 0; step < 3; ++step) {
      reduce("large", 3 << 20);
      reduce("small", 1000);
    }
  });
}

TEST_F(NcclAdasum, ends_with_the_epoch_when_a_member_is_lost_between_two_levels) {
  run(4, [](Engine& engine, Rank rank, OnDevice& mine) {
    const auto data = mine.vector(std::vector<float>(1000, 1.0F));
    if (rank == 2) control().lost_member = 2;
    Tensor tensor = mine.tensor(Collective::kAllreduce, "grad", *data);
    tensor.request.op = ReduceOp::kAdasum;
    const int64_t handle = must_submit(engine, std::move(tensor));
    EXPECT_FALSE(engine.wait(handle, soon()).is_ok()) << "rank " << rank;
  });
}

}  // namespace
}  // namespace rueda::runtime::nccl_adasum_test
