// Learned plans with collectives whose rows change in each step, on whole engines: nothing is said while they
// hold, and the results are right.
#include <random>

#include "plan_worlds.h"

namespace rueda::runtime::plans_rows_test {
namespace {

using plan_worlds::longest_silence;
using plan_worlds::Wires;

// A step of gradients, a metric of which each rank has as many rows as it likes, one without a name, a sparse
// gradient (rows and their indices), and rows for each other rank, as a mixture of experts has them.
class Uneven {
 public:
  Uneven(Engine& engine, Rank rank, Rank size) : engine_(engine), rank_(rank), size_(size) {}

  void step() {
    ++step_;
    std::vector<float> sum(1000, value(rank_));
    const int64_t summed =
        must_submit(engine_, make_tensor(Collective::kAllreduce, "sum", {1000}, sum.data()));
    const int64_t metric = gather("metric", 1);
    const int64_t nameless = gather("nameless " + std::to_string(3 * step_), 2, 9);
    const int64_t indices = gather("sparse.indices", 1), values = gather("sparse.values", 5);
    const int64_t exchanged = exchange();
    float total = 0;
    for (Rank rank = 0; rank < size_; ++rank) total += value(rank);
    finish(summed);
    EXPECT_EQ(sum, std::vector<float>(1000, total));
    check_gathered(metric, 1);
    check_gathered(nameless, 2);
    check_gathered(indices, 1);
    check_gathered(values, 5);
    check_exchanged(exchanged);
    sent_.clear();
  }
  // Rows that this rank gives of all but the alltoall: now and then none.
  [[nodiscard]] virtual int64_t rows(Rank rank) const { return (step_ * (rank + 3) + rank) % 7; }
  [[nodiscard]] int number() const { return step_; }
  virtual ~Uneven() = default;

 private:
  [[nodiscard]] float value(Rank rank) const { return static_cast<float>(rank + 1 + step_ % 50); }
  [[nodiscard]] int32_t split(Rank from, Rank to) const { return (step_ + 2 * from + 3 * to) % 5; }
  float* send(int64_t count) {
    return sent_.emplace_back(static_cast<size_t>(count) + 1, value(rank_)).data();
  }
  int64_t gather(const std::string& name, int64_t width, uint16_t numbered_at = 0) {
    Tensor tensor =
        make_tensor(Collective::kAllgather, name, {rows(rank_), width}, send(rows(rank_) * width));
    tensor.request.numbered_at = numbered_at;
    return must_submit(engine_, std::move(tensor));
  }
  int64_t exchange() {
    std::vector<int32_t> splits;
    for (Rank to = 0; to < size_; ++to) splits.push_back(split(rank_, to));
    const int64_t all = std::accumulate(splits.begin(), splits.end(), int64_t{0});
    Tensor tensor = make_tensor(Collective::kAlltoall, "experts", {all, 3}, send(all * 3));
    tensor.request.splits = std::move(splits);
    return must_submit(engine_, std::move(tensor));
  }
  void finish(int64_t handle) {
    const Status status = wait(engine_, handle);
    ASSERT_TRUE(status.is_ok()) << status.why;
  }
  void check_gathered(int64_t handle, int64_t width) {
    finish(handle);
    std::vector<float> expected;
    for (Rank rank = 0; rank < size_; ++rank)
      expected.insert(expected.end(), static_cast<size_t>(rows(rank) * width), value(rank));
    EXPECT_EQ(result_of(engine_, handle), expected) << "step " << step_;
    engine_.operations().release(handle);
  }
  void check_exchanged(int64_t handle) {
    finish(handle);
    std::vector<float> expected;
    std::vector<int32_t> splits;
    for (Rank from = 0; from < size_; ++from) {
      splits.push_back(split(from, rank_));
      expected.insert(expected.end(), static_cast<size_t>(splits.back()) * 3, value(from));
    }
    EXPECT_EQ(result_of(engine_, handle), expected) << "step " << step_;
    EXPECT_EQ(engine_.operations().find(handle)->tensors.front().received_splits, splits);
    engine_.operations().release(handle);
  }

