// Learned plans on whole engines: that they are learned, that nothing is said while they hold, and that every
// departure ends with the same results as negotiation.
#include <array>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "../allocations.h"
#include "plan_worlds.h"

namespace rueda::runtime::plans_test {
namespace {

using plan_worlds::longest_silence;
using plan_worlds::Wires;

struct Model {
  std::vector<int64_t> counts;
  std::string prefix = "g";
};

// One rank's side of a job: its tensors, rewritten before every use.
class Trainer {
 public:
  Trainer(Engine& engine, Rank rank, Rank size) : engine_(engine), rank_(rank), size_(size) {}

  // Every tensor of the model in the given order, waiting only at the end.
  void step(const Model& model, const std::vector<size_t>& order) {
    std::vector<std::pair<size_t, int64_t>> handles;
    ++round_;
    for (const size_t i : order) handles.emplace_back(i, submit(model, i));
    for (const auto& [i, handle] : handles) check(model, i, handle);
  }
  // Waits for each before it submits the next.
  void step_one_by_one(const Model& model) {
    ++round_;
    for (size_t i = 0; i < model.counts.size(); ++i) check(model, i, submit(model, i));
  }
  int64_t submit(const Model& model, size_t i) { return must_submit(engine_, tensor(model, i)); }
  void check(const Model& model, size_t i, int64_t handle) {
    const Status status = engine_.wait(handle, Deadline::after(20 * kSecond));
    ASSERT_TRUE(status.is_ok()) << model.prefix << i << ": " << status.why;
    verify(model, i);
    engine_.operations().release(handle);
  }

 private:
  Tensor tensor(const Model& model, size_t i) {
    std::span<float> mine = memory(model, i);
    std::ranges::fill(mine, value(rank_, i));
    return make_tensor(Collective::kAllreduce, model.prefix + std::to_string(i), {model.counts[i]},
                       mine.data());
  }
  [[nodiscard]] float value(Rank rank, size_t i) const {
    return static_cast<float>((rank + 1) * 3 + static_cast<int>(i) + round_ % 50);
  }
  void verify(const Model& model, size_t i) {
    float sum = 0;
    for (Rank rank = 0; rank < size_; ++rank) sum += value(rank, i);
    const std::span<float> mine = memory(model, i);
    ASSERT_TRUE(std::ranges::all_of(mine, [&](float x) { return x == sum; }))
        << model.prefix << i << " in round " << round_ << " on rank " << rank_;
  }
  std::span<float> memory(const Model& model, size_t i) {
    const auto count = static_cast<size_t>(model.counts[i]);
    std::span<float>& known = memory_[model.prefix + std::to_string(i)];
    if (known.data() == nullptr) known = {own_.emplace_back(count + 1).data(), count};
    return known;
  }

