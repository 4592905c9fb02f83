// MPI in this process. It is initialised at most once, serves every epoch, and is finalised when the process
// ends, if it was initialised here. It outlives engines, because MPI cannot be initialised twice.
//
// MPI cannot cancel a collective. If an epoch ends while one is under way, the library is abandoned: we call
// it no more, keep the memory that it may still write, and refuse to use it for another epoch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rueda/backend/mpi/find.h"
#include "rueda/backend/mpi/library.h"
#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"

namespace rueda::backend::mpi {

// The ranks of a job, as MPI numbers them. A duplicate of the program's communicator, so that our messages
// never meet those of the program.
struct Team {
  Comm comm;
  Rank rank = 0, size = 1;
  std::string job;  // a public id, equal on all ranks of this team and on no others
};

// One thread at a time, and none while an engine uses the library.
class Process {
 public:
  // Initialises the library, unless the program has done so. MPI_Init waits for the other ranks as long as it
  // likes.
  static Result<std::shared_ptr<Process>> start(std::unique_ptr<Library> library, const GetEnv& get_env);

  [[nodiscard]] Library& library() { return *library_; }
  [[nodiscard]] const Library& library() const { return *library_; }
  [[nodiscard]] ThreadLevel thread_level() const { return thread_level_; }
  [[nodiscard]] bool was_initialized_here() const { return is_ours_; }

  // The team of a communicator; without one, of all ranks that MPI started. Collective. Calls with a
  // congruent communicator return the same team.
  Result<Team> join(std::optional<Handle> communicator, Deadline deadline);
  // The same ranks with a communicator of their own, for calls that another thread makes. Collective; of each
  // team there is one.
  Result<Team> twin_of(const Team& team, Deadline deadline);
  // Rank 0's bytes for all ranks. Collective.
  Status broadcast(const Team& team, std::span<std::byte> bytes, Deadline deadline);

  // Not ok once the library has been abandoned: the sentence for the next init.
  [[nodiscard]] Status usable() const;
  void abandon() { is_abandoned_ = true; }

  // When the process ends in good order, if MPI was initialised here: finalises it, which waits for the other
  // ranks as in every MPI program. Does nothing after abandon().
  void finish();

 private:
  Process(std::unique_ptr<Library> library, bool is_ours, ThreadLevel level)
      : library_(std::move(library)), is_ours_(is_ours), thread_level_(level) {}
  Status await(Request& request, Deadline deadline);
  Result<Comm> duplicate(Comm comm, Deadline deadline);

  std::unique_ptr<Library> library_;
  bool is_ours_;
  ThreadLevel thread_level_;
  bool is_abandoned_ = false;
  std::vector<Team> teams_;                     // one for each set of ranks that has met
  std::vector<std::pair<Handle, Team>> twins_;  // by the communicator of the team
};

}  // namespace rueda::backend::mpi
