// One run of a job in a directory that outlives it. Keys of an earlier run in the same directory must not be
// mistaken for keys of this one. So every run has its own subdirectory with a lock that rank 0 holds. If
// nobody holds the lock, the run is over.
#pragma once

#include <memory>
#include <string>

#include "rueda/base/clock.h"
#include "rueda/base/unique_fd.h"
#include "rueda/store/interrupted.h"
#include "rueda/store/store.h"

namespace rueda::store {

// The lease ends with the process, however the process ends.
struct FileLease {
  UniqueFd lock;
  std::string dir;  // of this run
};

struct FileRun {
  std::unique_ptr<Store> store;
  FileLease lease;  // rank 0 only
  std::string dir;  // of this run
};
// Rank 0: opens a new run and removes those that are over.
Result<FileRun> begin_file_run(const std::string& dir, const std::string& job, Deadline deadline);
// Rank 0, when no rank needs the store any more: removes the directory of the run. No effect without a lease.
void end_file_run(FileLease& lease);
// Other ranks: waits for the run that rank 0 holds.
//
// If rank 0 has failed and ended before this process looked, its record tells why. Joining fails at once if
// that run failed after this process had begun: then this process was started for it. If it failed less than
// 10 s before, joining fails unless another rank 0 comes within 20 s. Older records do not count. Ages are
// compared by the clock of the file system, so clocks of hosts may differ.
Result<FileRun> join_file_run(const std::string& dir, const std::string& job, Deadline deadline,
                              const Interrupted& is_interrupted = {});

// Whether rank 0 of this run has ended: nobody holds its lock.
bool is_run_over(const std::string& run_dir);

// Rank 0: leaves a record for ranks that come when it has ended, or takes it back. No effect without a lease.
void note_failed_run(const FileLease& lease, const std::string& why);
void forget_failed_run(const FileLease& lease);

}  // namespace rueda::store
