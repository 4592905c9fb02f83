#include "rueda/control/host_reachability.h"

#include <algorithm>
#include <limits>

namespace rueda::control {
namespace {

// What a rank has said is old news after a few missed heartbeats.
constexpr Nanos kReportsLast = 3 * kSecond;

Verdict verdict_about(const std::pair<Rank, Rank>& link, Nanos age, bool is_over) {
  return {
      .fault = Fault::kCutLink, .rank = link.first, .is_over = is_over, .age = age, .other_end = link.second};
}

}  // namespace

HostReachability::HostReachability(Rank me, std::vector<Rank> hosts) : me_(me), hosts_(std::move(hosts)) {
  for (const Rank host : hosts_) ++ranks_on_[host];
}

void HostReachability::on_facts(Rank from, const std::vector<Unreached>& unreached, Nanos now) {
  said_[from] = {.unreached = unreached, .at = now};
}

const std::vector<Unreached>& HostReachability::mine(Nanos now) const {
  static const std::vector<Unreached> kNone;
  const auto said = said_.find(me_);
  return said == said_.end() || now - said->second.at > kReportsLast ? kNone : said->second.unreached;
}

Nanos HostReachability::silence(Rank of, Nanos now) const {
  const std::vector<Unreached>& unreached = mine(now);
  const auto one = std::ranges::find(unreached, of, &Unreached::of);
  return one == unreached.end() ? 0 : one->age;
}

Nanos HostReachability::host_silence(Rank of, Nanos now) const {
  size_t ranks = 0;
  Nanos least = std::numeric_limits<Nanos>::max();
  for (const Unreached& one : mine(now)) {
    if (!is_known(one.of) || host_of(one.of) != host_of(of)) continue;
    ++ranks;
    least = std::min(least, one.age);
  }
  return ranks < ranks_on_.at(host_of(of)) ? 0 : least;
}

std::vector<Verdict> HostReachability::cut_links(const std::set<Rank>& held, Nanos limit, Nanos now) {
  std::map<Link, Nanos> found;
  for (const auto& [from, said] : said_) {
    if (from == me_ || held.contains(from) || now - said.at > kReportsLast) continue;
    for (const Unreached& one : said.unreached) {
      if (!is_known(one.of) || held.contains(one.of) || one.age < limit) continue;
      if (host_of(one.of) == host_of(me_) || host_of(from) == host_of(me_)) continue;
      Nanos& age = found[std::minmax(host_of(from), host_of(one.of))];
      age = std::max(age, one.age);
    }
  }
  std::vector<Verdict> news;
  for (auto at = cut_.begin(); at != cut_.end();) {
    if (found.contains(at->first)) {
      ++at;
      continue;
    }
    news.push_back(verdict_about(at->first, now - at->second, true));
    at = cut_.erase(at);
  }
  for (const auto& [link, age] : found)
    if (cut_.try_emplace(link, now - age).second) news.push_back(verdict_about(link, age, false));
  return news;
}

}  // namespace rueda::control
