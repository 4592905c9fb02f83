// Which ranks of this host have ended, without a descriptor for each. A few are watched through descriptors
// of their processes. For the others this rank relies on its host: each rank watches the next two, marks the
// end of one in memory that all share, and rings the others. Those two may be stopped, or end as well, so a
// rank also looks by itself from time to time. Engine thread only, except during init.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"
#include "rueda/transport/poller.h"
#include "rueda/transport/transport.h"

namespace rueda::transport {

// Whom a rank watches for all: the next ranks of its host that have not ended, by their places. Pure.
std::vector<size_t> guarded_by(size_t me, const std::vector<bool>& has_ended, size_t count);

class ProcessWatch {
 public:
  static constexpr size_t kOwn = 4;      // descriptors for those to which this rank has connected first
  static constexpr size_t kGuarded = 2;  // and for those that it watches for all

  ProcessWatch(Rank me, Poller& poller);
  ~ProcessWatch();

  // A rank to which this one has a channel, and its process. Fails if there are no descriptors left.
  Status see(Rank peer, pid_t pid);
  // Whether the end of that process will be noticed without a socket to it.
  [[nodiscard]] bool watches(Rank peer) const;
  [[nodiscard]] bool has_ended(Rank peer) const;

  // ring: wakes a rank of the host, to look for news.
  void begin(HostWatch host, std::function<void(Rank)> ring);
  // To be called after the poller was polled. Returns whether the end of another process was noticed.
  bool progress(Nanos now);
  void end();  // watches nobody any more

 private:
  struct Seen {
    pid_t pid = 0;
    UniqueFd process;
    Watch watch;
    bool has_ended = false;
    bool has_channel = false;
  };
  enum class Opened : uint8_t { kYes, kHasEnded, kNoDescriptor, kNotPossible };
  Opened open(Rank rank, Seen& seen);
  void close(Seen& seen);
  void guard();
  void mark(Rank rank, Seen& seen);
  bool read_marks();
  bool look_at_others();
  [[nodiscard]] bool relies_on_host(Rank rank) const;
  [[nodiscard]] size_t place_of(Rank rank) const;  // on the host; the number of its ranks: elsewhere

  Rank me_;
  Poller& poller_;
  std::map<Rank, Seen> seen_;
  std::vector<std::pair<Rank, Seen*>> watched_;  // those with a descriptor
  size_t own_ = 0;
  HostWatch host_;
  std::function<void(Rank)> ring_;
  std::vector<bool> marked_;  // [place on the host]
  uint32_t marks_read_ = 0;
  Nanos look_at_ = 0;
};

}  // namespace rueda::transport
