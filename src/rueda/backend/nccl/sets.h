// What this rank knows of the process sets that use its GPU. All members of one know the same. Engine thread
// only.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rueda/backend/nccl/host_sync.h"
#include "rueda/backend/nccl/levels.h"
#include "rueda/base/types.h"
#include "rueda/schedule/topology.h"

namespace rueda::nccl {

struct Set {
  std::string refusal;           // why its members cannot use NCCL together; empty: they may
  bool has_levels = false;       // they are known:
  std::optional<Levels> levels;  // those of one level have none
  size_t adasum_bytes = 0;       // for so many, all members have memory
};

class Sets {
 public:
  // Where the members of a group run, if allreduces are to be hierarchical; otherwise empty.
  using TopologyOf = std::function<schedule::Topology(const Group&)>;
  explicit Sets(TopologyOf topology) : topology_(std::move(topology)) {}

  [[nodiscard]] bool are_hierarchical() const { return topology_ != nullptr; }
  // It stays where it is.
  Set& find(const Group& group) { return sets_[{group.id, group.members}]; }
  // Null: it has one level.
  const Levels* levels_of(Set& set, const Group& group);
  // The members have set up the process set.
  void decide(Set& set, const Group& group, std::span<const MemberInfo> members);
  // They have said how much memory they have for an Adasum that needs so much.
  void decide_adasum(Set& set, const Group& group, std::span<const MemberInfo> members, size_t needed);

 private:
  TopologyOf topology_;
  std::map<std::pair<int32_t, std::vector<Rank>>, Set> sets_;
  bool has_warned_ = false;  // of an Adasum that is staged
};

}  // namespace rueda::nccl
