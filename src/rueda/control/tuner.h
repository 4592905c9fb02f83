// Finds better buckets for a learned plan while the job trains. Rank 0 has the one of the job: it measures
// passes of the plan, and tries other ways to make and to run its buckets (bucket_ways.h), one after the
// other, against the one that it has (trial.h). None of them changes what is added in which order, so no bit
// changes. A trial begins only if all that trials have cost, and what the next block may cost, stay within a
// share of the time in which the job has trained. Pure; time comes in.
//
// What is tried differs in one thing from the best so far. From what is better it goes on in the same
// direction. When nothing near is better it rests, until steps become a fifth longer or shorter.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/control/bucket_ways.h"
#include "rueda/control/trial.h"

namespace rueda::control {

// The last times of something, without allocating. The median is of some pushes ago at most.
class RecentTimes {
 public:
  void push(Nanos time);
  void clear() { *this = {}; }
  [[nodiscard]] bool is_empty() const { return pushed_ == 0; }
  [[nodiscard]] bool is_full() const { return pushed_ >= kMost; }
  [[nodiscard]] Nanos median() const { return median_; }
  [[nodiscard]] std::vector<Nanos> all() const;

 private:
  static constexpr size_t kMost = 20, kLookEvery = 4;
  std::array<Nanos, kMost> times_{};
  size_t pushed_ = 0;
  Nanos median_ = 0;
};

class Tuner {
 public:
  struct Options {
    bool is_on = false;
    bool may_change_bits = false;  // also where sums depend on what is in their bucket
    BucketWays::Options ways = {};
    Nanos settle = 20 * kSecond;  // trains as it is for so long before the first trial
    double budget = 0.01;         // of the time, for trials
    Trial::Options trial = {};
    BucketWay first = {};     // what a step begins with
    int64_t most_passes = 0;  // then the best so far stays, and no more is tried; 0: no end
  };
  Tuner(Options options, BucketLimits limits)
      : options_(std::move(options)), traits_of_(limits.traits_of), ways_(options_.ways, std::move(limits)) {}

  // A step has been learned. Its buckets: those found last, if it is the step as before.
  std::vector<Bucket> learned(std::vector<SeenTensor> step, const SetMembers& sets);
  // A pass of the plan begins on rank 0.
  void pass_begins(Nanos now);
  // From the last tensor of a pass until its last bucket was there.
  void exposed(Nanos time);
  // Other buckets are wanted, so the plan is to end between two passes and to begin with next().
  [[nodiscard]] bool wants_change() const { return wanted_ != running_; }
  [[nodiscard]] const BucketWay& best() const { return known_.best; }
  std::vector<Bucket> next();
  // The plan has ended for another reason. What was tried is tried again when it is learned again.
  void plan_over();

  // Buckets of a step, for people.
  struct Choice {
    std::string what;         // "buckets up to 2 MiB", "computed buckets, a call as it is predicted"
    size_t buckets = 0;       // of a step
    int64_t fused_bytes = 0;  // up to which tensors are fused; of computed buckets: the largest fused one
  };
  // A trial has ended.
  struct News {
    Choice tried, best;          // best: what stays, after it
    std::optional<double> gain;  // of the median pair; none: the trial ended before there was one
    bool is_better = false;      // what was tried is the best now
    Nanos period = 0;            // of a pass before it
    int64_t bytes = 0;           // of a step
  };
  // What has happened since this was asked last.
  std::vector<News> take_news() { return std::exchange(news_, {}); }

 private:
  // What is known of a step.
  struct Known {
    std::vector<std::string> calls;  // which tell it from others
    BucketWay best;
    std::set<BucketWay> tried;  // beside best
    Nanos settled = 0;          // the period when nothing was left to try
  };

  void recall(std::vector<std::string> calls);
  [[nodiscard]] bool is_pause(Nanos period);
  [[nodiscard]] bool is_tunable() const;
  void lose(Nanos period);
  void watch();
  void follow_trial(Nanos period);
  void begin_trial();
  void end_trial(bool is_better);
  [[nodiscard]] bool is_within_budget(Nanos loss) const;
  [[nodiscard]] bool has_drifted() const;
  [[nodiscard]] Choice choice(const BucketWay& way, std::span<const Bucket> buckets) const;
  // A way to try next; its buckets are then other_buckets_.
  std::optional<BucketWay> find_candidate();

  Options options_;
  BackendTraitsLookup traits_of_;
  BucketWays ways_;             // of the step
  Known known_;                 // of the step
  std::deque<Known> others_;    // of other steps
  BucketWay running_, wanted_;  // known_.best or other_
  std::vector<Bucket> best_buckets_, other_buckets_;
  std::optional<Trial> trial_;  // of other_
  BucketWay other_;
  RecentTimes recent_;  // periods of passes with the best buckets
  int pauses_ = 0;      // in a row
  RecentTimes exposed_;
  int interrupted_ = 0;               // trials of other_, by the end of the plan
  Nanos pass_began_ = 0;              // 0: none since the plan began
  int64_t passes_ = 0;                // up to most_passes
  bool is_allowed_ = false;           // by the backends of the step
  bool is_first_ = true;              // the pass that has begun is the first one since buckets changed
  Nanos trained_ = 0, lost_ = 0;      // all passes; what trials and changes have cost
  Nanos change_cost_ = kMillisecond;  // of one change of buckets; measured later
  std::vector<News> news_;
};

}  // namespace rueda::control
