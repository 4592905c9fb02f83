// Reads all ranks in step. Of each rank three steps are in memory: a call may end after the step that began
// it, and on one rank a step earlier than on another.
#include "timeline/summarize.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "timeline/arrivals.h"
#include "timeline/lateness.h"
#include "timeline/link_uses.h"
#include "timeline/slow_links.h"
#include "timeline/step_rows.h"
#include "timeline/step_stream.h"
#include "timeline/transfers.h"
#include "timeline/typical.h"

namespace rueda::timeline {
namespace {

constexpr size_t kMaxStepRows = 2'048;  // beyond, steps are taken together
constexpr size_t kMaxKeptLengths = 1u << 20;
constexpr size_t kOfRanks = 10;  // one of so many may differ from what all do together

class Summarizer {
 public:
  Summarizer(const Job& job, const Division& division)
      : job_(job),
        division_(division),
        link_uses_(job.epoch),
        evidence_(job.ranks.size()),
        late_calls_(job.ranks.size()) {
    if (!job.ranks.empty()) {
      const RankFile& first = job.ranks.front();
      summary_.job = fmt::format("{:08x}", static_cast<uint32_t>(first.job));  // as in capi/observed.cc
      summary_.command = first.command;
      summary_.began_micros = first.began_micros;
    }
    summary_.epoch = job.epoch;
    summary_.size = job.size;
    summary_.files = static_cast<Rank>(job.ranks.size());
    summary_.has_steps = division.window == 0;
    summary_.knows_waits = says_when_it_waits(job);
    summary_.remarks = job.remarks;
    if (job.ends_early) summary_.remarks.push_back("Only steps that all ranks have finished are divided.");
    if (division.is_part)
      summary_.remarks.push_back(
          "Only the longest part without a gap is divided; `rueda timeline merge` draws all.");
    for (const RankFile& file : job.ranks) {
      RankSummary& rank = summary_.by_rank.emplace_back();
      rank.rank = file.rank;
      rank.host = file.host;
      summary_.plans = std::max(summary_.plans, file.plans);
      for (const auto& [why, count] : file.departures) summary_.departures[why] += count;
    }
  }

  Status run(Names& names) {
    std::vector<StepStream> streams;
    for (const RankFile& file : job_.ranks) {
      Result<StepStream> stream = StepStream::open(file, job_.epoch, division_, names);
      if (!stream.is_ok()) return stream.status();
      streams.push_back(std::move(stream).value());
    }
    Steps before, now = read(streams), next = now.empty() ? Steps() : read(streams);
    while (!now.empty()) {
      add_step(now, next);
      forget(before);
      before = std::move(now);
      now = std::move(next);
      next = now.empty() ? Steps() : read(streams);
    }
    forget(before);
    return Status::ok();
  }

  Summary finish(const Names& names);

 private:
  using Times = std::array<Nanos, kShares>;
  using Steps = std::vector<RankStep>;  // of all ranks in the order of job_.ranks; empty at the end

  Steps read(std::vector<StepStream>& streams) {
    Steps steps;
    for (StepStream& stream : streams) {
      std::optional<RankStep> step = stream.next();
      if (!step) return {};  // one rank did not finish this step
      steps.push_back(std::move(*step));
    }
    for (size_t i = 0; i < steps.size(); ++i) arrivals_.add(job_.ranks[i], steps[i]);
    link_uses_.add(job_, steps);
    if (!summary_.has_steps) late_calls_.add(steps);
    return steps;
  }
  void forget(const Steps& steps) {
    arrivals_.forget(steps);
    link_uses_.forget(job_, steps);
  }

  void add_step(const Steps& steps, const Steps& next);
  [[nodiscard]] RankStepTimes times_of(size_t i, const RankStep& step, const RankStep* next);
  void add_rank(size_t i, const Attribution& attribution);
  void note_waits(const std::vector<Times>& shares);
  void finish_ranks();

