// The process sets of the world and the collective requests that change them: the i-th request of each rank
// is matched with the i-th of every other.
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

  // One rank asks for a change. kUnavailable when it has too many requests open.
  Status push(Rank from, SetChange change, Nanos now);
  struct Asked {
    Rank rank = 0;
    SetChange change;
  };
  // Removes one request of each rank once every rank has one, or once all ranks that have not joined do.
  std::optional<std::vector<Asked>> take_match(const std::vector<bool>& has_joined);

  // What all ranks asked for, or why it cannot be. Before a set is removed, the caller fails its outstanding
  // operations. Sets change only by apply().
  using Verdict = std::variant<SetAdded, SetRemoved>;
  Result<Verdict> judge(const std::vector<Asked>& match) const;
  void apply(const SetAdded& added) { sets_[added.id] = added.ranks; }
  void apply(const SetRemoved& removed) { sets_.erase(removed.id); }

  // Ranks whose request is missing while others wait, and since when; empty when nobody waits.
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
