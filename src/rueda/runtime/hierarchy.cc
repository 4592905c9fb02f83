#include "rueda/runtime/hierarchy.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "rueda/base/check.h"

namespace rueda::runtime {

Hierarchy::Hierarchy(Rank me, const std::vector<PeerInfo>& all) : me_(me) {
  std::unordered_map<std::string_view, Rank> leader_of;
  for (Rank rank = 0; rank < static_cast<Rank>(all.size()); ++rank) {
    const auto [leader, is_first] = leader_of.try_emplace(all[static_cast<size_t>(rank)].host_key, rank);
    const size_t place = leaders_.size();
    if (is_first) leaders_.push_back(rank);
    const Rank above = place == 0 ? -1 : leaders_[(place - 1) / kFanOut];
    parents_.push_back(is_first ? above : leader->second);
    if (!is_first && local_probe_ < 0 && leader->second == root()) local_probe_ = rank;
    if (parents_.back() == me_) children_.push_back(rank);
  }
  std::vector<std::vector<Rank>> below(children_.size());
  for (Rank rank = 0; rank < static_cast<Rank>(all.size()); ++rank) {
    Rank at = rank;
    while (at != me_ && at >= 0 && parent_of(at) != me_) at = parent_of(at);
    if (at < 0) continue;
    below_.add(rank);
    if (at == me_) continue;
    const auto child = std::ranges::lower_bound(children_, at) - children_.begin();
    below[static_cast<size_t>(child)].push_back(rank);
  }
  for (const std::vector<Rank>& ranks : below) below_child_.emplace_back(ranks);
}

bool Hierarchy::is_neighbour(Rank peer) const { return peer != me_ && (peer == parent() || is_child(peer)); }

const control::RankSet& Hierarchy::below(Rank child) const {
  const auto found = std::ranges::lower_bound(children_, child);
  RUEDA_CHECK(found != children_.end() && *found == child, "only children have ranks below them here");
  return below_child_[static_cast<size_t>(found - children_.begin())];
}

bool Hierarchy::is_below(Rank rank, Rank above) const {
  for (Rank at = parent_of(rank); at >= 0; at = parent_of(at))
    if (at == above) return true;
  return false;
}

Rank Hierarchy::way_to(Rank rank) const {
  for (Rank at = rank; at >= 0; at = parent_of(at))
    if (parent_of(at) == me_) return at;
  return parent();
}

bool Hierarchy::is_leader(Rank rank) const { return std::ranges::binary_search(leaders_, rank); }

bool Hierarchy::is_met(Rank peer) const {
  if (peer == me_) return false;
  const auto is_probe = [this](Rank rank) { return rank == local_probe() || rank == remote_probe(); };
  if (is_root() ? is_probe(peer) : peer == root() && is_probe(me_)) return true;
  return leaders_.size() <= kMostMetHosts && is_leader(me_) && is_leader(peer);
}

}  // namespace rueda::runtime
