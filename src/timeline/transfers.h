// Adds up calls with the same tensors. The number of different ones is bounded. One thread.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "timeline/attribution.h"
#include "timeline/records.h"
#include "timeline/summary.h"

namespace rueda::timeline {

// Of bytes at a rank's input, how many pass each rank's link in the best algorithm, as in nccl-tests; 0 where
// this is not known.
double bus_factor(Collective what, Rank ranks);

class Transfers {
 public:
  void add(const Call& call, const CallTimes& times, Rank world);
  void finish(const Names& names, int64_t files, Summary& summary) const;

 private:
  struct Key {
    uint32_t name = 0;
    int32_t tensors = 0;
    int64_t bytes = 0;
    Collective what = Collective::kAllreduce;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const;
  };
  struct Total {
    uint32_t backend = 0;
    int64_t calls = 0;
    Nanos transfer = 0, waiting = 0;
    Rank ranks = 1;
  };

  std::unordered_map<Key, Total, Hash> totals_;
  int64_t calls_ = 0, planned_ = 0, bytes_ = 0;
  double bus_bytes_ = 0, bus_time_ = 0;
};

}  // namespace rueda::timeline
