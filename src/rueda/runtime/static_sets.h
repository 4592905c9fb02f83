// The process sets that ranks name in init: whether they agree, and which sets that makes. Pure.
#pragma once

#include <vector>

#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/runtime/peer_info.h"

namespace rueda::runtime {

// Checks one rank's own list: how many sets, ranks in range, none twice.
Status check_process_sets(const std::vector<std::vector<Rank>>& sets, Rank world_size);

// The sets that every rank registers, each once: those of the first entry of all ranks, by rank, then those
// of the second. Sets of an entry must be equal on all ranks, except where a rank names its own
// (PeerInfo::own_sets): then others may name their own as well, or none. The error names the entry and two
// ranks that differ.
Result<std::vector<std::vector<Rank>>> agreed_sets(const std::vector<PeerInfo>& all);

}  // namespace rueda::runtime
