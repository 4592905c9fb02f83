// A broadcast along a tree, in chunks: a rank passes a chunk on to its children while the next one arrives.
#pragma once

#include <string_view>
#include <vector>

#include "rueda/schedule/blocks.h"
#include "rueda/schedule/builder.h"
#include "rueda/schedule/topology.h"

namespace rueda::schedule {

struct TreePlace {
  Rank parent = -1;            // -1: the root
  std::vector<Rank> children;  // in the order in which they are served
};

Schedule broadcast_along(const Spec& spec, const Chunks& chunks, const TreePlace& place,
                         std::string_view name);

// Adds the neighbours of ranks[my_index] in the binomial tree over `ranks`, whose root is ranks[0], to
// `place`. A place that has a parent keeps it.
void join_binomial(const std::vector<Rank>& ranks, int32_t my_index, TreePlace& place);

// All ranks, host by host: first the root, then the rest of its host, then the hosts after it.
std::vector<std::vector<Rank>> hosts_from(const Topology& topology, Rank root);

}  // namespace rueda::schedule
