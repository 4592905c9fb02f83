// A communicator for each process set, made when its first call starts. MPI_Comm_create_group blocks until
// all members have come, so a thread of its own calls it. Meanwhile nobody else calls MPI, which is all that
// MPI_THREAD_SERIALIZED asks for; the library goes on with the operations under way by itself.
//
// No deadlock: every member makes its communicators in the global order of calls, and the calls before are
// started already. Engine thread only.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "rueda/backend/mpi/process.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"

namespace rueda::backend::mpi {

class Communicators {
 public:
  Communicators(std::shared_ptr<Process> process, Team team);
  ~Communicators();  // frees them, unless the library was abandoned
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  // The communicator of this group; empty while it is made.
  Result<std::optional<Comm>> find(const Group& group);
  // Whether a thread is inside MPI, so that nobody else may call it.
  [[nodiscard]] bool is_making() const;

 private:
  struct Making;  // shared with the thread, which may outlive this

  std::shared_ptr<Process> process_;
  Team team_;
  std::map<std::vector<Rank>, Comm> known_;  // by members
  std::shared_ptr<Making> making_;
};

}  // namespace rueda::backend::mpi
