// A job of one rank: what changes nothing ends on the thread that submits it; everything else runs as usual.
#include <filesystem>
#include <numeric>

#include "engine_job.h"

namespace rueda::runtime::one_rank_job_test {
namespace {

constexpr int64_t kLarge = 1 << 20;  // elements; too many to be copied at once

std::vector<float> numbers(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

class OneRankJob : public testing::Test {
 protected:
  // Whether the operation has ended when it is submitted.
  static bool ends_at_once(Engine& engine, Tensor tensor) {
    const int64_t handle = must_submit(engine, std::move(tensor));
    const std::shared_ptr<Operation> operation = engine.operations().find(handle);
    const bool has_ended = operation->is_done.load();
    EXPECT_TRUE(wait(engine, handle).is_ok());
    last_ = operation;
    engine.operations().release(handle);
    return has_ended;
  }
  static std::vector<float> result() {
    const Tensor& tensor = last_->tensors.front();
    const auto* const values = static_cast<const float*>(tensor.output);
    return {values, values + tensor.result_shape.at(0)};
  }
  void TearDown() override { last_.reset(); }

  static std::shared_ptr<Operation> last_;
  Job job_{1, "shm,tcp"};
};

std::shared_ptr<Operation> OneRankJob::last_;

TEST_F(OneRankJob, every_collective_that_changes_nothing_ends_at_once) {
  job_.run([&](Engine& engine, Rank) {
    for (const Collective what : {Collective::kAllreduce, Collective::kAllgather, Collective::kBroadcast,
                                  Collective::kReducescatter, Collective::kAlltoall}) {
      std::vector<float> data = numbers(100);
      Tensor tensor = make_tensor(what, "t", {100}, data.data());
      if (what == Collective::kBroadcast) tensor.request.root = 0;
      EXPECT_TRUE(ends_at_once(engine, std::move(tensor))) << name_of(what);
      EXPECT_EQ(result(), numbers(100)) << name_of(what);
      EXPECT_EQ(last_->tensors[0].received_splits.size(), what == Collective::kAlltoall ? 1U : 0U);
    }
    EXPECT_TRUE(ends_at_once(engine, make_tensor(Collective::kBarrier, "barrier", {}, nullptr)));
    std::vector<float> large = numbers(kLarge);
    EXPECT_TRUE(ends_at_once(engine, make_tensor(Collective::kAllreduce, "large", {kLarge}, large.data())));
    EXPECT_EQ(engine.counters().batches, 7);
    EXPECT_EQ(engine.counters().tensors, 7);
    EXPECT_EQ(engine.counters().bytes, 5 * 400 + 4 * kLarge);
  });
}

TEST_F(OneRankJob, what_scales_or_copies_much_is_done_by_the_engine) {
  job_.run([&](Engine& engine, Rank) {
    std::vector<float> data = numbers(10), doubled = data;
    for (float& value : doubled) value *= 2;
    Tensor scaled = make_tensor(Collective::kAllreduce, "scaled", {10}, data.data());
    scaled.request.postscale = 2.0;
    ends_at_once(engine, std::move(scaled));
    EXPECT_EQ(data, doubled);
    std::vector<float> large = numbers(kLarge);
    ends_at_once(engine, make_tensor(Collective::kAllgather, "gathered", {kLarge}, large.data()));
    EXPECT_EQ(result(), large);
    std::vector<float> copy(large.size());
    Tensor apart = make_tensor(Collective::kAllreduce, "apart", {kLarge}, large.data());
    apart.output = copy.data();
    ends_at_once(engine, std::move(apart));
    EXPECT_EQ(copy, large);
  });
}

// The one behind reads what the one before writes.
TEST_F(OneRankJob, nothing_overtakes_what_is_in_flight) {
  job_.run([&](Engine& engine, Rank) {
    for (int i = 0; i < 200; ++i) {
      std::vector<float> data = numbers(kLarge / 16), copy(data.size());
      Tensor scaled = make_tensor(Collective::kAllreduce, "scaled", {std::ssize(data)}, data.data());
      scaled.request.postscale = 2.0;
      const int64_t first = must_submit(engine, std::move(scaled));
      Tensor read = make_tensor(Collective::kAllreduce, "read", {std::ssize(data)}, data.data());
      read.output = copy.data();
      const int64_t second = must_submit(engine, std::move(read));
      ASSERT_TRUE(wait(engine, first).is_ok() && wait(engine, second).is_ok());
      ASSERT_EQ(copy.back(), 2.0F * static_cast<float>(copy.size()));
      engine.operations().release(first);
      engine.operations().release(second);
    }
  });
}

TEST_F(OneRankJob, prepared_operations_end_at_once_and_again) {
  job_.run([&](Engine& engine, Rank) {
    std::vector<float> data = numbers(100);
    const int64_t prepared =
        engine.submissions().prepare(make_tensor(Collective::kAllreduce, "p", {100}, nullptr)).value();
    for (int i = 0; i < 5; ++i) {
      const int64_t handle = engine.submissions()
                                 .start({.number = prepared, .input = data.data(), .output = data.data()})
                                 .value();
      EXPECT_EQ(engine.operations().poll(handle), 1);
      EXPECT_TRUE(wait(engine, handle).is_ok());
      engine.operations().release(handle);
    }
    EXPECT_EQ(data, numbers(100));
  });
}

TEST_F(OneRankJob, a_timeline_shows_every_tensor) {
  const std::string path = (job_.dir() / "timeline.json").string();
  job_.run(
      [&](Engine& engine, Rank) {
        std::vector<float> data = numbers(10);
        ends_at_once(engine, make_tensor(Collective::kAllreduce, "shown", {10}, data.data()));
        EXPECT_EQ(data, numbers(10));
      },
      {{"RUEDA_TIMELINE", path}});
  EXPECT_GT(std::filesystem::file_size(path), 100U);
}

}  // namespace
}  // namespace rueda::runtime::one_rank_job_test
