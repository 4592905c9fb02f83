// Which rank came last to each call, from the records of all ranks. Keeps the calls of a few steps. One
// thread.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "timeline/attribution.h"
#include "timeline/job.h"
#include "timeline/step_stream.h"

namespace rueda::timeline {

class Arrivals {
 public:
  // The same call has the same key on all ranks.
  static uint64_t key_of(const Call& call) { return uint64_t{call.generation} << 48 ^ call.order; }

  void add(const RankFile& file, const RankStep& step);  // the file outlives this object
  // The calls of a step that no later step looks at.
  void forget(const std::vector<RankStep>& steps);

  // The call as its rank saw it, with what the others add. If the clocks of two hosts may differ by more than
  // a rank came later, it does not count as the last.
  [[nodiscard]] CallTimes times_of(const Call& call, const RankFile& file) const;
  // To how many calls a rank came last.
  [[nodiscard]] int64_t last_of(Rank rank) const;

 private:
  struct Last {
    Nanos submitted = 0, started = 0, first_started = INT64_MAX;
    const RankFile* submitted_by = nullptr;
    const RankFile* started_by = nullptr;
  };
  std::unordered_map<uint64_t, Last> calls_;
  std::unordered_map<Rank, int64_t> counts_;
};

}  // namespace rueda::timeline