  Engine& engine_;
  Rank rank_, size_;
  int step_ = 0;
  std::deque<std::vector<float>> sent_;
};

class PlansOfRows : public plan_worlds::PlansOnEngines {};

TEST_P(PlansOfRows, no_word_is_said_where_rows_change_in_every_step) {
  job_.run([&](Engine& engine, Rank rank) {
    Uneven uneven(engine, rank, ranks());
    EXPECT_GE(longest_silence(engine, 300, [&](int) { uneven.step(); }), 50);
    EXPECT_GT(engine.counters().planned_batches, 0);
  });
}

// The last batch of an epoch is smaller, and the ones after it are again as they were.
class Epochs : public Uneven {
 public:
  using Uneven::Uneven;
  [[nodiscard]] int64_t rows(Rank rank) const override { return number() % 50 == 0 ? rank : 4; }
};

TEST_P(PlansOfRows, rows_that_were_planned_and_changed_once_end_no_plan_again) {
  job_.run([&](Engine& engine, Rank rank) {
    Epochs epochs(engine, rank, ranks());
    for (int i = 0; i < 180; ++i) epochs.step();
    const int64_t departures = engine.counters().departures;
    EXPECT_GE(longest_silence(engine, 120, [&](int) { epochs.step(); }), 60);
    EXPECT_GT(engine.counters().planned_batches, 0);
    EXPECT_LE(departures, 4);
  });
}

TEST_P(PlansOfRows, what_else_differs_is_refused_in_the_name_of_its_ranks) {
  job_.run([&](Engine& engine, Rank rank) {
    Uneven uneven(engine, rank, ranks());
    for (int i = 0; i < 40; ++i) uneven.step();
    EXPECT_GT(engine.counters().planned_batches, 0);
    std::vector<float> data(64);
    const int64_t width = rank == 1 ? 2 : 1;
    const Status status =
        run_one(engine, make_tensor(Collective::kAllgather, "metric", {3, width}, data.data()));
    EXPECT_EQ(status.code, Code::kMismatch);
    EXPECT_THAT(status.why, testing::HasSubstr("metric"));
    EXPECT_THAT(status.why, testing::HasSubstr("rank 1"));
    for (int i = 0; i < 20; ++i) uneven.step();
  });
}

// A plan may end while the rows of a bucket are being told.
TEST_P(PlansOfRows, a_rank_that_departs_at_any_time_changes_no_result) {
  job_.run([&](Engine& engine, Rank rank) {
    Uneven uneven(engine, rank, ranks());
    std::mt19937 random(static_cast<uint32_t>(rank));
    for (int i = 0; i < 400 && !HasFailure(); ++i) {
      const bool is_odd = i % 23 == 22;
      std::vector<float> more(100, 1);
      int64_t handle = -1;
      if (is_odd && random() % 2 == 0)
        handle = must_submit(engine, make_tensor(Collective::kAllreduce, "more", {100}, more.data()));
      uneven.step();
      if (is_odd && handle < 0)
        handle = must_submit(engine, make_tensor(Collective::kAllreduce, "more", {100}, more.data()));
      if (!is_odd) continue;
      ASSERT_TRUE(wait(engine, handle).is_ok());
      EXPECT_EQ(more, std::vector<float>(100, static_cast<float>(ranks())));
      engine.operations().release(handle);
    }
    EXPECT_GE(engine.counters().departures, 1);
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, PlansOfRows,
                         testing::Values(Wires{2, "shm,tcp"}, Wires{3, "shm,tcp"}, Wires{2, "tcp"},
                                         Wires{3, "tcp"}, Wires{4, "shm,tcp", "aabb"}),
                         plan_worlds::name_of_world);

}  // namespace
}  // namespace rueda::runtime::plans_rows_test
