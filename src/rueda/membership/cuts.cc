#include "rueda/membership/cuts.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace rueda::membership {
namespace {

using Links = std::set<std::pair<size_t, size_t>>;  // of hosts, the smaller number first

// The hosts in the order of their first members.
std::vector<std::string> hosts_of(const std::vector<Member>& members) {
  std::vector<std::string> hosts;
  for (const Member& one : members)
    if (std::ranges::find(hosts, one.host) == hosts.end()) hosts.push_back(one.host);
  return hosts;
}

Links links_of(const std::vector<Member>& members, const std::vector<Cut>& cuts) {
  const std::vector<std::string> hosts = hosts_of(members);
  const auto host_of = [&](const Uid& uid) -> std::optional<size_t> {
    const auto member = std::ranges::find(members, uid, &Member::uid);
    if (member == members.end()) return std::nullopt;
    return std::ranges::find(hosts, member->host) - hosts.begin();
  };
  Links links;
  for (const auto& [one, other] : cuts) {
    const auto here = host_of(one), there = host_of(other);
    if (here && there && here != there) links.insert(std::minmax(*here, *there));
  }
  return links;
}

// The host with the most links; the last of several.
size_t worst_of(const Links& links) {
  std::map<size_t, int> counts;
  for (const auto& [one, other] : links) {
    ++counts[one];
    ++counts[other];
  }
  auto worst = counts.begin();
  for (auto host = counts.begin(); host != counts.end(); ++host)
    if (host->second >= worst->second) worst = host;
  return worst->first;
}

}  // namespace

std::vector<Uid> left_out(const std::vector<Member>& members, const std::vector<Cut>& cuts) {
  const std::vector<std::string> hosts = hosts_of(members);
  Links links = links_of(members, cuts);
  std::set<std::string> out;
  while (!links.empty()) {
    const size_t worst = worst_of(links);
    out.insert(hosts[worst]);
    std::erase_if(links, [&](const auto& link) { return link.first == worst || link.second == worst; });
  }
  std::vector<Uid> uids;
  for (const Member& one : members)
    if (out.contains(one.host)) uids.push_back(one.uid);
  return uids;
}

}  // namespace rueda::membership
