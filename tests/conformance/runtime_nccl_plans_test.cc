// Learned plans with tensors in device memory: all ranks meet before a bucket is launched, so a bucket that
// some rank never starts is cancelled, with its tensors unchanged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "nccl_job.h"

namespace rueda::runtime::nccl_plans_test {
namespace {

using nccl_job::OnDevice;
using nccl_job::soon;
using nccl_job::with_nccl;
using nccl_test::control;

struct Shape {
  std::string name;
  int64_t count = 0;
  bool is_on_device = true;
};

const std::vector<Shape> kModel = {{"a", 10},   {"b", 70'000},     {"c", 1}, {"host", 300, false},
                                   {"d", 9000}, {"loss", 1, false}};

// One rank's side: the tensors of a model, which get new values before every use.
class Trainer {
 public:
  Trainer(Engine& engine, Rank rank, Rank size) : engine_(engine), rank_(rank), size_(size), mine_(rank) {}
  ~Trainer() { mine_.user().synchronize(); }

  void step(const std::vector<Shape>& model) {
    ++round_;
    std::vector<int64_t> handles;
    for (const Shape& shape : model) handles.push_back(submit(shape));
    for (size_t i = 0; i < model.size(); ++i) check(model[i], handles[i]);
  }
  // Waits for each before it submits the next.
  void step_one_by_one(const std::vector<Shape>& model) {
    ++round_;
    for (const Shape& shape : model) check(shape, submit(shape));
  }
  // Has the tensors reduced although the other ranks come only later, in another order.
  void step_backwards(std::vector<Shape> model) {
    if (rank_ % 2 == 1) std::ranges::reverse(model);
    step(model);
  }

 private:
  [[nodiscard]] float value(Rank rank, const Shape& shape) const {
    return static_cast<float>((rank + 1) * 3 + static_cast<int>(shape.name[0]) + round_ % 50);
  }
  int64_t submit(const Shape& shape) {
    const std::vector<float> values(static_cast<size_t>(shape.count), value(rank_, shape));
    if (!shape.is_on_device) {
      std::vector<float>& data = host_[shape.name];
      data = values;
      return must_submit(engine_,
                         make_tensor(Collective::kAllreduce, shape.name, {shape.count}, data.data()));
    }
    auto& data = device_[shape.name];
    if (data == nullptr) data = mine_.vector(values);
    mine_.user().synchronize();
    mine_.user().enqueue([data, values] { data->write(values); });
    return must_submit(engine_, mine_.tensor(Collective::kAllreduce, shape.name, *data));
  }
  void check(const Shape& shape, int64_t handle) {
    const Status status = engine_.wait(handle, soon());
    ASSERT_TRUE(status.is_ok()) << shape.name << " in round " << round_ << ": " << status.why;
    engine_.operations().release(handle);
    float sum = 0;
    for (Rank rank = 0; rank < size_; ++rank) sum += value(rank, shape);
    const std::vector<float> found = shape.is_on_device ? device_[shape.name]->read() : host_[shape.name];
    ASSERT_TRUE(std::ranges::all_of(found, [&](float x) { return x == sum; }))
        << shape.name << " in round " << round_ << " on rank " << rank_ << ": " << found[0] << ", not "
        << sum;
  }

  Engine& engine_;
  Rank rank_, size_;
  OnDevice mine_;
  int round_ = 0;
  std::map<std::string, std::vector<float>> host_;
  std::map<std::string, std::shared_ptr<cuda_test::DeviceVector<float>>> device_;
};

class NcclPlans : public nccl_job::NcclJob, public testing::WithParamInterface<const char*> {
 protected:
  void run(const std::function<void(Engine&, Trainer&, Rank)>& body) {
    const std::string hosts = GetParam();
    const auto size = static_cast<Rank>(hosts.size());
    const Job job(size, "shm,tcp", hosts);
    job.run(
        [&](Engine& engine, Rank rank) {
          Trainer trainer(engine, rank, size);
          for (int i = 0; i < 12; ++i) trainer.step(kModel);
          body(engine, trainer, rank);
        },
        with_nccl({{"RUEDA_HIERARCHICAL_ALLREDUCE", hosts == "aabb" ? "1" : "0"}}));
  }
};

TEST_P(NcclPlans, are_learned_with_host_and_device_tensors_in_one_step) {
  run([](Engine& engine, Trainer& trainer, Rank) {
    for (int i = 0; i < 4; ++i) trainer.step(kModel);
    EXPECT_GE(engine.counters().plans, 1);
    EXPECT_GT(engine.counters().planned_batches, 0);
  });
}

TEST_P(NcclPlans, that_a_rank_abandons_leave_the_tensors_as_they_were_and_are_negotiated) {
  run([](Engine& engine, Trainer& trainer, Rank) {
    trainer.step_one_by_one(kModel);
    for (int i = 0; i < 8; ++i) trainer.step(kModel);
    trainer.step_backwards({{"x", 500}, {"y", 20'000}, {"a", 10}, {"host", 300, false}});
    for (int i = 0; i < 4; ++i) trainer.step(kModel);
    EXPECT_GE(engine.counters().departures, 1);
  });
}

// The odd ranks wait for the first tensor of a bucket before they submit the rest, while the others have
// started the bucket and meet nobody.
TEST_P(NcclPlans, a_bucket_that_some_ranks_have_started_is_cancelled) {
  run([](Engine&, Trainer& trainer, Rank rank) {
    for (int i = 0; i < 3; ++i) {
      if (rank % 2 == 1)
        trainer.step_one_by_one(kModel);
      else
        trainer.step(kModel);
      for (int k = 0; k < 4; ++k) trainer.step(kModel);
    }
  });
}

// Each step reduces six tensors of 1 MiB, submitted as one group. The planted speeds are far from where
// another size would be found.
class NcclBuckets : public nccl_job::NcclJob {
 protected:
  static constexpr Rank kRanks = 2;
  static constexpr int kTensors = 6, kLearning = 6, kSteps = 3;

  static void step(Engine& engine, OnDevice& mine, std::span<const cuda_test::DeviceVector<float>> model) {
    std::vector<Tensor> tensors;
    for (const auto& data : model) {
      const auto i = static_cast<int32_t>(tensors.size());
      tensors.push_back(mine.tensor(Collective::kAllreduce, "t" + std::to_string(i), data));
      tensors.back().request.group_index = i;
      tensors.back().request.group_size = kTensors;
    }
    const Result<int64_t> handle = engine.submissions().submit(std::move(tensors));
    ASSERT_TRUE(handle.is_ok()) << handle.status().why;
    const Status status = engine.wait(handle.value(), soon());
    ASSERT_TRUE(status.is_ok()) << status.why;
    engine.operations().release(handle.value());
  }
  // How many buckets one step of a plan has.
  int64_t buckets(const Env& settings = {}) {
    std::vector<int64_t> found(kRanks);
    Job(kRanks, "shm,tcp", "aa")
        .run(
            [&](Engine& engine, Rank rank) {
              OnDevice mine(rank);
              std::vector<cuda_test::DeviceVector<float>> model;
              for (int i = 0; i < kTensors; ++i)
                model.emplace_back(mine.device(), std::vector<float>(1 << 18, 1.0F));
              for (int i = 0; i < kLearning; ++i) step(engine, mine, model);
              EXPECT_EQ(engine.counters().plans, 1);
              const int64_t before = engine.counters().planned_batches;
              for (int i = 0; i < kSteps; ++i) step(engine, mine, model);
              found[static_cast<size_t>(rank)] = engine.counters().planned_batches - before;
              mine.user().synchronize();
            },
            with_nccl(settings));
    EXPECT_THAT(found, testing::Each(found[0]));
    return found[0] / kSteps;
  }
};

TEST_F(NcclBuckets, hold_all_tensors_where_a_call_takes_long_and_bytes_cost_nothing) {
  control().us_per_group = 100'000;
  EXPECT_EQ(buckets(), 1);
}

// Alone: what a call takes is measured, and a busy machine makes it longer.
class NcclBucketsAlone : public NcclBuckets {};

TEST_F(NcclBucketsAlone, hold_one_mebibyte_where_calls_cost_nothing_beside_their_bytes) {
  control().us_per_kib = 50;  // 50 ms for each MiB
  EXPECT_EQ(buckets(), 6);
}

TEST_F(NcclBuckets, have_the_size_that_the_user_chooses) {
  control().us_per_group = 20'000;
  EXPECT_EQ(buckets({{"RUEDA_PLAN_BUCKET_BYTES", "2097152"}}), 3);
}

TEST_F(NcclBuckets, are_never_larger_than_what_is_packed_at_once) {
  control().us_per_group = 100'000;
  EXPECT_EQ(buckets({{"RUEDA_FUSION_THRESHOLD", "4194304"}}), 2) << "four and two";
}

INSTANTIATE_TEST_SUITE_P(Hosts, NcclPlans, testing::Values("aa", "ab", "aab", "aabb"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace rueda::runtime::nccl_plans_test
