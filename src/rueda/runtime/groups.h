// The process sets alive in this epoch. The engine thread adds and removes; any thread looks up.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "rueda/base/types.h"

namespace rueda::runtime {

class Groups {
 public:
  // sets: those that exist from the beginning, with ids from 1. A set of all ranks is the world itself.
  Groups(Epoch epoch, Rank me, Rank world_size, const std::vector<std::vector<Rank>>& sets = {});

  void add(int32_t id, std::vector<Rank> members);
  void remove(int32_t id);
  // The pointer stays valid while a caller holds it, also after removal.
  [[nodiscard]] std::shared_ptr<const Group> find(int32_t id) const;
  [[nodiscard]] std::vector<int32_t> ids() const;  // ascending; 0 is the world
  [[nodiscard]] std::map<int32_t, std::vector<Rank>> without_world() const;

 private:
  Epoch epoch_;
  Rank me_;
  mutable std::mutex mutex_;
  std::map<int32_t, std::shared_ptr<const Group>> groups_;
};

}  // namespace rueda::runtime
