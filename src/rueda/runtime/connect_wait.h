// What the ranks of an init tell one another about connections that do not come up. Only the rank that dials
// knows why; the others wait for the two ends of the connection, and may run out of time first. Used by one
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/runtime/peer_info.h"
#include "rueda/store/store.h"

namespace rueda::runtime {

// links: "from rank 2 (host c, pid 7) to rank 1 (host b, pid 5) over tcp at 10.0.0.2:4000: Connection
// refused"
Status no_connection(const std::string& links);

// Fails if the process of one of these ranks has ended, where this one can see that: on its host. A rank that
// ends before it is connected closes nothing here.
Status check_processes(const std::vector<Rank>& missing, Rank me, const std::vector<PeerInfo>& all);

class ConnectWait {
 public:
  // prefix: of the keys of this init. began: when this rank knew the addresses of all.
  ConnectWait(store::Store& store, std::string prefix, Deadline deadline, Nanos began);

  // links: Links::unanswered(). To be called from time to time. Returns one sentence for the log when the
  // wait has become long; otherwise, and on all but a few ranks, "".
  std::string note(const std::string& links, Nanos now);
  // What this rank reports if its init fails with `mine` while it waits for `links`.
  [[nodiscard]] Status explain(const Status& mine, const std::string& links) const;

 private:
  // The number-th rank that told of a connection.
  [[nodiscard]] std::string key(int64_t number) const;

  store::Store& store_;
  std::string prefix_;
  Nanos began_, say_at_;
  int64_t number_ = 0;  // of this rank; 0 = it has told nothing
  bool is_over_ = false;
};

}  // namespace rueda::runtime
