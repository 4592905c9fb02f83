// The client's side of a TCP store, with the single attempt that finding a server among several ports needs.
#pragma once

#include <memory>
#include <string>

#include "rueda/store/store.h"

namespace rueda::store {

// Where a store is and how to prove that one belongs to it.
struct TcpSite {
  std::string host;
  int port = 0;
  std::string job;
  Secret secret;
  std::string release;
};

// One attempt. kUnavailable: nobody listens; kPermissionDenied: somebody else does; kPeerLost, kTimeout: try
// again.
Result<std::unique_ptr<Store>> dial_tcp_store_once(const TcpSite& site, Deadline deadline);

}  // namespace rueda::store
