#include "timeline/lateness.h"

#include <algorithm>
#include <utility>

namespace rueda::timeline {
namespace {

constexpr int64_t kManySteps = 10;  // among few, one step weighs much by chance
constexpr double kAlmostAll = 0.9;
constexpr double kMostSteps = 2.0 / 3;  // in healthy jobs of two ranks one decides up to 56 % of the steps
constexpr int64_t kRare = 20;           // one of so many steps
// Input is measured, so what is far from usual explains a wait. What computes is not known, and ranks that
// share cores all compute longer at times, but not at equal distances: so it must be regular, or to be said
// of few ranks that hold up all others.
constexpr double kFarFromUsualInput = 3, kFarFromUsualCompute = 1.5, kFarFromUsualTogether = 10;
constexpr int64_t kLeastInputs = 3, kLeastComputes = 5;
constexpr int64_t kLeastTogether = 4;  // three steps are equally far apart by chance now and then
constexpr int64_t kLeastDistance = 3;  // two ranks that take turns are late in every second step each
constexpr double kFarLess = 0.25;

// How many waits are as long as a step, if they are few and longer together than all others; else 0. Where
// steps are short, chance makes waits of a step as well: what is far shorter than the longest one is left
// out.
size_t few_of(const RankSummary& rank, int64_t steps, double step) {
  if (steps < kManySteps || rank.worst.empty()) return 0;
  const double least = std::max(step, kAsLong * rank.worst.front().time);
  size_t count = 0;
  double sum = 0;
  for (; count < rank.worst.size() && rank.worst[count].time >= least; ++count) sum += rank.worst[count].time;
  const bool are_few = count < kKeptWaits && std::cmp_less_equal(count, steps / kRare + 1);
  return are_few && sum > rank.cost * static_cast<double>(steps) / 2 ? count : 0;
}

// What each rank does more than the median rank in most steps.
std::vector<double> more_than_median(const std::vector<RankEvidence>& ranks, Typical RankEvidence::*what) {
  std::vector<double> more;
  for (const RankEvidence& rank : ranks) more.push_back((rank.*what).mean());
  const double usual = median(more);
  for (double& each : more) each -= usual;
  return more;
}

class Judge {
 public:
  Judge(Summary& summary, const std::vector<RankEvidence>& evidence, const LateCalls& calls, double step)
      : summary_(summary), evidence_(evidence), calls_(calls), step_(step) {
    for (const RankSummary& rank : summary.by_rank) all_waited_ += rank.cost;
  }

  void run() {
    const std::vector<double> compute = more_than_median(evidence_, &RankEvidence::compute),
                              input = more_than_median(evidence_, &RankEvidence::input),
                              transfer = more_than_median(evidence_, &RankEvidence::transfer);
    for (size_t i = 0; i < summary_.by_rank.size(); ++i) {
      RankSummary& rank = summary_.by_rank[i];
      rank.delay = std::max({compute[i], input[i], 0.0});
      if (rank.cost > 0) look_at_waits(i);
    }
    name_those_late_at_times();
    for (size_t i = 0; i < summary_.by_rank.size(); ++i) {
      RankSummary& rank = summary_.by_rank[i];
      if (rank.cost <= 0 || rank.why != Lateness::kNone) continue;
      const bool is_explained = rank.delay >= rank.cost / 4 && is_slow(i);
      const bool is_in_transfers =
          transfer[i] >= rank.cost / 2 && decides_most({.first = 0, .last = summary_.steps - 1}, i);
      rank.why = !is_explained && is_in_transfers ? Lateness::kTransfer
                 : !is_explained                  ? Lateness::kUnknown
                 : input[i] > compute[i]          ? Lateness::kInput
                                                  : Lateness::kCompute;
      if (rank.why == Lateness::kTransfer) rank.delay = transfer[i];
    }
  }

 private:
  // Whether they were few, or all in a part of the job.
  void look_at_waits(size_t i) {
    RankSummary& rank = summary_.by_rank[i];
    const size_t few = few_of(rank, summary_.steps, step_);
    if (few > 0) {
      rank.worst.resize(few);
      rank.why = Lateness::kRarely;
      return;
    }
    const StepRange most = evidence_[i].waits.shortest_with(kAlmostAll, summary_.steps);
    if (summary_.steps >= kManySteps && most.count() <= summary_.steps / 2) rank.late_in = most;
  }

  // What is found of computing alone is said of a rank if it is regular; or if it is to be said of half of
  // the ranks at most, and the others wait for hardly anybody else.
  void name_those_late_at_times() {
    std::vector<RankSummary*> doubtful;
    double rest = all_waited_, waited = 0;
    for (size_t i = 0; i < summary_.by_rank.size(); ++i) {
      RankSummary& rank = summary_.by_rank[i];
      if (rank.cost <= 0 || rank.why != Lateness::kNone) continue;
      const Lateness why = late_at_times(i);
      const bool is_certain = why == Lateness::kInputAtTimes || rank.at_times.every >= kLeastDistance;
      if (why == Lateness::kUnknown) continue;
      if (is_certain) {
        rank.why = why;
        rest -= rank.cost;
      } else {
        doubtful.push_back(&rank);
        waited += rank.cost;
      }
    }
    const bool are_few = 2 * doubtful.size() <= summary_.by_rank.size() && waited >= kMostSteps * rest &&
                         waited >= kFarLess * all_waited_;
    for (RankSummary* const rank : doubtful) {
      if (are_few)
        rank->why = Lateness::kComputeAtTimes;
      else
        rank->at_times = {};
    }
  }

