#include "launch/blame.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "launch/last_words.h"

namespace rueda::launch {
namespace {

struct Claim {
  size_t by = 0;  // index of an ending
  LostRank lost{};
};

// What was said by ranks that failed before they were stopped, the first ones first.
std::vector<size_t> speakers(std::span<const Ending> endings) {
  std::vector<size_t> found;
  for (size_t i = 0; i < endings.size(); ++i)
    if (endings[i].is_failure() && !endings[i].was_stopped && endings[i].signal == 0 &&
        endings[i].trouble.empty())
      found.push_back(i);
  std::ranges::stable_sort(found, {}, [&](size_t i) { return endings[i].at; });
  return found;
}

const Ending* find(std::span<const Ending> endings, Rank rank) {
  const auto found = std::ranges::find(endings, rank, &Ending::rank);
  return found == endings.end() ? nullptr : &*found;
}

// A rank that fails because it has lost another one ends, and is then lost to those that wait longer. What
// they say of it is a consequence.
std::vector<Claim> without_consequences(std::span<const Ending> endings, const std::vector<Claim>& all) {
  std::set<Rank> reporters;
  for (const Claim& one : all) reporters.insert(endings[one.by].rank);
  std::vector<Claim> kept;
  for (const Claim& one : all)
    if (!one.lost.has_ended || !reporters.contains(one.lost.rank)) kept.push_back(one);
  return kept;
}

// Where several are blamed by as many, the one that was blamed first.
Rank most_blamed(const std::vector<Claim>& claims) {
  std::map<Rank, int> counts;
  for (const Claim& one : claims) ++counts[one.lost.rank];
  const auto count = [&](const Claim& one) { return counts[one.lost.rank]; };
  return std::ranges::max_element(claims, {}, count)->lost.rank;
}

}  // namespace

std::optional<Blame> agreed_blame(std::span<const Ending> endings) {
  std::vector<Claim> claims;
  for (const size_t i : speakers(endings)) {
    const std::span<const std::string> lines = endings[i].last_lines;
    if (const auto link = cut_link(lines); link && find(endings, link->from) && find(endings, link->to)) {
      const auto kind = link->was_up ? Blame::Kind::kCutLink : Blame::Kind::kUnconnected;
      return Blame{.kind = kind, .rank = link->from, .other = link->to, .spokesman = i};
    }
    const std::optional<LostRank> lost = lost_rank(lines);
    if (lost && lost->rank != endings[i].rank && find(endings, lost->rank) != nullptr)
      claims.push_back({.by = i, .lost = *lost});
  }
  claims = without_consequences(endings, claims);
  if (claims.empty()) return std::nullopt;
  Blame blame{.rank = most_blamed(claims)};
  std::erase_if(claims, [&](const Claim& one) { return one.lost.rank != blame.rank; });
  const Claim& first = claims.front();
  blame.spokesman = first.by;
  if (!first.lost.is_unreachable) return blame;
  std::set<std::string_view> hosts;
  for (const Claim& one : claims) hosts.insert(endings[one.by].host);
  if (hosts.size() > 1) {
    blame.kind = Blame::Kind::kCutOff;
    return blame;
  }
  blame.kind = Blame::Kind::kCutLink;
  const Rank reporter = endings[first.by].rank;
  blame.other = std::max(blame.rank, reporter);
  blame.rank = std::min(blame.rank, reporter);
  return blame;
}

}  // namespace rueda::launch
