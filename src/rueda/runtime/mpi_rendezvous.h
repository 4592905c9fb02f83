// How ranks that MPI has started, or that have an MPI communicator, learn their numbers and meet: through MPI
// itself. PMI, through which the ranks would meet otherwise, serves a process only once, and MPI needs it.
#pragma once

#include <cstdint>
#include <optional>

#include "rueda/base/clock.h"
#include "rueda/base/config.h"
#include "rueda/base/status.h"
#include "rueda/runtime/rendezvous_point.h"
#include "rueda/runtime/session.h"
#include "rueda/store/world.h"

namespace rueda::runtime {

struct MpiRendezvous {
  store::World world;  // meets in the space of MPI
  MpiWorld mpi;
};

struct MpiStart {
  const store::GetEnv& get_env;
  Deadline deadline;
};

// Fails if MPI sees other ranks than the launcher: then they belong to different MPIs, and each process would
// be alone. communicator: its ranks are the job, whatever the launcher says.
Result<MpiRendezvous> rendezvous_in_mpi(RendezvousPoint& point, store::World detected, const Config& config,
                                        std::optional<uint64_t> communicator, const MpiStart& start);

}  // namespace rueda::runtime
