// What detection makes of a set of variables.
#pragma once

#include <map>
#include <string>

#include "rueda/store/world.h"

namespace rueda::store {

using Variables = std::map<std::string, std::string>;

inline Result<World> detect_in(const Variables& variables, const Ancestry& ancestry = {}) {
  return detect_world(
      [&variables](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      ancestry);
}

// "rank/size local_rank/local_size launcher"
inline std::string place(const Result<World>& found) {
  if (!found.is_ok()) return found.status().to_string();
  const World& world = found.value();
  return std::to_string(world.rank) + "/" + std::to_string(world.size) + " " +
         std::to_string(world.local_rank) + "/" + std::to_string(world.local_size) + " " + world.launcher;
}

}  // namespace rueda::store
