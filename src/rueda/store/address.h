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

// The address of this machine that peers reach when they dial `host`: one of those the name resolves to, or,
// where this machine's own name means loopback to itself only (Debian's 127.0.1.1), the one towards the
// network.
Result<std::string> address_behind(const std::string& host, bool is_one_host);

}  // namespace rueda::store
