#include "rueda/runtime/hierarchy.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

namespace rueda::runtime {

Hierarchy::Hierarchy(Rank me, const std::vector<PeerInfo>& all) : me_(me) {
  std::unordered_set<std::string_view> hosts;
  for (Rank rank = 0; rank < static_cast<Rank>(all.size()); ++rank) {
    if (hosts.insert(all[static_cast<size_t>(rank)].host_key).second) leaders_.push_back(rank);
    if (rank == root()) continue;
    if (is_root()) children_.push_back(rank);
    if (local_probe_ < 0 && are_on_one_host(all, root(), rank)) local_probe_ = rank;
  }
}

bool Hierarchy::is_neighbour(Rank peer) const { return peer != me_ && (is_root() || peer == parent()); }

bool Hierarchy::is_leader(Rank rank) const { return std::ranges::binary_search(leaders_, rank); }

bool Hierarchy::is_met(Rank peer) const {
  if (peer == me_) return false;
  const auto is_probe = [this](Rank rank) { return rank == local_probe() || rank == remote_probe(); };
  if (is_root() ? is_probe(peer) : peer == root() && is_probe(me_)) return true;
  return leaders_.size() <= kMostMetHosts && is_leader(me_) && is_leader(peer);
}

}  // namespace rueda::runtime
