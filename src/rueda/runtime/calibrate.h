// Measures latency and bandwidth, so that algorithms are chosen for this cluster and not by a guess. This is
// also the barrier at the end of init: no rank starts before all ranks are connected with rank 0.
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
  MeasuredLink local;   // between rank 0 and the first other rank of its host
  MeasuredLink remote;  // between rank 0 and the first rank of another host
};

// Rank 0 measures and tells the others; all ranks return the same values.
Result<MeasuredLinks> calibrate(Links& links, Rank me, const std::vector<PeerInfo>& all, Deadline deadline,
                                const std::function<Status()>& interrupted);

}  // namespace rueda::runtime
