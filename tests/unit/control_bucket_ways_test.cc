// The ways to make and to run the buckets of a step, and that a job finds the one that was planted.
#include "rueda/control/bucket_ways.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <random>

#include "control_seen_tensor.h"
#include "rueda/control/ready_order.h"
#include "rueda/control/tuner.h"

namespace rueda::control::bucket_ways_test {
namespace {

using seen_tensors::seen;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr Nanos kUs = 1000;

std::vector<std::string> names_of(const std::vector<Bucket>& buckets) {
  std::vector<std::string> names;
  for (const Bucket& bucket : buckets) {
    std::string& all = names.emplace_back();
    for (const Entry& entry : bucket.entries) all += entry.name;
  }
  return names;
}

// ---- the order ----

struct Job1 {
  Nanos ready = 0, cost = 0;
};

// When the last one is there, if one travels after the other.
Nanos end_of(const std::vector<Job1>& jobs, const std::vector<size_t>& order) {
  Nanos end = 0;
  for (const size_t i : order) end = std::max(end, jobs[i].ready) + jobs[i].cost;
  return end;
}

// All orders are tried.
TEST(TheOrderOfReadiness, ends_no_later_than_any_other) {
  std::mt19937 random(3);
  const auto draw = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
  for (int round = 0; round < 200; ++round) {
    std::vector<Job1> jobs(6);
    for (Job1& job : jobs) job = {.ready = draw(50), .cost = draw(20)};
    std::vector<size_t> order(jobs.size());
    std::iota(order.begin(), order.end(), 0);
    std::vector<size_t> by_ready = order;
    std::ranges::stable_sort(by_ready, {}, [&](size_t i) { return jobs[i].ready; });
    const Nanos end = end_of(jobs, by_ready);
    do EXPECT_LE(end, end_of(jobs, order)) << "round " << round;
    while (std::ranges::next_permutation(order).found);
  }
}

TEST(TheOrderOfReadiness, is_that_of_the_times_at_which_tensors_were_submitted) {
  std::vector<SeenTensor> step;
  for (const Nanos ready : {30, 10, 20}) step.push_back(seen(std::to_string(ready), 4, ready));
  std::vector<std::string> names;
  for (const SeenTensor& tensor : in_order_of_readiness(step)) names.push_back(tensor.entry().name);
  EXPECT_THAT(names, ElementsAre("10", "20", "30"));
}

// Steps of a job whose tensors wait for earlier ones at random. Slow ranks make answers late.
std::vector<SeenTensor> random_step(std::mt19937& random) {
  const auto draw = [&](uint64_t most) { return std::uniform_int_distribution<uint64_t>(0, most)(random); };
  std::vector<SeenTensor> step;
  uint64_t clock = 0;
  std::vector<SeenTensor> waiting;
  for (int i = 0; i < 20 || !waiting.empty();) {
    clock += 1 + draw(3);
    if (i < 20 && draw(1) == 0) {
      waiting.push_back(seen(std::to_string(i++) + " ", 4 << draw(6), static_cast<Nanos>(clock)));
      waiting.back().seen = clock;
      if (draw(7) == 0) waiting.back().bucket.what = Collective::kBroadcast;
    } else if (!waiting.empty()) {
      const size_t at = draw(waiting.size() - 1);
      waiting[at].started = clock;
      step.push_back(std::move(waiting[at]));
      waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  return step;
}

TEST(TheOrderOfReadiness, lets_nothing_overtake_what_it_may_depend_on) {
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    const std::vector<SeenTensor> step = random_step(random);
    const std::vector<SeenTensor> sorted = in_order_of_readiness(step);
    ASSERT_EQ(sorted.size(), step.size());
    const auto place = [&](const SeenTensor& one) {
      return std::ranges::find(sorted, one.entry().name,
                               [](const SeenTensor& other) { return other.entry().name; }) -
             sorted.begin();
    };
    for (size_t i = 0; i < step.size(); ++i)
      for (size_t j = i + 1; j < step.size(); ++j) {
        const bool depends = step[j].seen > step[i].started;
        const bool is_fixed =
            step[i].bucket.what != Collective::kAllreduce || step[j].bucket.what != Collective::kAllreduce;
        if (depends || is_fixed) {
          EXPECT_LT(place(step[i]), place(step[j])) << "round " << round;
        }
      }
  }
}

// A rank submits a tensor only after the results on which it depends. So no bucket may wait for a tensor that
// depends on a bucket behind it, or on its own.
TEST(Buckets, of_any_way_can_run_one_after_the_other) {
  std::mt19937 random(5);
  const auto draw = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
  for (int round = 0; round < 500; ++round) {
    const std::vector<SeenTensor> step = random_step(random);
    BucketWays ways(
        {.costs = {.call_us = [](int64_t bytes) { return 3 + 0.1 * static_cast<double>(bytes); }}},
        {.bucket_bytes = 8 << draw(5)});
    ways.set_step(step, {});
    const BucketWay way{
        .is_computed = draw(1) == 1, .alone_bytes = draw(1) * (8 << draw(5)), .is_by_ready = draw(1) == 1};
    std::map<std::string, size_t> bucket_of;
    const std::vector<Bucket> buckets = ways.buckets_of(way);
    for (size_t i = 0; i < buckets.size(); ++i)
      for (const Entry& entry : buckets[i].entries) bucket_of[entry.name] = i;
    ASSERT_EQ(bucket_of.size(), step.size());
    for (const SeenTensor& one : step)
      for (const SeenTensor& other : step)
        if (one.seen > other.started) {
          EXPECT_GT(bucket_of[one.entry().name], bucket_of[other.entry().name]) << "round " << round;
        }
  }
}

// ---- what travels alone ----

TEST(LargeTensors, travel_alone_from_the_size_on_that_a_way_has) {
  std::vector<SeenTensor> step;
  for (const auto& [name, bytes] : std::initializer_list<std::pair<const char*, int64_t>>{
           {"a", 64}, {"B", 512}, {"c", 64}, {"d", 64}, {"E", 256}, {"f", 64}})
    step.push_back(seen(name, bytes, 0));
  BucketWays ways({.costs = {.call_us = [](int64_t) { return 100.0; }}}, {.bucket_bytes = 4096});
  ways.set_step(step, {});
  EXPECT_THAT(names_of(ways.buckets_of({})), ElementsAre("aBcdEf"));
  EXPECT_THAT(names_of(ways.buckets_of({.alone_bytes = 512})), ElementsAre("B", "acdEf"));
  EXPECT_THAT(names_of(ways.buckets_of({.alone_bytes = 256})), ElementsAre("B", "E", "acdf"));
  EXPECT_THAT(names_of(ways.buckets_of({.is_computed = true, .alone_bytes = 256})),
              ElementsAre("a", "B", "cd", "E", "f"));
}

TEST(LargeTensors, are_first_tried_alone_where_a_copy_takes_as_long_as_a_call) {
  BucketLimits limits{.bucket_bytes = 16 << 20};
  limits.traits_of = [](int32_t, const Terms&) { return BackendTraits{.alone_bytes = 1 << 20}; };
  BucketWays ways({.costs = {.call_us = [](int64_t) { return 200.0; }, .packing_ns = 0.35}}, limits);
  ways.set_step({seen("a", 4, 0)}, {});
  EXPECT_THAT(ways.next_to({}, {}), Contains(BucketWay{.alone_bytes = 512 << 10}));
}

// ---- a job with something planted ----

constexpr uint8_t kOther = 7;

// One bucket travels after the other, and a pass ends with the last.
class PlantedJob : public testing::Test {
 protected:
  using Cost = std::function<Nanos(const Bucket&)>;  // in truth

  void begin(std::vector<SeenTensor> step, Cost cost, int64_t bucket_bytes, bool obeys = true) {
    cost_ = std::move(cost);
    BucketLimits limits{.bucket_bytes = bucket_bytes};
    limits.traits_of = [obeys](int32_t, const Terms&) {
      return BackendTraits{.alone_bytes = 1 << 20, .obeys_tuning = obeys};
    };
    const auto call_us = [](double us_per_kib) {
      return [=](int64_t bytes) { return 100 + us_per_kib * static_cast<double>(bytes >> 10); };
    };
    tuner_.emplace(
        Tuner::Options{.is_on = true,
                       .ways = {.costs = {.call_us = call_us(1), .packing_ns = 0.35},
                                .algorithms = {{.number = kOther, .name = "other", .call_us = call_us(1.5)}},
                                .chunk_bytes = 256 << 10},
                       .settle = kSecond,
                       .trial = {.passes = 10, .time = 0}},
        limits);
    step_ = step;
    run_with(tuner_->learned(std::move(step), {}));
  }
  void run_with(std::vector<Bucket> buckets) {
    buckets_ = std::move(buckets);
    period_ = period();
    for (const Bucket& bucket : buckets_) seen_tunings_.insert(bucket.tuning);
  }

  [[nodiscard]] Nanos period() const {
    Nanos end = 0;
    for (const Bucket& bucket : buckets_) {
      for (const Entry& entry : bucket.entries)
        end = std::max(end, std::ranges::find(step_, entry.name, [](const SeenTensor& one) {
                              return one.entry().name;
                            })->ready);
      end += cost_(bucket);
    }
    return end;
  }

  // What was kept, for people.
  std::vector<std::string> train(int passes) {
    std::vector<std::string> kept;
    for (int i = 0; i < passes; ++i) {
      tuner_->pass_begins(now_);
      now_ += period_;
      tuner_->exposed(period_ / 2);
      if (tuner_->wants_change()) run_with(tuner_->next());
      for (const Tuner::News& news : tuner_->take_news())
        if (news.is_better) kept.push_back(news.tried.what);
    }
    return kept;
  }

  static std::vector<SeenTensor> even_step() {
    std::vector<SeenTensor> step;
    for (int i = 0; i < 32; ++i) step.push_back(seen("t" + std::to_string(i), 256 << 10, i * 100 * kUs));
    return step;
  }
  static int64_t kib_of(const Bucket& bucket) {
    int64_t sum = 0;
    for (const Entry& entry : bucket.entries) sum += entry.shape[0];
    return sum * 4 >> 10;
  }

  Cost cost_;
  std::optional<Tuner> tuner_;
  std::vector<SeenTensor> step_;
  std::vector<Bucket> buckets_;
  std::set<CallTuning> seen_tunings_;
  Nanos now_ = 1, period_ = 0;
};

TEST_F(PlantedJob, finds_a_better_chunk) {
  begin(
      even_step(),
      [](const Bucket& bucket) {
        const int64_t chunk = bucket.tuning.chunk_bytes == 0 ? 256 << 10 : bucket.tuning.chunk_bytes;
        return (100 + kib_of(bucket) * (chunk > 64 << 10 ? 3 : 2)) * kUs;
      },
      1 << 20);
  EXPECT_THAT(train(20'000), Contains(HasSubstr("chunks of 64 KiB")));
  for (const Bucket& bucket : buckets_) EXPECT_EQ(bucket.tuning.chunk_bytes, 64 << 10);
}

TEST_F(PlantedJob, finds_an_algorithm_that_is_better_than_predicted) {
  begin(
      even_step(),
      [](const Bucket& bucket) {
        return (100 + kib_of(bucket) * (bucket.tuning.algorithm == kOther ? 2 : 3)) * kUs;
      },
      1 << 20);
  EXPECT_THAT(train(20'000), Contains(HasSubstr("; other")));
  for (const Bucket& bucket : buckets_) EXPECT_EQ(bucket.tuning.algorithm, kOther);
}

TEST_F(PlantedJob, keeps_what_it_has_where_the_other_algorithm_is_as_predicted) {
  const Cost as_predicted = [](const Bucket& bucket) {
    return (100 + kib_of(bucket) * (bucket.tuning.algorithm == kOther ? 3 : 2)) * kUs;
  };
  begin(even_step(), as_predicted, 1 << 20);
  train(20'000);
  EXPECT_THAT(seen_tunings_, Contains(CallTuning{.algorithm = kOther})) << "it was tried";
  for (const Bucket& bucket : buckets_) EXPECT_EQ(bucket.tuning.algorithm, 0);
}

TEST_F(PlantedJob, says_nothing_to_backends_that_would_not_listen) {
  begin(
      even_step(), [](const Bucket& bucket) { return (100 + kib_of(bucket) * 3) * kUs; }, 1 << 20, false);
  train(20'000);
  EXPECT_THAT(seen_tunings_, ElementsAre(CallTuning{}));
}

// What does not fit into the cache is copied at a fifth of the speed.
TEST_F(PlantedJob, finds_the_size_from_which_tensors_are_better_alone) {
  std::vector<SeenTensor> step;
  for (int i = 0; i < 48; ++i)
    step.push_back(seen("t" + std::to_string(i), (i % 3 == 0 ? 512 : 64) << 10, i * 20 * kUs));
  begin(
      step,
      [](const Bucket& bucket) {
        Nanos us = 300 + kib_of(bucket);
        for (const Entry& entry : bucket.entries)
          if (bucket.entries.size() > 1 && entry.shape[0] == 128 << 10) us += 4 * 512;
        return us * kUs;
      },
      1 << 20);
  EXPECT_THAT(train(20'000), Contains(HasSubstr(" on alone")));
  for (const Bucket& bucket : buckets_) EXPECT_EQ(bucket.entries.size() == 1, kib_of(bucket) == 512);
}

// The answers came in another order than the tensors.
TEST_F(PlantedJob, finds_the_order_in_which_tensors_are_ready) {
  std::vector<SeenTensor> step = even_step();
  std::swap(step[0], step[31]);
  begin(
      step, [](const Bucket& bucket) { return (100 + kib_of(bucket)) * kUs; }, 1 << 20);
  EXPECT_THAT(train(20'000), Contains(HasSubstr("in the order in which tensors were ready")));
  EXPECT_EQ(buckets_.front().entries.front().name, "t0");
}

}  // namespace
}  // namespace rueda::control::bucket_ways_test
