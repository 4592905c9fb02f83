#include "rueda/control/link_judge.h"

#include <algorithm>

namespace rueda::control {
namespace {

constexpr Nanos kJudgeLinksEvery = kSecond;
// Over which bytes are counted. Facts about links come every 2 s.
constexpr Nanos kLinkWindow = 8 * kSecond;
// A link must be slow for so long: two looks of each rank.
constexpr Nanos kIsSlowFor = 3 * kSecond;
constexpr Nanos kIsFastFor = 3 * kSecond;
constexpr Nanos kSayLinkAgainAfter = 300 * kSecond;

std::pair<Rank, Rank> key_of_link(const trace::SlowLink& link) {
  return link.other < 0 ? std::pair(link.end, link.other) : std::minmax({link.end, link.other});
}

// Whether enough has been sent on it to say that it is fast.
bool is_speed_known(const std::pair<Rank, Rank>& key, const trace::LinkTotals& totals) {
  return std::ranges::any_of(totals, [&](const auto& each) {
    const auto& [from, to] = each.first;
    const bool is_meant =
        key.second >= 0 ? std::pair(std::minmax({from, to})) == key : from == key.first || to == key.first;
    return is_meant && trace::speed_of(each.second) > 0;
  });
}

}  // namespace

void LinkJudge::on_facts(Rank from, const std::vector<LinkFact>& links, Nanos now) {
  for (const LinkFact& link : links) {
    if (std::cmp_greater_equal(link.to, hosts_.size())) continue;
    samples_[{from, link.to}].push_back({.when = now, .total = link.total});
  }
}

// What hosts have sent to each other in the last seconds.
trace::LinkTotals LinkJudge::totals(Nanos now) {
  trace::LinkTotals totals;
  for (auto& [link, samples] : samples_) {
    while (samples.size() > 1 && samples[1].when <= now - kLinkWindow) samples.pop_front();
    const trace::LinkTotal &first = samples.front().total, &last = samples.back().total;
    const Rank from = hosts_[static_cast<size_t>(link.first)], to = hosts_[static_cast<size_t>(link.second)];
    totals[{from, to}] += {.bytes = last.bytes - first.bytes,
                           .busy = last.busy - first.busy,
                           .pauses = last.pauses - first.pauses};
  }
  return totals;
}

void LinkJudge::see(const std::vector<trace::SlowLink>& slow, Nanos now) {
  for (const trace::SlowLink& link : slow) {
    Suspect& suspect = suspects_[key_of_link(link)];
    // What was slow a moment ago only, begins again.
    if (!suspect.is_said && now - suspect.seen > 2 * kJudgeLinksEvery) suspect.since = now;
    suspect.link = link;
    suspect.seen = now;
    suspect.fast_since = 0;
  }
}

bool LinkJudge::is_told_of(Rank end) const {
  const auto at = suspects_.find({end, -1});
  return at != suspects_.end() && at->second.is_said;
}

std::vector<LinkJudge::News> LinkJudge::tick(Nanos now) {
  std::vector<News> news;
  if (samples_.empty() || now < next_) return news;
  next_ = now + kJudgeLinksEvery;
  const trace::LinkTotals sent = totals(now);
  see(trace::find_slow_links(sent), now);
  for (auto at = suspects_.begin(); at != suspects_.end();) {
    Suspect& one = at->second;
    const bool is_slow = one.seen == now;
    const bool may_say = one.said_at == 0 || now - one.said_at >= kSayLinkAgainAfter;
    const bool is_part =
        at->first.second >= 0 && (is_told_of(at->first.first) || is_told_of(at->first.second));
    if (is_slow && !one.is_said && now - one.since >= kIsSlowFor && may_say && !is_part) {
      one.is_said = true;
      one.said_at = now;
      news.push_back({.link = one.link});
    }
    if (!is_slow && one.is_said && is_speed_known(at->first, sent)) {
      if (one.fast_since == 0) one.fast_since = now;
      if (now - one.fast_since >= kIsFastFor) {
        one.is_said = false;
        news.push_back({.link = one.link, .is_over = true, .age = one.fast_since - one.since});
      }
    }
    at = is_slow || one.is_said || !may_say ? std::next(at) : suspects_.erase(at);
  }
  return news;
}

}  // namespace rueda::control
