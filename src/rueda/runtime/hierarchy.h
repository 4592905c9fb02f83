// Who is above whom among the ranks of a job, and which pairs are connected when init ends. Every rank makes
// the same from the table of all ranks, so that both ends of a connection agree about it. Pure, immutable.
#pragma once

#include <vector>

#include "rueda/base/types.h"
#include "rueda/runtime/peer_info.h"

namespace rueda::runtime {

class Hierarchy {
 public:
  // In a job of more hosts, init does not find out whether each of them reaches each other one.
  static constexpr size_t kMostMetHosts = 64;

  Hierarchy(Rank me, const std::vector<PeerInfo>& all);

  [[nodiscard]] Rank root() const { return 0; }  // it orders what runs, and judges who is lost
  [[nodiscard]] bool is_root() const { return me_ == root(); }
  // To whom this rank sends what concerns the job, and who sends it here; -1 at the root.
  [[nodiscard]] Rank parent() const { return is_root() ? -1 : root(); }
  [[nodiscard]] const std::vector<Rank>& children() const { return children_; }
  // Whether control messages pass between that rank and this one.
  [[nodiscard]] bool is_neighbour(Rank peer) const;

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
  std::vector<Rank> children_, leaders_;
  Rank local_probe_ = -1;
};

}  // namespace rueda::runtime
