// The checks of one request that need no other rank's: is its root a member, do its splits add up, does the
// operation exist for its element type. The engine makes them on the caller's thread when a tensor is
// submitted; the coordinator repeats them for every request that reaches it. What needs the requests of all
// ranks is in mismatch.h. Pure.
#pragma once

#include <vector>

#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/control/messages.h"

namespace rueda::control {

// Root, splits, scalar inputs, dtypes, op, membership, unknown set. members: the set's world ranks, or null
// when the set is unknown. The texts begin as Horovod's.
Status check_request(const TensorRequest& request, const std::vector<Rank>* members, Rank me,
                     Rank world_size);

}  // namespace rueda::control
