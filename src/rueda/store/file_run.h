// One run of a job in a directory that outlives it. Keys of an earlier run under the same directory and job
// must not be taken for those of this one, so every run has a directory of its own, and rank 0 keeps a lock
// in it: a directory whose lock nobody holds belongs to a run that is over.
#pragma once

#include <memory>
#include <string>

#include "rueda/base/clock.h"
#include "rueda/base/unique_fd.h"
#include "rueda/store/store.h"

namespace rueda::store {

// Ends when the process does, in whatever way.
struct FileLease {
  UniqueFd lock;
  std::string dir;  // of this run
};

struct FileRun {
  std::unique_ptr<Store> store;
  FileLease lease;  // rank 0 only
};
// Rank 0: opens a new run and removes those that are over.
Result<FileRun> begin_file_run(const std::string& dir, const std::string& job, Deadline deadline);
// Rank 0, once no rank needs the store any more: removes the run's directory. Harmless without a lease.
void end_file_run(FileLease& lease);
// Others: wait for the run that rank 0 holds.
Result<FileRun> join_file_run(const std::string& dir, const std::string& job, Deadline deadline);

}  // namespace rueda::store
