// In which order the tensors of a step travel, so that the last one is there as early as possible. One bucket
// travels after the other, so whatever the buckets cost, none of their orders ends earlier than that in which
// they are ready (1|r_j|C_max: earliest release date first, Lawler 1973). Pure.
//
// A plan starts in the order of the answers when it was learned. Mostly that is the same; but tensors that
// were fused have overtaken others then, and the answers waited for the slowest rank.
#pragma once

#include <vector>

#include "rueda/control/seen_tensor.h"

namespace rueda::control {

// The step is in the order of the answers. What was submitted after another tensor was answered may depend
// on its result, and stays behind it. Only allreduces change places, and none with anything else.
std::vector<SeenTensor> in_order_of_readiness(std::vector<SeenTensor> step);

}  // namespace rueda::control
