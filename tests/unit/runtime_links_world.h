// Worlds for the tests of Links.
#pragma once

#include <string>
#include <vector>

#include "rueda/runtime/peer_info.h"

namespace rueda::runtime {

// Hosts "aab": ranks 0 and 1 on host a, rank 2 on host b. Every rank has every transport named.
inline std::vector<PeerInfo> world(const std::string& hosts, const std::vector<std::string>& transports) {
  std::vector<PeerInfo> all(hosts.size());
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    all[rank].host = all[rank].host_key = hosts.substr(rank, 1);
    all[rank].pid = 100 + static_cast<int64_t>(rank);
    for (const std::string& name : transports) all[rank].addresses[name] = name + ":" + std::to_string(rank);
  }
  return all;
}

}  // namespace rueda::runtime
