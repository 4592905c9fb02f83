// Learned plans with operations of several process sets on whole engines: nothing is said while they hold,
// and the results are right.
#include "plan_worlds.h"

namespace rueda::runtime::plans_sets_test {
namespace {

using plan_worlds::longest_silence;
using plan_worlds::Wires;

// Ranks exchange with the ranks beside them in sets of two, as the stages of a pipeline do, and each names
// its calls by a number of that set; then some of them add a gradient, and at last all of them. Set r + 1 is
// that of ranks r and r + 1, and the last set is that of ranks 0 and 2, or of rank 0 alone.
class Stage {
 public:
  Stage(Engine& engine, Rank rank, Rank size) : engine_(engine), rank_(rank), size_(size) {}

  static std::vector<std::vector<Rank>> sets(Rank size) {
    std::vector<std::vector<Rank>> sets;
    for (Rank rank = 0; size > 2 && rank + 1 < size; ++rank) sets.push_back({rank, rank + 1});
    sets.push_back({0});
    if (size > 3) sets.back().push_back(2);
    return sets;
  }

  void step() {
    ++step_;
    const int32_t last = size_ > 2 ? size_ : 1;
    for (int part = 0; part < 3 && size_ > 2; ++part) {
      if (rank_ > 0) exchange(rank_, rank_ - 1);
      if (rank_ + 1 < size_) exchange(rank_ + 1, rank_ + 1);
    }
    if (rank_ == 0 || (rank_ == 2 && size_ > 3))
      add("some", last, size_ > 3 ? value(0) + value(2) : value(0));
    float total = 0;
    for (Rank each = 0; each < size_; ++each) total += value(each);
    add("all", 0, total);
  }

 private:
  [[nodiscard]] float value(Rank rank) const { return static_cast<float>(rank + step_ % 9); }
  void exchange(int32_t set, Rank other) {
    std::vector<float> values(100, value(rank_));
    const std::string name = "call ";
    const int64_t number = ++numbers_[set];
    Tensor tensor = make_tensor(Collective::kAllreduce, name + std::to_string(number), {100}, values.data());
    tensor.request.numbered_at = static_cast<uint16_t>(name.size());
    tensor.request.process_set = set;
    ASSERT_TRUE(run_one(engine_, std::move(tensor)).is_ok());
    EXPECT_EQ(values, std::vector<float>(100, value(rank_) + value(other)));
  }
  void add(const std::string& name, int32_t set, float expected) {
    std::vector<float> values(5000, value(rank_));
    Tensor tensor = make_tensor(Collective::kAllreduce, name, {5000}, values.data());
    tensor.request.process_set = set;
    ASSERT_TRUE(run_one(engine_, std::move(tensor)).is_ok());
    EXPECT_EQ(values, std::vector<float>(5000, expected));
  }

  Engine& engine_;
  Rank rank_, size_;
  int step_ = 0;
  std::map<int32_t, int64_t> numbers_;
};

class PlansOfSets : public plan_worlds::PlansOnEngines {};

TEST_P(PlansOfSets, no_word_is_said_once_the_steps_of_a_pipeline_recur) {
  InitOptions options;
  options.process_sets = Stage::sets(ranks());
  job_.run(
      [&](Engine& engine, Rank rank) {
        Stage stage(engine, rank, ranks());
        EXPECT_GE(longest_silence(engine, 300, [&](int) { stage.step(); }), 50);
        EXPECT_GT(engine.counters().planned_batches, 0);
      },
      {}, options);
}

// Two barriers in a step have one name, and so has a metric that is asked for twice.
TEST_P(PlansOfSets, no_word_is_said_where_a_name_recurs_within_a_step) {
  job_.run([&](Engine& engine, Rank rank) {
    const auto step = [&](int number) {
      for (const float more : {1.0f, 2.0f}) {
        std::vector<float> values(10, static_cast<float>(number % 7 + rank) + more);
        Tensor metric = make_tensor(Collective::kAllreduce, "metric", {10}, values.data());
        metric.request.op = ReduceOp::kMin;
        ASSERT_TRUE(run_one(engine, std::move(metric)).is_ok());
        EXPECT_EQ(values, std::vector<float>(10, static_cast<float>(number % 7) + more));
        const Status met = run_one(engine, make_tensor(Collective::kBarrier, "barrier", {}, nullptr));
        ASSERT_TRUE(met.is_ok()) << met.why;
      }
      std::vector<float> values(300, 1);
      ASSERT_TRUE(run_one(engine, make_tensor(Collective::kAllreduce, "g", {300}, values.data())).is_ok());
    };
    EXPECT_GE(longest_silence(engine, 200, step), 50);
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, PlansOfSets,
                         testing::Values(Wires{2, "shm,tcp"}, Wires{3, "shm,tcp"}, Wires{4, "shm,tcp"},
                                         Wires{2, "tcp"}, Wires{3, "tcp"}, Wires{4, "tcp"},
                                         Wires{4, "shm,tcp", "aabb"}),
                         plan_worlds::name_of_world);

}  // namespace
}  // namespace rueda::runtime::plans_sets_test
