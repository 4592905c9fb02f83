// A network inside one thread, for testing the modules above. It is seeded, so a failure can be repeated.
// Bytes travel in pieces of random size and delay. Channels overtake one another, but the bytes of one
// channel keep their order. Time is virtual: every progress() of any rank is one tick.
#pragma once

#include <cstdint>
#include <memory>

#include "rueda/base/status.h"
#include "rueda/transport/transport.h"

namespace rueda::transport {

struct SimOptions {
  Rank size = 2;
  uint64_t seed = 1;
  // Whether a send completes only when the peer has received it. Otherwise it completes once it is posted.
  bool is_rendezvous = false;
  uint64_t max_delay_ticks = 8;  // each piece takes 1 to this many ticks
  size_t max_piece_bytes = 4096;
};

struct SimState;

// One thread only. It must outlive its transports.
class SimNetwork {
 public:
  explicit SimNetwork(SimOptions options);
  ~SimNetwork();
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  std::unique_ptr<Transport> make(Rank rank);
  // The rank dies now: every channel to it is lost, and so is what it has sent and has not arrived yet.
  void drop(Rank rank, const Status& why);
  [[nodiscard]] uint64_t ticks() const;

 private:
  std::unique_ptr<SimState> state_;
};

}  // namespace rueda::transport
