// Which buckets a plan gets while a job trains, and what trials cost.
#include "rueda/control/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "control_seen_tensor.h"

namespace rueda::control::tuner_test {
namespace {

using seen_tensors::seen;
using testing::ElementsAre;

constexpr Nanos kUs = 1000;

BucketCosts line(double call_us, double us_per_byte) {
  return {.call_us = [=](int64_t bytes) { return call_us + us_per_byte * static_cast<double>(bytes); }};
}

// ---- the programme ----

TEST(BestBuckets, are_those_of_the_example) {
  const std::vector<ReadyTensor> tensors = {
      {.ready = 0, .bytes = 1}, {.ready = 5 * kUs, .bytes = 1}, {.ready = 50 * kUs, .bytes = 30}};
  const BucketProgramme best = best_buckets(tensors, line(10, 1));
  EXPECT_THAT(best.begins, ElementsAre(true, false, true));
  EXPECT_EQ(best.end, 90 * kUs);
  EXPECT_EQ(end_of(tensors, best.begins, line(10, 1)), 90 * kUs);
  EXPECT_EQ(end_of(tensors, {true, false, false}, line(10, 1)), 92 * kUs);
}

TEST(BestBuckets, hold_no_more_than_they_may) {
  const std::vector<ReadyTensor> tensors = {
      {.bytes = 4}, {.bytes = 4}, {.bytes = 4}, {.bytes = 9, .first = 3}};
  BucketCosts costs = line(100, 1);
  costs.most_bytes = 8;
  EXPECT_THAT(best_buckets(tensors, costs).begins, ElementsAre(true, true, false, true));
}

// Every way to cut is tried.
TEST(BestBuckets, end_as_early_as_those_found_by_trying_all) {
  std::mt19937 random(7);
  const auto draw = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
  for (int round = 0; round < 300; ++round) {
    std::vector<ReadyTensor> tensors;
    Nanos ready = 0;
    for (size_t i = 0, first = 0; i < 9; ++i) {
      if (draw(4) == 0) first = i;
      ready += draw(40) * kUs;
      tensors.push_back({.ready = ready, .bytes = 1 + draw(60), .first = first});
    }
    BucketCosts costs = line(draw(50), 0.1 * (1 + draw(20)));
    costs.packing_ns = draw(300);
    Nanos least = INT64_MAX;
    for (unsigned cuts = 0; cuts < 256; ++cuts) {
      std::vector<bool> begins = {true};
      size_t begin = 0;
      bool is_allowed = true;
      for (size_t i = 1; i < 9; ++i) {
        begins.push_back((cuts >> (i - 1) & 1) != 0);
        if (begins.back()) begin = i;
        is_allowed = is_allowed && tensors[i].first <= begin;
      }
      if (is_allowed) least = std::min(least, end_of(tensors, begins, costs));
    }
    EXPECT_EQ(best_buckets(tensors, costs).end, least) << "round " << round;
  }
}

// ---- one trial ----

Trial::State run(Trial& trial, const std::function<Nanos(bool is_other)>& period, int most = 1000) {
  for (int i = 0; i < most; ++i) {
    if (trial.state() == Trial::State::kBetter || trial.state() == Trial::State::kNotBetter) break;
    trial.passed(period(trial.state() == Trial::State::kOther));
  }
  return trial.state();
}

constexpr Trial::Options kShort{.passes = 10, .time = 0};

TEST(ATrial, takes_what_is_clearly_better_in_spite_of_noise_and_drift) {
  std::mt19937 random(1);
  std::normal_distribution<double> noise(0, 0.02);
  int better = 0, worse = 0;
  for (int round = 0; round < 100; ++round) {
    double speed = 1e6;
    const auto with_gain = [&](double gain) {
      return [&, gain](bool is_other) {
        speed *= 1.0005;  // each pass takes longer than the one before
        return static_cast<Nanos>(speed * (is_other ? 1 - gain : 1) * std::exp(noise(random)));
      };
    };
    Trial gains(kShort, std::vector<Nanos>(10, 1'000'000));
    better += run(gains, with_gain(0.04)) == Trial::State::kBetter ? 1 : 0;
    speed = 1e6;
    Trial equal(kShort, std::vector<Nanos>(10, 1'000'000));
    worse += run(equal, with_gain(0)) == Trial::State::kBetter ? 1 : 0;
  }
  EXPECT_GE(better, 95);
  EXPECT_LE(worse, 2) << "of what changes nothing";
}

TEST(ATrial, is_cut_short_by_what_is_clearly_worse) {
  Trial trial(kShort, std::vector<Nanos>(10, 1000));
  EXPECT_EQ(run(trial, [](bool is_other) { return is_other ? 1200 : 1000; }), Trial::State::kNotBetter);
  EXPECT_EQ(trial.loss(), 3 * 200);
}

// ---- the tuner ----

TEST(TensorsOfAPlan, are_large_but_for_those_that_are_far_smaller_than_the_mean) {
  const auto large_of = [](std::initializer_list<int64_t> elements) {
    std::vector<Bucket> plan(2);
    for (const int64_t count : elements) {
      Entry entry;
      entry.shape = {count};
      plan[plan[0].entries.size() < 2 ? 0 : 1].entries.push_back(std::move(entry));
    }
    return large_tensors(plan);
  };
  EXPECT_EQ(large_of({100'000, 1, 50'000, 0, 10'000}), (std::vector<bool>{true, false, true, false, true}));
  EXPECT_EQ(large_of({4, 4, 4}), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(large_of({0, 0, 0}), (std::vector<bool>{true, true, true})) << "barriers alone";
  EXPECT_EQ(large_of({}), std::vector<bool>());
}

// A job whose passes take 10 ms and what its buckets cost.
class Job : public testing::Test {
 protected:
  using Cost = std::function<Nanos(const std::vector<Bucket>&)>;

  void SetUp() override {
    for (int i = 0; i < 64; ++i) step_.push_back(seen("t" + std::to_string(i), 1 << 10, i * 10 * kUs));
    buckets_ = tuner_.learned(step_, {});
  }
  void train(int passes, const Cost& cost) {
    for (int i = 0; i < passes; ++i) {
      tuner_.pass_begins(now_);
      const Nanos period = 10 * kMillisecond + cost(buckets_);
      now_ += period;
      longest_ += period - 10 * kMillisecond;
      tuner_.exposed(kMillisecond);
      if (!tuner_.wants_change()) continue;
      buckets_ = tuner_.next();
      now_ += 100 * kUs;
      ++changes_;
    }
  }
  static Nanos each(const std::vector<Bucket>& buckets) { return std::ssize(buckets) * 100 * kUs; }

  Tuner::Options options_{.is_on = true,
                          .ways = {.costs = line(100, 0.0001)},
                          .settle = kSecond,
                          .trial = {.passes = 10, .time = 0}};
  Tuner tuner_{options_, {.bucket_bytes = 8 << 10}};
  std::vector<SeenTensor> step_;
  std::vector<Bucket> buckets_;
  Nanos now_ = 1, longest_ = 0;
  int changes_ = 0;
};

TEST_F(Job, gets_fewer_buckets_where_calls_are_dear) {
  EXPECT_EQ(buckets_.size(), 8u);
  train(20'000, each);
  EXPECT_LE(buckets_.size(), 2u);
  const std::vector<Tuner::News> news = tuner_.take_news();
  EXPECT_TRUE(std::ranges::any_of(news, [](const Tuner::News& one) { return one.is_better; }));
  std::string best;
  for (const Tuner::News& one : news) {
    if (one.is_better) best = one.tried.what;
    EXPECT_EQ(one.best.what, best.empty() ? one.best.what : best);
    EXPECT_EQ(one.bytes, 8 * (8 << 10));
    EXPECT_GT(one.best.fused_bytes, 0);
  }
  EXPECT_EQ(news.back().best.buckets, buckets_.size());
}

TEST_F(Job, keeps_its_buckets_where_all_others_are_worse_and_loses_little_more_than_a_hundredth) {
  const auto best_is_eight = [](const std::vector<Bucket>& buckets) {
    return std::abs(std::ssize(buckets) - 8) * 500 * kUs;
  };
  Nanos began = now_;
  for (int i = 0; i < 200; ++i) {
    train(100, best_is_eight);
    const Nanos worst_passes = 3 * 4 * kMillisecond;  // how bad it is was not known before
    EXPECT_LE(longest_ + changes_ * 100 * kUs, (now_ - began) / 100 + worst_passes) << i;
  }
  EXPECT_EQ(buckets_.size(), 8u);
  EXPECT_GE(changes_, 4) << "it has tried";
  const int changes = std::exchange(changes_, 0);
  train(2000, best_is_eight);
  EXPECT_EQ(changes_, 0) << "after " << changes << " changes nothing is left to try";
}

TEST_F(Job, says_no_gain_of_what_costs_too_much_before_it_can_be_compared) {
  train(300, [](const std::vector<Bucket>& buckets) { return buckets.size() == 8 ? 0 : 35 * kMillisecond; });
  const std::vector<Tuner::News> news = tuner_.take_news();
  ASSERT_FALSE(news.empty());
  EXPECT_FALSE(news.front().gain.has_value());
  EXPECT_FALSE(news.front().is_better);
  tuner_ = Tuner(options_, {.bucket_bytes = 8 << 10});
  buckets_ = tuner_.learned(step_, {});
  train(5000, each);
  EXPECT_GT(tuner_.take_news().front().gain, 0);
}

TEST_F(Job, keeps_what_was_best_when_its_passes_are_over_and_can_begin_with_it) {
  options_.most_passes = 5000;
  tuner_ = Tuner(options_, {.bucket_bytes = 8 << 10});
  buckets_ = tuner_.learned(step_, {});
  train(5010, each);
  EXPECT_LT(buckets_.size(), 8u);
  changes_ = 0;
  train(5000, each);
  EXPECT_EQ(changes_, 0);
  options_.first = tuner_.best();
  options_.is_on = false;
  Tuner another(options_, {.bucket_bytes = 8 << 10});
  EXPECT_EQ(another.learned(step_, {}).size(), buckets_.size());
}

TEST_F(Job, is_left_alone_where_communication_is_hidden) {
  for (int i = 0; i < 5000; ++i) {
    tuner_.pass_begins(now_ += 10 * kMillisecond);
    tuner_.exposed(50 * kUs);
    EXPECT_FALSE(tuner_.wants_change());
  }
}

TEST_F(Job, has_what_was_found_when_its_step_is_learned_again) {
  train(20'000, each);
  const size_t found = buckets_.size();
  tuner_.plan_over();
  std::ranges::rotate(step_, step_.begin() + 1);
  EXPECT_EQ(tuner_.learned(step_, {}).size(), found) << "in another order of the answers";
  step_.pop_back();
  EXPECT_EQ(tuner_.learned(step_, {}).size(), 8u) << "another step";
}

TEST_F(Job, tries_again_when_steps_have_become_longer) {
  const auto flat = [](Nanos more) { return [more](const std::vector<Bucket>&) { return more; }; };
  train(20'000, flat(0));
  changes_ = 0;
  train(1000, flat(0));
  EXPECT_EQ(changes_, 0);
  train(2000, flat(4 * kMillisecond));
  EXPECT_GT(changes_, 0);
}

TEST_F(Job, knows_the_buckets_of_steps_that_take_turns_and_overlooks_pauses) {
  train(20'000, each);
  const size_t found = buckets_.size();
  EXPECT_LE(found, 2u);
  for (int epoch = 0; epoch < 20; ++epoch) {
    tuner_.learned({seen("metric", 4, 0)}, {});  // evaluation
    buckets_ = tuner_.learned(step_, {});
    EXPECT_EQ(buckets_.size(), found);
    train(50, each);
    now_ += 60 * kSecond;  // a pause within the plan
    changes_ = 0;
    train(50, each);
    EXPECT_EQ(changes_, 0);
  }
}

// Numbers in names grow while a plan runs, and members of other sets may be anywhere.
TEST_F(Job, is_left_alone_where_names_have_numbers_or_calls_are_not_of_the_world) {
  const auto changes_with = [this](const std::function<void(SeenTensor&)>& change) {
    std::vector<SeenTensor> step = step_;
    change(step.back());
    buckets_ = tuner_.learned(step, {{1, {0, 1}}});
    changes_ = 0;
    train(5000, each);
    return changes_;
  };
  EXPECT_GT(changes_with([](SeenTensor&) {}), 0);
  EXPECT_EQ(changes_with([](SeenTensor& one) { one.bucket.entries[0].numbered_at = 1; }), 0);
  EXPECT_EQ(changes_with([](SeenTensor& one) { one.bucket.process_set = 1; }), 0);
}

TEST_F(Job, is_not_disturbed_for_ever_where_plans_end_within_a_trial) {
  train(200, each);
  for (int plan = 0; plan < 200; ++plan) {
    buckets_ = tuner_.learned(step_, {});
    train(40, each);
  }
  changes_ = 0;
  for (int plan = 0; plan < 20; ++plan) {
    buckets_ = tuner_.learned(step_, {});
    train(40, each);
  }
  EXPECT_EQ(changes_, 0);
}

// Tensors of another set stand between those that are computed to be in one bucket.
TEST(Buckets, are_no_larger_than_they_may_be_where_sets_take_turns) {
  std::vector<SeenTensor> step;
  for (int i = 0; i < 12; ++i) {
    step.push_back(seen("t" + std::to_string(i), 4 << 10, 0));
    step.back().bucket.process_set = 1 + i % 2;
  }
  const SetMembers sets = {{1, {0, 1}}, {2, {2, 3}}};
  const BucketLimits limits{.bucket_bytes = 8 << 10, .begins = std::vector<bool>(12, false)};
  for (const Bucket& bucket : in_buckets(step, sets, limits)) EXPECT_LE(bucket.entries.size(), 2u);
}

TEST(ATuner, leaves_alone_what_would_change_bits) {
  for (const bool may : {false, true}) {
    BucketLimits limits{.bucket_bytes = 8 << 10};
    limits.traits_of = [](int32_t, const Terms&) { return BackendTraits{.keeps_order = false}; };
    const Trial::Options trial{.passes = 1, .time = 0};
    Tuner tuner(
        {.is_on = true, .may_change_bits = may, .ways = {.costs = line(1, 0)}, .settle = 0, .trial = trial},
        limits);
    std::vector<SeenTensor> step;
    for (const char* name : {"a", "b", "c", "d"}) step.push_back(seen(name, 4 << 10, 0));
    EXPECT_EQ(tuner.learned(step, {}).size(), 2u);
    for (int i = 1; i < 1000 && !tuner.wants_change(); ++i) {
      tuner.pass_begins(i * kSecond);
      tuner.exposed(kSecond / 2);
    }
    EXPECT_EQ(tuner.wants_change(), may);
  }
}

TEST(ATuner, that_is_off_changes_nothing) {
  Tuner tuner({}, {.bucket_bytes = 8 << 10});
  EXPECT_EQ(tuner.learned({seen("a", 1 << 10, 0), seen("b", 1 << 10, 1)}, {}).size(), 1u);
  for (int i = 1; i < 1000; ++i) tuner.pass_begins(i * kSecond);
  EXPECT_FALSE(tuner.wants_change());
}

}  // namespace
}  // namespace rueda::control::tuner_test
