#include "rueda/runtime/groups.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace rueda::runtime {

Groups::Groups(Epoch epoch, Rank me, Rank world_size, const std::vector<std::vector<Rank>>& sets)
    : epoch_(epoch), me_(me) {
  std::vector<Rank> world(static_cast<size_t>(world_size));
  std::iota(world.begin(), world.end(), 0);
  add(0, std::move(world));
  int32_t id = 1;
  for (const std::vector<Rank>& ranks : sets)
    if (std::cmp_not_equal(ranks.size(), world_size)) add(id++, ranks);
}

void Groups::add(int32_t id, std::vector<Rank> members) {
  const auto found = std::find(members.begin(), members.end(), me_);
  auto group = std::make_shared<Group>();
  group->id = id;
  group->epoch = epoch_;
  group->me = found == members.end() ? -1 : static_cast<Rank>(found - members.begin());
  group->members = std::move(members);
  const std::lock_guard lock(mutex_);
  groups_[id] = std::move(group);
}

void Groups::remove(int32_t id) {
  const std::lock_guard lock(mutex_);
  groups_.erase(id);
}

std::shared_ptr<const Group> Groups::find(int32_t id) const {
  const std::lock_guard lock(mutex_);
  const auto found = groups_.find(id);
  return found == groups_.end() ? nullptr : found->second;
}

std::vector<int32_t> Groups::ids() const {
  std::vector<int32_t> ids;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, group] : groups_) ids.push_back(id);
  return ids;
}

std::map<int32_t, std::vector<Rank>> Groups::without_world() const {
  std::map<int32_t, std::vector<Rank>> sets;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, group] : groups_) {
    if (id != 0) sets[id] = group->members;
  }
  return sets;
}

}  // namespace rueda::runtime
