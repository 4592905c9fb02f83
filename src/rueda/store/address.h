// Which address of this machine to listen on.
#pragma once

#include <string>
#include <vector>

#include "rueda/base/status.h"

namespace rueda::store {

struct LocalAddress {
  std::string interface;
  std::string ip;
  bool is_loopback = false;
};
std::vector<LocalAddress> local_addresses();  // of interfaces that are up; IPv4 first, no link-local IPv6

// The address of this machine that peers reach when they connect to `host`: one of those that the name
// resolves to. If the machine's own name means loopback on the machine itself only (127.0.1.1 on Debian), its
// address in the network.
Result<std::string> address_behind(const std::string& host, bool is_one_host);

}  // namespace rueda::store