  const Job& job_;
  Division division_;
  Arrivals arrivals_;
  Transfers transfers_;
  LinkUses link_uses_;
  Summary summary_;
  Nanos hidden_ = 0, under_way_ = 0, attributed_ = 0, measured_ = 0;
  std::vector<double> lengths_;
  std::vector<RankEvidence> evidence_;           // by the order of the ranks
  StepSamples together_;                         // what the ranks computed that computed least
  LateCalls late_calls_;                         // where there are no steps
  std::unordered_map<Rank, double> waited_for_;  // in this step: for whom, by all ranks
};

RankStepTimes Summarizer::times_of(size_t i, const RankStep& step, const RankStep* next) {
  const RankFile& file = job_.ranks[i];
  RankStepTimes times;
  times.step = {step.begin, step.end};
  for (const auto& [begin, end] : step.inputs) times.inputs.push_back({begin, end});
  for (const RankStep* part : {&step, next}) {
    if (part == nullptr) continue;
    for (const auto& [begin, end] : part->waits)
      if (begin < step.end) times.blocked.push_back({begin, end});
    for (const Call& call : part->calls) {
      const Nanos begin = call.submitted != 0 ? call.submitted : call.ordered;
      if (begin >= step.end) continue;
      times.calls.push_back(arrivals_.times_of(call, file));
      if (call.is_waited_for || !summary_.knows_waits) times.blocked.push_back({begin, call.ended});
      if (part == &step) transfers_.add(call, times.calls.back(), job_.size);
    }
  }
  return times;
}

void Summarizer::add_rank(size_t i, const Attribution& attribution) {
  RankSummary& rank = summary_.by_rank[i];
  for (size_t s = 0; s < kShares; ++s) rank.shares[s] += static_cast<double>(attribution.shares[s]);
  for (const auto& [whom, time] : attribution.waiting_for) waited_for_[whom] += static_cast<double>(time);
  hidden_ += attribution.hidden;
  under_way_ += attribution.under_way;
}

// A rank that held up the others in few steps is another matter than a slow one.
void Summarizer::note_waits(const std::vector<Times>& shares) {
  const double others = std::max(1.0, static_cast<double>(summary_.by_rank.size()) - 1);
  std::vector<Nanos> computes;
  for (size_t i = 0; i < summary_.by_rank.size(); ++i) {
    RankSummary& rank = summary_.by_rank[i];
    const Nanos compute = shares[i][static_cast<size_t>(StepShare::kCompute)],
                input = shares[i][static_cast<size_t>(StepShare::kInput)];
    computes.push_back(compute);
    RankEvidence& evidence = evidence_[i];
    evidence.compute.add(static_cast<double>(compute));
    evidence.input.add(static_cast<double>(input));
    evidence.transfer.add(static_cast<double>(shares[i][static_cast<size_t>(StepShare::kTransfer)]));
    const auto at = waited_for_.find(rank.rank);
    evidence.samples.add({.step = summary_.steps,
                          .wait = at == waited_for_.end() ? 0 : static_cast<float>(at->second / others),
                          .input = static_cast<float>(input),
                          .compute = static_cast<float>(compute)});
    if (at == waited_for_.end()) continue;
    rank.cost += at->second / others;  // of all steps, until they are finished
    evidence.waits.add(summary_.steps, at->second / others);
    rank.worst.push_back({at->second / others, summary_.steps, input > compute});
    std::ranges::stable_sort(rank.worst, std::greater<>(), &LongWait::time);
    if (rank.worst.size() > kKeptWaits) rank.worst.pop_back();
  }
  waited_for_.clear();
  const auto least = computes.begin() + static_cast<std::ptrdiff_t>((computes.size() - 1) / kOfRanks);
  std::ranges::nth_element(computes, least);
  together_.add({.step = summary_.steps, .compute = static_cast<float>(*least)});
}

void Summarizer::add_step(const Steps& steps, const Steps& next) {
  StepSummary row{.first = summary_.steps};
  size_t critical = 0;
  std::vector<Times> shares;
  std::vector<std::vector<Interval>> transfers;
  for (size_t i = 0; i < steps.size(); ++i) {
    const RankStepTimes times = times_of(i, steps[i], next.empty() ? nullptr : &next[i]);
    Attribution attribution = attribute(times);
    add_rank(i, attribution);
    transfers.push_back(std::move(attribution.transfers));
    shares.push_back(attribution.shares);
    constexpr auto kWaits = static_cast<size_t>(StepShare::kWaiting);
    if (shares[i][kWaits] < shares[critical][kWaits]) critical = i;
    const auto length = static_cast<double>(steps[i].end - steps[i].begin);
    measured_ += steps[i].end - steps[i].begin;
    attributed_ += attribution.total() - attribution.of(StepShare::kOther);
    row.length += length / static_cast<double>(steps.size());
    for (size_t s = 0; s < kShares; ++s)
      row.shares[s] += static_cast<double>(attribution.shares[s]) / static_cast<double>(steps.size());
  }
  const std::array<const Steps*, 2> parts = {&steps, &next};
  const auto ranks = static_cast<double>(steps.size());
  for (const auto& [whom, time] : waited_for_) row.waiting_for.emplace_back(whom, time / ranks);
  for (const auto& [link, time] :
       link_uses_.add_step(job_, std::span(parts).first(next.empty() ? 1 : 2), transfers))
    row.transfer_on.emplace_back(link, static_cast<double>(time) / ranks);
  keep_largest(row.waiting_for);
  keep_largest(row.transfer_on);
  note_waits(shares);
  ++summary_.by_rank[critical].critical;
  evidence_[critical].decided.add(summary_.steps, 1);
  for (size_t s = 0; s < kShares; ++s) summary_.critical[s] += static_cast<double>(shares[critical][s]);
  ++summary_.steps;
  if (lengths_.size() < kMaxKeptLengths) lengths_.push_back(row.length);
  summary_.by_step.push_back(row);
  if (summary_.by_step.size() <= kMaxStepRows) return;
  std::vector<StepSummary> half;
  for (std::span<const StepSummary> left = summary_.by_step; !left.empty();) {
    const size_t two = std::min<size_t>(2, left.size());
    half.push_back(together(left.first(two)));
    left = left.subspan(two);
  }
  summary_.by_step = std::move(half);
}

// Adds up what each rank did, and why the others waited for it.
void Summarizer::finish_ranks() {
  const auto steps = static_cast<double>(summary_.steps);
  for (RankSummary& rank : summary_.by_rank) {
    for (double& share : rank.shares) share /= steps;
    rank.cost /= steps;
    rank.last = arrivals_.last_of(rank.rank);
  }
  judge_lateness(summary_, evidence_, late_calls_, median(lengths_));
}

Summary Summarizer::finish(const Names& names) {
  if (summary_.steps > 0) {
    finish_ranks();
    for (double& share : summary_.critical) share /= static_cast<double>(summary_.steps);
    for (const RankSummary& rank : summary_.by_rank)
      for (size_t s = 0; s < kShares; ++s)
        summary_.shares[s] += rank.shares[s] / static_cast<double>(summary_.by_rank.size());
    for (const double share : summary_.shares) summary_.step_length += share;
    forgive_jitter(summary_);
    judge_together(summary_, together_);
    std::ranges::sort(lengths_);
    summary_.step_p50 = lengths_[(lengths_.size() - 1) / 2];
    summary_.step_p95 = lengths_[(lengths_.size() - 1) * 95 / 100];
    summary_.unattributed =
        1 - static_cast<double>(attributed_) / static_cast<double>(std::max<Nanos>(measured_, 1));
    summary_.overlap = under_way_ == 0 ? 0 : static_cast<double>(hidden_) / static_cast<double>(under_way_);
  }
  for (const RankFile& file : job_.ranks)
    if (!file.clock.is_empty())
      summary_.clock_bound =
          std::max(summary_.clock_bound, static_cast<double>(file.clock.at(file.last).bound));
  link_uses_.finish(job_, summary_);
  judge_links(job_, summary_);
  transfers_.finish(names, static_cast<int64_t>(job_.ranks.size()), summary_);
  summary_.advice = advise(summary_);
  return std::move(summary_);
}

}  // namespace

Result<Summary> summarize(const Job& job, Names& names) {
  Summarizer summarizer(job, division_of(job));
  if (Status status = summarizer.run(names); !status.is_ok()) return status;
  return summarizer.finish(names);
}

}  // namespace rueda::timeline
