// Learned plans on whole engines: that they are learned, that nothing is said while they hold, and that every
// departure ends with the same results as negotiation.
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "engine_job.h"

namespace rueda::runtime::plans_test {
namespace {

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

struct Wires {
  Rank ranks = 2;
  std::string transports;
};

class Plans : public testing::TestWithParam<Wires> {
 protected:
  [[nodiscard]] static Rank ranks() { return GetParam().ranks; }
  Job job_{ranks(), GetParam().transports};
  const Model model_{.counts = {10, 70'000, 1, 300, 9000, 0}};
  const Model other_{.counts = {500, 20, 40'000}, .prefix = "h"};
};

TEST_P(Plans, no_word_is_said_once_steps_recur) {
  job_.run([&](Engine& engine, Rank rank) {
    Trainer trainer(engine, rank, ranks());
    // A machine so busy that a rank is away for a second ends a plan; then there is something to
    // say for a while.
    int silent = 0, longest = 0;
    int64_t frames = 0;
    for (int i = 0; i < 300; ++i) {
      trainer.step(model_, in_order(model_));
      const int64_t now = engine.counters().negotiation_messages;
      silent = std::exchange(frames, now) == now ? silent + 1 : 0;
      longest = std::max(longest, silent);
    }
    EXPECT_GE(longest, 50);
    EXPECT_GE(engine.counters().plans, 1);
    EXPECT_GT(engine.counters().planned_batches, 0);
  });
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
                         [](const auto& info) {
                           return std::to_string(info.param.ranks) + "ranks" +
                                  (info.param.transports == "tcp" ? "_tcp" : "");
                         });

}  // namespace
}  // namespace rueda::runtime::plans_test