  // Whether most of the waiting for a rank lies in some steps in which its input, or its computing, took far
  // longer than usual: kUnknown if not. Where there are no steps, in some calls.
  Lateness late_at_times(size_t i) {
    RankSummary& rank = summary_.by_rank[i];
    const double half = rank.cost * static_cast<double>(summary_.steps) / 2;
    const bool has_calls = !summary_.has_steps && calls_.is_late_to_few(i);
    const auto look = [&](const StepSamples& samples, int64_t all, bool are_calls) {
      const auto explains = [&](float StepSample::*what, double times_usual, int64_t least) {
        rank.at_times = samples.late_by(what, times_usual);
        rank.at_times.of = are_calls ? calls_.count() : summary_.steps;
        rank.at_times.are_calls = are_calls;
        return rank.at_times.waited >= half && rank.at_times.count >= least && rank.at_times.count <= all / 2;
      };
      if (explains(&StepSample::input, kFarFromUsualInput, kLeastInputs)) return Lateness::kInputAtTimes;
      if (explains(&StepSample::compute, kFarFromUsualCompute, kLeastComputes))
        return Lateness::kComputeAtTimes;
      rank.at_times = {};
      return Lateness::kUnknown;
    };
    const bool is_in_part = rank.late_in.count() > 0;
    if (has_calls && !is_in_part) {
      const Lateness why = look(calls_.samples_of(i), calls_.count(), true);
      if (why != Lateness::kUnknown) return why;
    }
    return look(evidence_[i].samples, is_in_part ? rank.late_in.count() : summary_.steps, false);
  }

  [[nodiscard]] bool decides_most(const StepRange& when, size_t i) const {
    return when.count() >= kManySteps &&
           evidence_[i].decided.sum(when) >= kMostSteps * static_cast<double>(when.count());
  }

  // Whether a rank does not only come last by chance, as each of some equal ranks does in its turn.
  [[nodiscard]] bool is_slow(size_t i) const {
    const RankSummary& rank = summary_.by_rank[i];
    if (!summary_.has_steps && rank.cost >= kMostSteps * all_waited_) return true;  // a window has many steps
    if (summary_.has_steps && summary_.steps < kManySteps) return false;
    if (rank.delay >= all_waited_ / 2) return true;  // two slow ranks decide half of the steps each
    const StepRange all{.first = 0, .last = summary_.steps - 1};
    return decides_most(rank.late_in.count() > 0 ? rank.late_in : all, i);
  }

  Summary& summary_;
  const std::vector<RankEvidence>& evidence_;
  const LateCalls& calls_;
  double step_ = 0;
  double all_waited_ = 0;  // of a step, for all ranks
};

}  // namespace

void judge_lateness(Summary& summary, const std::vector<RankEvidence>& evidence, const LateCalls& calls,
                    double step) {
  Judge(summary, evidence, calls, step).run();
}

// Ranks that share cores with other programs compute longer at once, too, but not at equal distances. Without
// these it must be longer by more than the turns of other programs take, and most of all computing.
void judge_together(Summary& summary, const StepSamples& together) {
  if (!summary.has_steps || summary.steps < kManySteps) return;
  LateSteps longer = together.far_longer(&StepSample::compute, kFarFromUsualInput);
  if (longer.every < kLeastDistance || longer.count < kLeastTogether) {
    longer = together.far_longer(&StepSample::compute, kFarFromUsualTogether);
    const double compute = summary.shares[static_cast<size_t>(StepShare::kCompute)];
    const bool is_most =
        longer.longer * static_cast<double>(longer.count) > compute * static_cast<double>(summary.steps) / 2;
    if (longer.count < kLeastComputes || !is_most) return;
  }
  if (longer.count * kLeastDistance > summary.steps) return;
  longer.of = summary.steps;
  summary.all_longer = std::move(longer);
}

double waited_in_turn(const Summary& summary) {
  double waited = 0;
  for (const RankSummary& rank : summary.by_rank)
    if (rank.why == Lateness::kUnknown) waited += rank.cost;
  const auto ranks = static_cast<double>(summary.by_rank.size());
  return waited * (ranks - 1) / ranks;  // cost: of a rank among the others
}

void forgive_jitter(Summary& summary) {
  double most = 0;
  for (const RankSummary& rank : summary.by_rank)
    if (rank.why == Lateness::kUnknown) most = std::max(most, rank.cost);
  const bool is_worth_it = waited_in_turn(summary) >= kWorthAdviceInTurn * summary.step_length;
  for (RankSummary& rank : summary.by_rank)
    if (rank.why == Lateness::kUnknown && (!is_worth_it || rank.cost < kFarLess * most))
      rank.why = Lateness::kNone;
}

}  // namespace rueda::timeline
