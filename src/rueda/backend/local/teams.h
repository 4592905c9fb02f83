// Who gathers from whom when many ranks of a host meet (gathered.h): a tree of two levels over the members of
// a call. Members in memory of one NUMA node form a team, whose first member leads it. The leaders report to
// the leader of member 0's team, which is member 0. Pure: all members compute the same tree; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rueda/base/types.h"

namespace rueda::backend {

// So many members or fewer are one team, wherever they run. Its leader looks at each of them: 64 looks of
// some 0.1 us take less time than waking one more rank.
inline constexpr size_t kTeamRanks = 64;

// [team][place]: members in ascending order, at most kTeamRanks in each. The teams are ordered by their first
// members. node_of: [members], the NUMA node of each; any numbers.
std::vector<std::vector<Rank>> make_teams(std::span<const int32_t> node_of);

// Where one member stands.
struct TeamPlace {
  size_t team = 0, place = 0;
  Rank parent = -1;  // whom I tell that my team, or I alone, have arrived; -1: nobody, I am member 0
  // Who tells me, in ascending order: my team, and then, if I am member 0, the leaders of the other teams.
  std::vector<Rank> children;
};
TeamPlace place_in(const std::vector<std::vector<Rank>>& teams, Rank member);

}  // namespace rueda::backend
