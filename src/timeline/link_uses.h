// How long ranks were blocked by each link, and how fast bytes moved on it, from the messages that ranks
// recorded while a timeline was on. One thread.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "timeline/link_times.h"
#include "timeline/messages.h"
#include "timeline/step_stream.h"
#include "timeline/summary.h"

namespace rueda::timeline {

class LinkUses {
 public:
  explicit LinkUses(Epoch epoch) : sent_(epoch) {}

  // What the ranks recorded in a step, before it is looked at.
  void add(const Job& job, const std::vector<RankStep>& steps);
  void forget(const Job& job, const std::vector<RankStep>& steps);
  // One step of all ranks. parts: the step and the next one, with the messages that end there. transfers:
  // when each rank was blocked in a transfer. Returns for how long links blocked all ranks together.
  std::map<LinkTimes::Link, Nanos> add_step(const Job& job,
                                            std::span<const std::vector<RankStep>* const> parts,
                                            const std::vector<std::vector<Interval>>& transfers);
  void finish(const Job& job, Summary& summary) const;

 private:
  struct Use {
    Nanos blocked = 0;
    int64_t bytes = 0;
    Nanos under_way = 0;  // of all messages together; those of several connections at once count each
  };
  void count(Rank rank, const RankStep& step);
  [[nodiscard]] Nanos began(Rank rank, const Span& message) const;

  SentTimes sent_;
  std::map<LinkTimes::Link, Use> uses_;
  Nanos off_links_ = 0;
  bool has_messages_ = false;
};

}  // namespace rueda::timeline
