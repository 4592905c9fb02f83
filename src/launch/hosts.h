// Which hosts a job may use and which rank runs where. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/base/types.h"

namespace rueda::launch {

struct HostSlots {
  std::string name;
  int slots = 1;
  bool operator==(const HostSlots&) const = default;
};

// "a:2,b:2"; a name without a number has one slot; "[::1]:2" for IPv6. A name given twice adds its slots.
Result<std::vector<HostSlots>> parse_hosts(std::string_view text);
// Lines "name slots=2", "name:2" or "name"; '#' begins a comment. path is for messages only.
Result<std::vector<HostSlots>> parse_hostfile(std::string_view text, std::string_view path);

struct Placement {
  Rank rank = 0;
  Rank local_rank = 0;  // within its host
  Rank local_size = 1;
  Rank cross_rank = 0;  // among the ranks of all hosts with this local_rank
  Rank cross_size = 1;
  int host = 0;  // index into the host list
  bool operator==(const Placement&) const = default;
};

// Places exactly `size` ranks, one host after the other. Hosts that are left over get no rank.
Result<std::vector<Placement>> place_ranks(std::span<const HostSlots> hosts, int size);

}  // namespace rueda::launch
