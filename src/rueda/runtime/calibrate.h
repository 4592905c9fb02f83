// Measures what a byte costs, so that the choice of algorithms rests on this cluster and not on a guess. It
// doubles as the barrier at the end of init: nobody starts before everybody is connected.
#pragma once

#include <functional>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/runtime/links.h"
#include "rueda/runtime/peer_info.h"

namespace rueda::runtime {

struct MeasuredLink {
  double latency_us = 0;  // half a round trip of 8 bytes; 0 = no such link
  double gbps = 0;        // gigabytes per second of one stream
};

struct MeasuredLinks {
  MeasuredLink local;   // rank 0 and the first other rank of its host
  MeasuredLink remote;  // rank 0 and the first rank of another host
};

// Rank 0 measures and tells everybody; all ranks return the same values.
Result<MeasuredLinks> calibrate(Links& links, Rank me, const std::vector<PeerInfo>& all, Deadline deadline,
                                const std::function<Status()>& interrupted);

}  // namespace rueda::runtime
