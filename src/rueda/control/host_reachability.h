// Finds hosts that are cut off, and pairs of hosts between which the link is cut, from what all ranks say
// about the hosts that acknowledge nothing to them. The ranks of a host count as one; its first rank stands
// for the host in messages. Pure.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/types.h"
#include "rueda/control/facts.h"
#include "rueda/control/verdict.h"

namespace rueda::control {

class HostReachability {
 public:
  // me: the rank that judges. hosts: by rank, the first rank of its host.
  HostReachability(Rank me, std::vector<Rank> hosts);

  // What a rank says; also this rank.
  void on_facts(Rank from, const std::vector<Unreached>& unreached, Nanos now);
  // For so long the host of the rank has acknowledged nothing to this rank: neither on its connection to that
  // rank nor on those to others there. 0: it has, or nothing tells it.
  [[nodiscard]] Nanos host_silence(Rank of, Nanos now) const;
  // For so long the rank has acknowledged nothing on its own connection to this rank. After an outage, one
  // connection may work again before another.
  [[nodiscard]] Nanos silence(Rank of, Nanos now) const;
  // Pairs of hosts that have acknowledged nothing to each other for limit or longer, though both answer this
  // rank. Each is said once, and once more when it is over. held: ranks that do not answer.
  std::vector<Verdict> cut_links(const std::set<Rank>& held, Nanos limit, Nanos now);

 private:
  [[nodiscard]] Rank host_of(Rank rank) const { return hosts_[static_cast<size_t>(rank)]; }
  [[nodiscard]] bool is_known(Rank rank) const { return rank >= 0 && std::cmp_less(rank, hosts_.size()); }
  [[nodiscard]] const std::vector<Unreached>& mine(Nanos now) const;

  struct Said {
    std::vector<Unreached> unreached;
    Nanos at = 0;
  };
  using Link = std::pair<Rank, Rank>;  // the lower one first
  Rank me_;
  std::vector<Rank> hosts_;
  std::map<Rank, size_t> ranks_on_;  // by host
  std::map<Rank, Said> said_;        // by rank
  std::map<Link, Nanos> cut_;        // said, and since when
};

}  // namespace rueda::control
