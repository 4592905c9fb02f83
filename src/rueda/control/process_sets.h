// The process sets of the world, and the requests that change them: the i-th request of each rank is matched
// with the i-th request of every other rank. Pure.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/control/messages.h"

namespace rueda::control {

class ProcessSets {
 public:
  ProcessSets(Rank world_size, std::map<int32_t, std::vector<Rank>> sets);

  // One rank asks for a change. kUnavailable if it has too many requests open.
  Status push(Rank from, SetChange change, Nanos now);
  struct Asked {
    Rank rank = 0;
    SetChange change;
  };
  // Removes and returns one request of each rank, once every rank that has not joined has one.
  std::optional<std::vector<Asked>> take_match(const std::vector<bool>& has_joined);

  // Returns the change that all ranks ask for, or why it is refused. Only apply() changes the sets. Before a
  // set is removed, the caller fails its outstanding operations.
  using Outcome = std::variant<SetAdded, SetRemoved>;
  Result<Outcome> judge(const std::vector<Asked>& match) const;
  void apply(const SetAdded& added) { sets_[added.id] = added.ranks; }
  void apply(const SetRemoved& removed) { sets_.erase(removed.id); }

  // The ranks whose request is missing while others wait, and since when these wait. Empty if no rank waits.
  struct Waiting {
    std::string name;
    Nanos since = 0;
    std::vector<Rank> missing;
  };
  std::optional<Waiting> waiting() const;

  const std::map<int32_t, std::vector<Rank>>& sets() const { return sets_; }

 private:
  struct Queued {
    SetChange change;
    Nanos when = 0;
  };
  Status check_ranks(const std::vector<Rank>& ranks) const;
  Result<SetAdded> judge(const AddSet& added) const;
  Result<SetRemoved> judge(const RemoveSet& removed) const;

  Rank world_size_;
  std::map<int32_t, std::vector<Rank>> sets_;  // without the world
  std::vector<std::deque<Queued>> queues_;     // by rank
  Rank waiting_ranks_ = 0;                     // ranks whose queue is not empty
};

}  // namespace rueda::control
