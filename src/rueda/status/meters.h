// What this process has done since it started: counters and histograms for metrics and for `rueda status`.
// They outlive an engine. Writers do a few relaxed additions; readers may see a count one behind another.
// Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>

#include "rueda/base/clock.h"
#include "rueda/base/trace_sink.h"
#include "rueda/base/types.h"

namespace rueda::status {

inline constexpr size_t kCollectives = 7;
inline constexpr size_t kBounds = 20;  // of a histogram

// Upper bounds double from 0.1 ms: 100 us, 200 us, …, 52 s. More is in the last bucket.
constexpr Nanos bound_of(size_t i) { return (100 * kMicrosecond) << i; }

class Histogram {
 public:
  void add(Nanos duration) {
    size_t i = 0;
    while (i < kBounds && duration > bound_of(i)) ++i;
    counts_[i].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(duration, std::memory_order_relaxed);
  }
  [[nodiscard]] int64_t count_in(size_t i) const { return counts_[i].load(std::memory_order_relaxed); }
  [[nodiscard]] Nanos sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<int64_t>, kBounds + 1> counts_{};
  std::atomic<Nanos> sum_{0};
};

using Count = std::atomic<int64_t>;

class Meters {
 public:
  // A call has ended on this rank.
  void called(const CallTrace& call);
  // A step has ended. A program may have several optimizers: steps of the first source count, and those of
  // another after it has gone.
  void stepped(Nanos now, int64_t source);
  void waited_for_input(Nanos duration) { input_ns.fetch_add(duration, std::memory_order_relaxed); }
  void waited_for_operation(Nanos duration) { blocked_ns.fetch_add(duration, std::memory_order_relaxed); }
  // Others have waited for this rank. Coordinator only, on one thread at a time.
  void waited_for(Rank rank, Nanos duration);

  // Of the last steps, as far as they are known: how many intervals, and when the first of them began.
  struct Recent {
    int64_t steps = 0;
    Nanos began = 0, last = 0;
  };
  [[nodiscard]] Recent recent_steps() const;

  std::array<Count, kCollectives> calls{}, bytes{}, tensors{};
  Count planned_calls{0};
  // Time that calls have spent, by cause; they overlap one another. others: until all ranks had come.
  Count others_ns{0}, queued_ns{0}, running_ns{0};
  Count input_ns{0}, blocked_ns{0};  // time that threads of the program have waited
  Count steps{0};
  Histogram step_time, call_time;  // of a call: from the last submission to its end
  // Ranks for which others have waited, as many as a small job has, each with a place of its own from when
  // that was a second in sum; what came before, and further ranks, are counted together.
  struct Late {
    std::atomic<Rank> rank{-1};
    Count waited_ns{0};
  };
  static constexpr size_t kLateRanks = 32;
  std::array<Late, kLateRanks> late_ranks{};
  Count other_late_ns{0};
  Count stalls{0};  // warnings, on the coordinator
  Count plans_begun{0}, plans_left{0};
  Count link_bytes{0}, link_bytes_per_s{0};  // sent to other hosts, at the last look

 private:
  static constexpr size_t kRecent = 16;
  bool counts(int64_t source);

  std::map<Rank, Nanos> not_yet_late_;  // of waited_for(); of those without a place

  Count source_{0};  // 0: none yet
  Count rival_{0};   // the first other source since the last mark of source_; 0: none
  Count others_{0};  // marks of others since then
  std::array<std::atomic<Nanos>, kRecent> recent_{};  // the ends of the last steps, as a ring
};

}  // namespace rueda::status
