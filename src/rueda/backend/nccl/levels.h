// A hierarchical allreduce: NCCL reduces inside each host so that every member holds a part of the sums, the
// members with equal places in their hosts add these parts over the network, and NCCL gathers the parts
// inside each host. Pure.
//
// With S bytes on each of L members of a host and H hosts, a member sends 2 S (L-1)/L bytes inside its host,
// and S/L bytes take part in an allreduce of H members. Source of the idea: Jia et al., "Highly scalable deep
// learning training system with mixed-precision", 2018. It is Horovod's NCCLHierarchicalAllreduce.
//
// The elements need not divide evenly, and nothing is padded: the last member's part has what is left over,
// which moves in the same group of NCCL's functions by a reduction to it, and by a broadcast from it.
//
// Example: 8 members, ranks 0 to 3 on one host and 4 to 7 on another; 1,002 elements of float32. Inside each
// host, a ReduceScatter leaves 250 elements to each of the 4 members, and a Reduce gives the 2 that are left
// to the last one: member 1 of a host has the sums of elements 250 to 499, and member 3 those of 750 to
// 1,001. Ranks 1 and 5 are member 1 of their hosts, and add their 250 elements. An AllGather of 1,000 bytes
// from each member and a Broadcast of 8 bytes from the last one give all elements to all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rueda/backend/element_range.h"
#include "rueda/backend/nccl/lowering.h"
#include "rueda/base/types.h"
#include "rueda/schedule/topology.h"

namespace rueda::nccl {

struct Levels {
  Group inside;   // the members on my host
  Group between;  // those at my place in every host
};
struct LevelsOrReason {
  std::optional<Levels> levels;
  std::string why_not;  // a sentence; empty as well where there is only one level
};

// The same outcome on every member. topology: of the group's members.
LevelsOrReason levels_of(const Group& group, const schedule::Topology& topology);

// What member `me` of n on one host holds between the two functions of NCCL.
backend::ElementRange share_of(int64_t count, Rank me, Rank n);

// The steps inside a host, as steps_of(). The output holds my part after the first, and all after the second.
std::vector<Step> reducing_steps_of(const schedule::Spec& spec, const DeviceRun& run, Rank me, Rank n);
std::vector<Step> gathering_steps_of(const schedule::Spec& spec, const DeviceRun& run, Rank me, Rank n);

}  // namespace rueda::nccl
