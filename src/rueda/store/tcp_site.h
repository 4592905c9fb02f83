// Where a client finds a TCP store. Pure.
#pragma once

#include <string>

#include "rueda/base/handshake.h"

namespace rueda::store {

// Where a store is, and the secret that proves membership.
struct TcpSite {
  std::string host;
  int port = 0;
  std::string job;
  Secret secret;
  std::string release;
};

}  // namespace rueda::store
