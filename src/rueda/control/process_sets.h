// The process sets of the world and the collective requests that change them: the i-th request of each rank
// is matched with the i-th of every other.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/control/tensor.h"

namespace rueda::control {

class ProcessSets {
 public:
  ProcessSets(Rank world_size, std::map<int32_t, std::vector<Rank>> sets);

  // One rank asks for a change. kUnavailable when it has too many requests open.
  Status push(Rank from, Request request, Nanos now);
  // Removes one request of each rank once every rank has one, or once all ranks that have not joined do.
  std::optional<std::vector<Submission>> take_match(const std::vector<bool>& has_joined);

  // What all ranks asked for, or why it cannot be. The value is kSetAdded, or kSetRemoved before which the
  // caller fails the set's outstanding operations. Sets change only by apply().
  Result<Response> judge(const std::vector<Submission>& match) const;
  void apply(const Response& response);

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
    Request request;
    Nanos when = 0;
  };
  Status check_ranks(const std::vector<Rank>& ranks) const;
  Result<Response> judge_add(const Request& request) const;
  Result<Response> judge_remove(const Request& request) const;

  Rank world_size_;
  std::map<int32_t, std::vector<Rank>> sets_;  // without the world
  std::vector<std::deque<Queued>> queues_;     // by rank
  Rank waiting_ranks_ = 0;                     // ranks whose queue is not empty
};

}  // namespace rueda::control