  Engine& engine_;
  Rank rank_, size_;
  int round_ = 0;
  std::map<std::string, std::span<float>> memory_;
  std::deque<std::vector<float>> own_;
};

std::vector<size_t> in_order(const Model& model) {
  std::vector<size_t> order(model.counts.size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

class Plans : public plan_worlds::PlansOnEngines {
 protected:
  const Model model_{.counts = {10, 70'000, 1, 300, 9000, 0}};
  const Model other_{.counts = {500, 20, 40'000}, .prefix = "h"};
};

TEST_P(Plans, no_word_is_said_once_steps_recur) {
  job_.run([&](Engine& engine, Rank rank) {
    Trainer trainer(engine, rank, ranks());
    EXPECT_GE(longest_silence(engine, 300, [&](int) { trainer.step(model_, in_order(model_)); }), 50);
    EXPECT_GE(engine.counters().plans, 1);
    EXPECT_GT(engine.counters().planned_batches, 0);
  });
}

// One of each collective besides the gradients, some of them under names that are new in each step.
class Mixture {
 public:
  Mixture(Engine& engine, Rank rank, Rank size) : engine_(engine), rank_(rank), size_(size) {}

  void step() {
    ++step_;
    const auto n = static_cast<size_t>(size_);
    std::vector<float> sum(1000, value(rank_)), sent(100, value(rank_));
    std::vector<float> rows(static_cast<size_t>(rank_) + 1, value(rank_));
    std::vector<float> for_all(n * 10, value(rank_)), whole(n * 3, value(rank_));
    std::vector<int64_t> handles;
    const auto begin = [&](Tensor tensor) { handles.push_back(must_submit(engine_, std::move(tensor))); };
    begin(make_tensor(Collective::kAllreduce, "sum", {1000}, sum.data()));
    Tensor broadcast = make_tensor(Collective::kBroadcast, "broadcast", {100}, sent.data());
    broadcast.request.root = size_ - 1;
    begin(std::move(broadcast));
    begin(numbered(Collective::kAllgather, {rank_ + 1}, rows.data()));
    begin(make_tensor(Collective::kReducescatter, "scatter", {size_ * 3}, whole.data()));
    begin(numbered(Collective::kAlltoall, {size_ * 10}, for_all.data()));
    for (const int64_t handle : handles) ASSERT_TRUE(wait(engine_, handle).is_ok());
    float total = 0;
    std::vector<float> gathered, exchanged;
    for (Rank rank = 0; rank < size_; ++rank) {
      total += value(rank);
      gathered.insert(gathered.end(), static_cast<size_t>(rank) + 1, value(rank));
      exchanged.insert(exchanged.end(), 10, value(rank));
    }
    EXPECT_EQ(sum, std::vector<float>(1000, total));
    EXPECT_EQ(sent, std::vector<float>(100, value(size_ - 1)));
    EXPECT_EQ(result(handles[2]), gathered);
    EXPECT_EQ(result(handles[3]), std::vector<float>(3, total));
    EXPECT_EQ(result(handles[4]), exchanged);
    for (const int64_t handle : handles) engine_.operations().release(handle);
  }

 private:
  Tensor numbered(Collective what, std::vector<int64_t> shape, void* data) {
    std::string name = std::string(name_of(what)) + " ";
    const auto at = static_cast<uint16_t>(name.size());
    Tensor tensor = make_tensor(what, name + std::to_string(5 * step_), std::move(shape), data);
    tensor.request.numbered_at = at;
    return tensor;
  }
  [[nodiscard]] float value(Rank rank) const { return static_cast<float>(rank + 1 + step_ % 50); }
  std::vector<float> result(int64_t handle) {
    const Tensor& tensor = engine_.operations().find(handle)->tensors[0];
    const auto* const values = static_cast<const float*>(tensor.output);
    return {values, values + tensor.result_shape[0]};
  }

  Engine& engine_;
  Rank rank_, size_;
  int step_ = 0;
};

TEST_P(Plans, no_word_is_said_whatever_collectives_and_numbered_names_recur) {
  job_.run([&](Engine& engine, Rank rank) {
    Mixture mixture(engine, rank, ranks());
    EXPECT_GE(longest_silence(engine, 300, [&](int) { mixture.step(); }), 50);
    EXPECT_GT(engine.counters().planned_batches, 0);
  });
}

// The engines of all ranks, and the threads that start and wait. Heartbeats and records may allocate now and
// then, so most steps count. The queues of messages of TCP take a block of memory every few messages.
TEST_P(Plans, a_step_of_prepared_operations_allocates_nothing) {
  if (!RUEDA_COUNTS_ALLOCATIONS) GTEST_SKIP() << "a sanitizer allocates itself";
  constexpr size_t kTensors = 12;
  std::array<int64_t, 200> counts{};
  job_.run([&](Engine& engine, Rank rank) {
    std::vector<int64_t> prepared, handles;
    std::vector<std::vector<float>> data(kTensors, std::vector<float>(500, 0));
    for (size_t i = 0; i < kTensors; ++i) {
      const std::string name = "a gradient with a name of more than a few characters, " + std::to_string(i);
      Tensor tensor = make_tensor(Collective::kAllreduce, name, {500}, nullptr);
      prepared.push_back(engine.submissions().prepare(std::move(tensor)).value());
    }
    handles.reserve(kTensors);
    for (size_t step = 0; step < 100 + counts.size(); ++step) {
      const int64_t before = allocations();
      handles.clear();
      for (size_t i = 0; i < kTensors; ++i)
        handles.push_back(
            engine.submissions()
                .start({.number = prepared[i], .input = data[i].data(), .output = data[i].data()})
                .value());
      engine.submissions().wake();
      for (const int64_t handle : handles) {
        ASSERT_TRUE(engine.wait(handle, Deadline::after(20 * kSecond)).is_ok());
        engine.operations().release(handle);
      }
      if (rank == 0 && step >= 100) counts[step - 100] = allocations() - before;
    }
    EXPECT_GT(engine.counters().planned_batches, 0);
  });
  std::ranges::sort(counts);
  const size_t which = GetParam().transports == "tcp" ? counts.size() / 10 : counts.size() / 2;
  EXPECT_EQ(counts[which], 0) << testing::PrintToString(counts);
}

TEST_P(Plans, leave_a_timeline_in_which_every_tensor_waits_and_every_round_has_its_mark) {
  constexpr int kSteps = 30;
  const std::string path = (job_.dir() / "timeline.json").string();
  job_.run(
      [&](Engine& engine, Rank rank) {
        Trainer trainer(engine, rank, ranks());
        for (int i = 0; i < kSteps; ++i) trainer.step_one_by_one(model_);
        EXPECT_GT(engine.counters().planned_batches, 0);
      },
      {{"RUEDA_TIMELINE", path}, {"RUEDA_TIMELINE_MARK_CYCLES", "1"}});
  std::ifstream file(path);
  std::map<int, std::string> names;
  std::map<std::string, int> waits;  // of rank 1
  int marks = 0, bucket_waits = 0;
  for (const nlohmann::json& event : nlohmann::json::parse(file)) {
    const std::string name = event.value("name", "");
    if (name == "process_name") names[event.value("pid", 0)] = event["args"].value("name", "");
    if (name == "CYCLE_START") ++marks;
    const bool waits_for_bucket = name == "WAIT_FOR_BUCKET";  // nothing is negotiated in a plan
    if (event.value("tid", 0) != 1 || (name != "NEGOTIATE_ALLREDUCE" && !waits_for_bucket)) continue;
    ++waits[names[event.value("pid", 0)]];
    bucket_waits += static_cast<int>(waits_for_bucket);
  }
  // A wait that a plan's beginning or end divides is shown in two parts.
  for (size_t i = 0; i < model_.counts.size(); ++i) EXPECT_GE(waits["g" + std::to_string(i)], kSteps) << i;
  EXPECT_GE(marks, kSteps);
  EXPECT_GT(bucket_waits, 0);
}

TEST_P(Plans, are_not_made_when_switched_off) {
  job_.run(
      [&](Engine& engine, Rank rank) {
        Trainer trainer(engine, rank, ranks());
        for (int i = 0; i < 20; ++i) trainer.step(model_, in_order(model_));
        EXPECT_EQ(engine.counters().plans, 0);
      },
      {{"RUEDA_PLANS", "0"}});
}

TEST_P(Plans, a_rank_that_waits_within_a_bucket_departs_and_goes_on) {
  job_.run([&](Engine& engine, Rank rank) {
    Trainer trainer(engine, rank, ranks());
    for (int i = 0; i < 20; ++i) trainer.step(model_, in_order(model_));
    for (int i = 0; i < 3; ++i) trainer.step_one_by_one(model_);
    EXPECT_GE(engine.counters().departures, 1);
    for (int i = 0; i < 5; ++i) trainer.step(model_, in_order(model_));
  });
}

TEST_P(Plans, errors_after_a_plan_name_the_tensor_on_every_rank) {
  job_.run([&](Engine& engine, Rank rank) {
    Trainer trainer(engine, rank, ranks());
    for (int i = 0; i < 20; ++i) trainer.step(model_, in_order(model_));
    std::vector<float> data(64);
    Tensor tensor = make_tensor(Collective::kAllreduce, "g0", {rank == 0 ? 8 : 16}, data.data());
    const Status status = run_one(engine, std::move(tensor));
    EXPECT_EQ(status.code, Code::kMismatch);
    EXPECT_THAT(status.why, testing::HasSubstr("g0"));
    for (int i = 0; i < 5; ++i) trainer.step(model_, in_order(model_));
  });
}

TEST_P(Plans, joining_and_leaving_end_a_plan_in_good_order) {
  job_.run([&](Engine& engine, Rank rank) {
    Trainer trainer(engine, rank, ranks());
    for (int i = 0; i < 20; ++i) trainer.step(model_, in_order(model_));
    if (rank != 0) {  // rank 0 has one batch more: the others take part with zeros
      const Status status = run_one(engine, make_tensor(Collective::kJoin, "join", {}, nullptr));
      EXPECT_TRUE(status.is_ok()) << status.why;
    } else {
      std::vector<float> ones(70'000, 1);
      const Status status = run_one(engine, make_tensor(Collective::kAllreduce, "g1", {70'000}, ones.data()));
      EXPECT_TRUE(status.is_ok()) << status.why;
      EXPECT_EQ(ones.front(), 1.0F);
      EXPECT_TRUE(run_one(engine, make_tensor(Collective::kJoin, "join", {}, nullptr)).is_ok());
    }
    for (int i = 0; i < 20; ++i) trainer.step(model_, in_order(model_));
  });  // the engines leave while a plan is active
}

INSTANTIATE_TEST_SUITE_P(Worlds, Plans,
                         testing::Values(Wires{2, "shm,tcp"}, Wires{3, "shm,tcp"}, Wires{2, "tcp"},
                                         Wires{3, "tcp"}),
                         plan_worlds::name_of_world);

}  // namespace
}  // namespace rueda::runtime::plans_test
