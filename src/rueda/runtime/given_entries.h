// What the ranks of a job have given to a table in the store so far, as one of them reads it
// (store/entries.h).
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/store/entries.h"
#include "rueda/store/store.h"

namespace rueda::runtime {

class GivenEntries {
 public:
  GivenEntries(store::Store& store, std::string table) : store_(store), table_(std::move(table)) {}

  // Where the entry of the lowest rank that is not known yet will be.
  [[nodiscard]] std::string key(Rank lowest) const { return store::entries_key(table_, lowest); }
  // What stands there.
  Status take(Rank lowest, const std::string& batch);
  [[nodiscard]] bool has(Rank rank) const { return known_.contains(rank); }
  [[nodiscard]] const std::string& entry(Rank rank) const { return known_.at(rank); }

  // Looks under the keys of known ranks that came in the batch of another one. A rank that came twice, as two
  // processes, may stand there before others.
  void look_again(Nanos slice);
  // As it stands in the store now. kUnavailable: it has given none.
  Result<std::string> newest(Rank rank, Deadline deadline);
  // The lowest ranks below `end` that have given none, as the store says now. slice: for one answer.
  std::vector<Rank> missing(size_t at_most, Rank end, Nanos slice);

 private:
  Result<std::string> read(Rank lowest, Deadline deadline);

  store::Store& store_;
  std::string table_;
  store::Entries known_;
  std::map<Rank, Rank> lowest_;  // of the batch of each rank that is known
};

}  // namespace rueda::runtime
