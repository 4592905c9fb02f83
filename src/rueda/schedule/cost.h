// The alpha-beta model behind the cost_us of every algorithm. A collective has a few phases; a phase is
// what one rank sends while the others do the same. Pure: the same values give the same double on every
// rank. Any thread.
#pragma once

#include <cstdint>

#include "rueda/schedule/step.h"
#include "rueda/schedule/topology.h"

namespace rueda::schedule {

struct Phase {
  double local_messages = 0;  // one rank sends to ranks of its host
  double local_bytes = 0;
  double remote_messages = 0;  // … and to other hosts
  double remote_bytes = 0;
  int32_t streams = 1;  // ranks of one host that send to other hosts at the same time and share its link
  int32_t senders = 1;  // hosts that send to one host at the same time
};

// How many times longer bytes take to a host if this many other hosts send to it at once.
double contention(int32_t senders);
double phase_us(const Topology& topology, const Phase& phase);
// One step of a pipeline around all ranks in rank order. Bytes pass at the speed of the slowest link, and the
// latencies of all links on the way add up.
double hop_us(const Topology& topology, double bytes);
// How long a rank is busy with a message, apart from moving its bytes.
double gap_us(const LinkCost& link);
double reduce_us(const Topology& topology, double bytes);
double copy_us(const Topology& topology, double bytes);

int32_t largest_host(const Topology& topology);               // ranks
double bytes_of(const Spec& spec, int64_t elements);          // as elements on the wire
double partial_bytes_of(const Spec& spec, int64_t elements);  // as accumulators on the wire

// Every rank sends `bytes` to each of the other ranks.
Phase all_to_all(const Topology& topology, double bytes);
// Every rank sends `messages` messages, `bytes` bytes in total, to one neighbour in rank order. One rank of
// each host sends to another host.
Phase neighbour(const Topology& topology, double messages, double bytes);
// Every rank sends one message of `bytes` to a rank that may be anywhere.
Phase anywhere(const Topology& topology, double bytes);

}  // namespace rueda::schedule
