#include "rueda/backend/local/teams.h"

#include <algorithm>
#include <map>

#include "rueda/base/check.h"

namespace rueda::backend {

std::vector<std::vector<Rank>> make_teams(std::span<const int32_t> node_of) {
  std::map<int32_t, std::vector<Rank>> nodes;
  for (size_t member = 0; member < node_of.size(); ++member)
    nodes[node_of.size() <= kTeamRanks ? 0 : node_of[member]].push_back(static_cast<Rank>(member));
  std::vector<std::vector<Rank>> teams;
  for (const auto& [node, members] : nodes) {
    // Equal shares, not full teams and a rest: the largest team decides how long a call takes.
    const size_t count = (members.size() + kTeamRanks - 1) / kTeamRanks;
    for (size_t i = 0; i < count; ++i) {
      const auto at = [&](size_t share) {
        return members.begin() + static_cast<ptrdiff_t>(members.size() * share / count);
      };
      teams.emplace_back(at(i), at(i + 1));
    }
  }
  std::ranges::sort(teams, {}, [](const std::vector<Rank>& team) { return team.front(); });
  return teams;
}

TeamPlace place_in(const std::vector<std::vector<Rank>>& teams, Rank member) {
  TeamPlace found;
  for (found.team = 0; found.team < teams.size(); ++found.team) {
    const std::vector<Rank>& team = teams[found.team];
    const auto at = std::ranges::lower_bound(team, member);
    if (at == team.end() || *at != member) continue;
    found.place = static_cast<size_t>(at - team.begin());
    break;
  }
  RUEDA_CHECK(found.team < teams.size(), "every member is in a team");
  const std::vector<Rank>& team = teams[found.team];
  if (found.place > 0) {
    found.parent = team.front();
    return found;
  }
  found.children.assign(team.begin() + 1, team.end());
  if (found.team > 0) {
    found.parent = teams.front().front();
    return found;
  }
  for (size_t other = 1; other < teams.size(); ++other) found.children.push_back(teams[other].front());
  return found;
}

}  // namespace rueda::backend
