// Gives a connected session its backends: shared memory among the ranks of this host, and schedules over the
// data lanes for everything else.
#pragma once

#include "rueda/backend/local/host.h"
#include "rueda/base/config.h"
#include "rueda/runtime/session.h"

namespace rueda::runtime {

// A forced algorithm that exists for no collective is a mistake; one that serves only some is not. Nor may it
// break the order of sums that was asked for.
Status check_algorithm_settings(const Config& config);

// host: null when no rank of this host shares memory with this one.
void attach_backends(Session& session, std::shared_ptr<backend::LocalHost> host);

}  // namespace rueda::runtime
