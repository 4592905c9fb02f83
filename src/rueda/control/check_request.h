// Checks one request by itself: whether its root is a member, its splits add up, and its operation exists
// for its element type. The engine makes these checks on the caller's thread when a tensor is submitted;
// the coordinator repeats them for every request that it receives. mismatch.h compares the requests of
// all ranks. Pure.
#pragma once

#include <vector>

#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/control/messages.h"

namespace rueda::control {

// members: the world ranks of the process set, or null if the set does not exist.
Status check_request(const TensorRequest& request, const std::vector<Rank>* members, Rank me,
                     Rank world_size);

// The wire type with which the tensor travels, if `wanted` is asked for: none, if it is not for such tensors,
// or if the tensor is so small that a block's share of the work is not worth it. Where the members are on one
// host nothing is encoded; small tensors keep the type there, so that they share buckets with larger ones.
Wire effective_wire(const TensorRequest& request, Wire wanted, bool are_on_one_host);

}  // namespace rueda::control
