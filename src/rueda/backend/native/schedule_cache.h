// Chooses the schedule of a call, and keeps the prepared schedules of recent calls, because training repeats
// the same few hundred. The least recently used ones are dropped first. Each native backend has one cache.
// Engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "rueda/backend/native/prepared_schedule.h"
#include "rueda/base/status.h"
#include "rueda/schedule/topology.h"

namespace rueda::backend {

// Chooses an algorithm and builds the schedule of rank `me`.
using ScheduleMaker =
    std::function<Result<schedule::Schedule>(const schedule::Spec&, const schedule::Topology&, Rank me)>;

// The maker that jobs use. It takes the cheapest algorithm of the registry, or the forced one. is_bitwise:
// sums are taken in rank order over all hosts, as on a single host.
ScheduleMaker make_with_registry(std::string forced, bool is_bitwise = false);

class ScheduleCache {
 public:
  static constexpr size_t kMaxSchedules = 512;
  static constexpr size_t kMaxSteps = 1 << 20;  // of all schedules together, about 100 bytes each

  // Returns the schedule for `spec` in `group`. Calls `make` if the cache does not have it.
  Result<std::shared_ptr<const PreparedSchedule>> find_or_make(
      const Group& group, const schedule::Spec& spec,
      const std::function<Result<schedule::Schedule>()>& make);
  [[nodiscard]] size_t size() const { return entries_.size(); }
  [[nodiscard]] size_t steps() const { return steps_; }

 private:
  struct Entry {
    uint64_t hash = 0;
    Epoch epoch = 0;
    // Not the id of the group, because a new set may reuse the id of a removed one.
    std::vector<Rank> members;
    Rank me = -1;
    schedule::Spec spec;
    std::shared_ptr<const PreparedSchedule> prepared;
  };
  using Entries = std::list<Entry>;  // most recent first
  Entries::iterator find(uint64_t hash, const Group& group, const schedule::Spec& spec);
  void drop_oldest();

  Entries entries_;
  std::unordered_multimap<uint64_t, Entries::iterator> index_;
  size_t steps_ = 0;
};

}  // namespace rueda::backend
