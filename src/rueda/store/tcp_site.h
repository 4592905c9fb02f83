// Where a client finds a TCP store. Pure.
#pragma once

#include <string>

#include "rueda/base/handshake.h"
#include "rueda/base/types.h"
#include "rueda/store/messages.h"

namespace rueda::store {

// Where a store is, and the secret that proves membership.
struct TcpSite {
  std::string host;
  int port = 0;
  std::string job;
  Secret secret;
  std::string release;
  // For a sentence: who calls, "rank 1 on b", and whether a launcher serves the store.
  std::string caller = "this process";
  bool is_launchers = false;
  Rank rank = -1;  // of the caller

  [[nodiscard]] ConnectionIdentity identity() const {
    return {.job = job, .kind = ConnectionKind::kStore, .from = rank, .protocol = kStoreProtocol};
  }
};

}  // namespace rueda::store
