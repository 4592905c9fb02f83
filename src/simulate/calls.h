// How long calls take under virtual time: message by message, or call by call. Pure and
// deterministic; one thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/control/messages.h"
#include "rueda/schedule/traffic.h"
#include "simulate/cluster.h"

namespace rueda::simulate {

// A call: its generation, and its place in it. The same on all ranks.
using CallPlace = std::pair<uint16_t, uint64_t>;

struct CallEnd {
  Rank rank = 0;
  CallPlace place;
  Nanos at = 0;
};

// A call, as a rank started it.
struct StartedCall {
  size_t tensors = 0;
  int64_t bytes = 0;
  std::vector<size_t> which =
      {};  // [tensors] of the engine's; of a job's result: of gradients, then exchanges
};

struct CallOptions {
  std::string algorithm;            // forced; empty: the cost model chooses
  int64_t chunk_bytes = 256 << 10;  // unit of pipelining
  size_t channels = 2;              // calls that run at once
  schedule::Topology chosen_for;    // for which algorithms are chosen: as the library measures it at init
};

// What calls have done by now.
struct CallsUse {
  schedule::Traffic::Use busy_us;
  std::map<std::string, int64_t> algorithms;  // how many calls ran by each
};

class Calls {
 public:
  virtual ~Calls() = default;
  // All ranks of the world will start it. is_planned: it may be cancelled.
  virtual void start(Rank rank, const CallPlace& place, const control::Bucket& bucket, bool is_planned,
                     Nanos now) = 0;
  // Not all ranks will start it after all; so it ends on none. To be called once or more for a call that has
  // begun.
  virtual void cancel(const CallPlace& place) = 0;
  [[nodiscard]] virtual Nanos next() const = 0;  // when something happens; kNever if nothing does
  virtual void advance(std::vector<CallEnd>& ended) = 0;
  [[nodiscard]] virtual CallsUse use() const = 0;
};

inline constexpr Nanos kNever = INT64_MAX;
// The nearest; of infinity, kNever.
inline Nanos nanos_of(double us) {
  return std::isfinite(us) ? static_cast<Nanos>(std::llround(us * 1e3)) : kNever;
}

// Every message of every call; for up to kMostMessageRanks ranks.
inline constexpr int kMostMessageRanks = 64;
std::unique_ptr<Calls> make_message_calls(const Layout& layout, const Costs& costs,
                                          const CallOptions& options);
// A call begins when its last rank has started it, and takes as long as one that runs alone (call_prices.h);
// calls that run at once share the links.
std::unique_ptr<Calls> make_priced_calls(const Layout& layout, const Costs& costs,
                                         const CallOptions& options);

}  // namespace rueda::simulate
