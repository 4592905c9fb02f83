// Who is above whom among the ranks of a job, and which pairs are connected when init ends. The lowest rank
// of a host leads it: it stands between the other ranks of the host and the root. Of many hosts, the leaders
// form a tree. Every rank makes the same from the table of all ranks, so that both ends of a connection agree
// about it. Pure, immutable.
#pragma once

#include <vector>

#include "rueda/base/types.h"
#include "rueda/control/rank_set.h"
#include "rueda/runtime/peer_info.h"

namespace rueda::runtime {

class Hierarchy {
 public:
  // In a job of more hosts, init does not find out whether each of them reaches each other one.
  static constexpr size_t kMostMetHosts = 64;
  // How many leaders are below one. 2,048 hosts then have three levels, and the root has as many children as
  // a host has ranks.
  static constexpr size_t kFanOut = 16;

  Hierarchy(Rank me, const std::vector<PeerInfo>& all);

  [[nodiscard]] Rank me() const { return me_; }
  [[nodiscard]] Rank root() const { return 0; }  // it orders what runs, and judges who is lost
  [[nodiscard]] bool is_root() const { return me_ == root(); }
  // The rank that speaks if the root is lost; -1 where it is alone.
  [[nodiscard]] Rank successor() const { return parents_.size() > 1 ? 1 : -1; }
  // To whom this rank sends what concerns the job, and who sends it here; -1 at the root.
  [[nodiscard]] Rank parent() const { return parent_of(me_); }
  [[nodiscard]] Rank parent_of(Rank rank) const { return parents_[static_cast<size_t>(rank)]; }
  [[nodiscard]] const std::vector<Rank>& parents() const { return parents_; }  // by rank
  [[nodiscard]] const std::vector<Rank>& children() const { return children_; }
  [[nodiscard]] bool is_child(Rank peer) const { return parent_of(peer) == me_; }
  // Whether control messages pass between that rank and this one.
  [[nodiscard]] bool is_neighbour(Rank peer) const;
  // The child and all ranks below it.
  [[nodiscard]] const control::RankSet& below(Rank child) const;
  // This rank and all ranks below it.
  [[nodiscard]] const control::RankSet& below() const { return below_; }
  [[nodiscard]] bool is_below(Rank rank, Rank above) const;
  // The neighbour through which a message reaches that rank.
  [[nodiscard]] Rank way_to(Rank rank) const;

  // The lowest rank of each host, in the order of ranks.
  [[nodiscard]] const std::vector<Rank>& leaders() const { return leaders_; }
  // With whom the root measures a link inside a host, and one between hosts; -1 where there is nobody.
  [[nodiscard]] Rank local_probe() const { return local_probe_; }
  [[nodiscard]] Rank remote_probe() const { return leaders_.size() > 1 ? leaders_[1] : -1; }
  // Whether this rank has data channels to that one when init ends: to measure them, or to find out whether
  // the network lets the hosts reach one another.
  [[nodiscard]] bool is_met(Rank peer) const;

 private:
  [[nodiscard]] bool is_leader(Rank rank) const;

  Rank me_;
  std::vector<Rank> parents_;  // by rank
  std::vector<Rank> children_, leaders_;
  std::vector<control::RankSet> below_child_;  // by the place among children_
  control::RankSet below_;
  Rank local_probe_ = -1;
};

}  // namespace rueda::runtime
