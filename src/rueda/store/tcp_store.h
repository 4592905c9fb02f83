// The client of a TCP store, and the single connection attempt that is needed to find a server
// among several ports.
#pragma once

#include <memory>

#include "rueda/store/store.h"
#include "rueda/store/tcp_site.h"

namespace rueda::store {

// One attempt. kUnavailable: nobody listens. kPermissionDenied: another service listens, and refused says
// what it is, or stays as it is if the service is no rueda. kPeerLost, kTimeout: try again.
Result<std::unique_ptr<Store>> dial_tcp_store_once(const TcpSite& site, Deadline deadline,
                                                   HandshakeOutcome& refused);

// The same, for a store that ends with the process that serves it: when the connection is lost, it is not
// opened again, because another process may have got the address.
Result<std::unique_ptr<Store>> dial_process_once(const TcpSite& site, Deadline deadline,
                                                 HandshakeOutcome& refused);

// dial_tcp_store_once() through the relay of this host (host_relay.h), which this process serves if nobody
// does. Where the relay does not answer soon, and wherever it is lost later, this process dials the store
// itself.
Result<std::unique_ptr<Store>> dial_store_of_host(const TcpSite& site, Deadline deadline,
                                                  HandshakeOutcome& refused);

// Tries to connect until the deadline, as the other open_tcp_store() does.
Result<std::unique_ptr<Store>> open_tcp_store(const TcpSite& site, Deadline deadline);

}  // namespace rueda::store
