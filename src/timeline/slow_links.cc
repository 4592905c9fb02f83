#include "timeline/slow_links.h"

#include <algorithm>

namespace rueda::timeline {
namespace {

constexpr Nanos kLeastWindow = 10 * kSecond;
constexpr Nanos kMostWindows = 48;
constexpr size_t kClearWindows = 2;  // for so many a link must be clearly slow

// Both ends of a link tell what they know. from, until: on the common clock; 0: all of it.
LinkTotals totals_of(const Job& job, Nanos from, Nanos until) {
  LinkTotals totals;
  for (const RankFile& file : job.ranks)
    for (const auto& [peer, series] : file.links) {
      if (peer < 0 || peer >= job.size || series.is_empty()) continue;
      const Nanos offset = file.aligned(series.end()) - series.end();
      const LinkTotal mine = until == 0 ? series.total() : series.between(from - offset, until - offset);
      totals[{file.rank, peer}] += {.bytes = mine.bytes, .busy = mine.busy, .pauses = mine.pauses};
      if (mine.awaited > 0)
        totals[{peer, file.rank}] += {.awaited_bytes = mine.awaited_bytes, .awaited = mine.awaited};
    }
  return totals;
}

using Ends = std::pair<Rank, Rank>;

bool is_slow_rank(const Summary& summary, Rank rank) {
  if (rank < 0) return false;
  const LinkSummary& link = summary.links[static_cast<size_t>(rank)];
  return link.is_slow_out || link.is_slow_in;
}

// What a slow rank exchanges with another one is slow for the same reason.
void leave_out_what_is_said(Summary& summary) {
  std::erase_if(summary.slow_pairs, [&](const SlowLink& pair) {
    return is_slow_rank(summary, pair.end) || is_slow_rank(summary, pair.other);
  });
}

// The same for a part of the job.
void leave_out_what_is_said_of_times(Summary& summary) {
  const std::vector<SlowTime> all = summary.slow_times;
  std::erase_if(summary.slow_times, [&](const SlowTime& one) {
    return one.link.other >= 0 && std::ranges::any_of(all, [&](const SlowTime& rank) {
             const bool is_end = rank.link.end == one.link.end || rank.link.end == one.link.other;
             return rank.link.other < 0 && is_end && rank.from < one.until && one.from < rank.until;
           });
  });
}

// A link that has been slow in some windows in a row.
struct Run {
  SlowTime time;
  Nanos began = 0;
  size_t windows = 0;
  bool is_clear = true;

  [[nodiscard]] bool is_certain(Nanos until) const {
    return until - began >= kIsSlowFor || (is_clear && windows >= kClearWindows);
  }
};

class Windows {
 public:
  Windows(Nanos begin, Summary& summary) : begin_(begin), summary_(summary) {}

  void add(const LinkTotals& totals, Nanos from) {
    std::map<Ends, Run> now;
    for (const SlowLink& link : find_slow_links(totals)) {
      const auto before = runs_.find(ends_of(link));
      Run run = before == runs_.end() ? Run{.time = {.link = link}, .began = from} : before->second;
      ++run.windows;
      run.is_clear = run.is_clear && link.speed < kClearlySlow * link.usual;
      run.time.link.sends = run.time.link.sends || link.sends;
      run.time.link.receives = run.time.link.receives || link.receives;
      if (link.speed < run.time.link.speed) {
        run.time.link.speed = link.speed;
        run.time.link.usual = link.usual;
      }
      now.emplace(ends_of(link), run);
    }
    for (const auto& [ends, run] : runs_)
      if (!now.contains(ends)) end(run, from);
    runs_ = std::move(now);
  }
  void finish(Nanos until) {
    for (const auto& [ends, run] : runs_) end(run, until);
  }

 private:
  // What is slow all the time is said already.
  void end(const Run& run, Nanos until) {
    const SlowLink& link = run.time.link;
    const auto is_same = [&](const SlowLink& other) { return ends_of(other) == ends_of(link); };
    const bool is_said = is_slow_rank(summary_, link.end) || is_slow_rank(summary_, link.other) ||
                         (link.other >= 0 && std::ranges::any_of(summary_.slow_pairs, is_same));
    if (is_said || !run.is_certain(until)) return;
    SlowTime& made = summary_.slow_times.emplace_back(run.time);
    made.from = static_cast<double>(run.began - begin_);
    made.until = static_cast<double>(until - begin_);
  }

  Nanos begin_;  // of the job
  Summary& summary_;
  std::map<Ends, Run> runs_;
};

void judge_windows(const Job& job, Summary& summary) {
  Nanos job_began = INT64_MAX, begin = INT64_MAX, end = INT64_MIN;
  for (const RankFile& file : job.ranks) {
    job_began = std::min(job_began, file.aligned(file.began));
    for (const auto& [peer, series] : file.links) {
      if (series.is_empty()) continue;
      begin = std::min(begin, file.aligned(series.begin()));
      end = std::max(end, file.aligned(series.end()));
    }
  }
  const Nanos window = std::max(kLeastWindow, (end - begin) / kMostWindows);
  Windows windows(job_began, summary);
  for (Nanos from = begin; from + window <= end; from += window)
    windows.add(totals_of(job, from, from + window), from);
  windows.finish(end);
}

}  // namespace

void judge_links(const Job& job, Summary& summary) {
  const LinkTotals totals = totals_of(job, 0, 0);
  if (totals.empty()) return;
  const std::map<Rank, double> out = fastest_out(totals), in = fastest_in(totals);
  const auto speed_of = [](const std::map<Rank, double>& speeds, Rank rank) {
    const auto at = speeds.find(rank);
    return at == speeds.end() ? 0 : at->second;
  };
  for (Rank rank = 0; rank < job.size; ++rank)
    summary.links.push_back({.rank = rank, .out_gbps = speed_of(out, rank), .in_gbps = speed_of(in, rank)});
  for (const SlowLink& slow : find_slow_links(totals)) {
    if (slow.other >= 0) {
      summary.slow_pairs.push_back(slow);
      continue;
    }
    LinkSummary& link = summary.links[static_cast<size_t>(slow.end)];
    link.is_slow_out = slow.sends;
    link.is_slow_in = slow.receives;
  }
  leave_out_what_is_said(summary);
  judge_windows(job, summary);
  leave_out_what_is_said_of_times(summary);
}

}  // namespace rueda::timeline
