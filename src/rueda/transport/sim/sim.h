// A network inside one thread, for testing the modules above: seeded, so that a failure can be run again.
// Bytes travel in pieces of random size and delay; channels overtake one another, bytes of one channel never
// do. Time is virtual: every progress() of any rank is one tick.
#pragma once

#include <cstdint>
#include <memory>

#include "rueda/base/status.h"
#include "rueda/transport/transport.h"

namespace rueda::transport {

struct SimOptions {
  Rank size = 2;
  uint64_t seed = 1;
  bool is_rendezvous =
      false;  // a send completes only when the peer has received it; else as soon as it is posted
  uint64_t max_delay_ticks = 8;  // each piece takes 1 .. max ticks
  size_t max_piece_bytes = 4096;
};

struct SimState;

// Single thread. Outlives its transports.
class SimNetwork {
 public:
  explicit SimNetwork(SimOptions options);
  ~SimNetwork();
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  std::unique_ptr<Transport> make(Rank rank);
  // The rank dies now: every channel to it is lost; what it sent and has not arrived is lost too.
  void drop(Rank rank, const Status& why);
  [[nodiscard]] uint64_t ticks() const;

 private:
  std::unique_ptr<SimState> state_;
};

}  // namespace rueda::transport
