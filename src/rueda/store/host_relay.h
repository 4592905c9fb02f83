// The ranks of a host share one connection to a store on another host: the first of them that binds a local
// socket relays what the others say (relay_frame.h). Any of them that cannot use the relay, or loses it,
// dials the store itself, so nothing depends on the process that serves it.
#pragma once

#include <memory>

#include "rueda/base/clock.h"
#include "rueda/base/unique_fd.h"
#include "rueda/store/tcp_site.h"

namespace rueda::store {

// A thread that relays; the destructor ends it.
class HostRelay {
 public:
  virtual ~HostRelay() = default;
};

// The local socket of the relay of this store, job and user, on which this process listens from now on. Fails
// if another one does.
Result<UniqueFd> bind_host_relay(const TcpSite& site);
// listener: from bind_host_relay(). upstream: a connection to the store that carries frames.
Result<std::unique_ptr<HostRelay>> serve_host_relay(const TcpSite& site, UniqueFd listener,
                                                    UniqueFd upstream);
// A connection to that socket, to a process of this user. It is not authenticated yet.
Result<UniqueFd> dial_host_relay(const TcpSite& site, Deadline deadline);

}  // namespace rueda::store
