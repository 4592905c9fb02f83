// Gives a connected session its backends: shared memory among the ranks of this host, and schedules over the
// data lanes for everything else.
#pragma once

#include "rueda/backend/local/host.h"
#include "rueda/runtime/engine.h"

namespace rueda::runtime {

// A forced algorithm that exists for no collective is a mistake; one that serves only some is not.
Status check_forced_algorithm(const std::string& name);

// host: null when no rank of this host shares memory with this one.
void attach_backends(Session& session, std::shared_ptr<backend::LocalHost> host);

}  // namespace rueda::runtime
