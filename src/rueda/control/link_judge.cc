#include "rueda/control/link_judge.h"

#include <algorithm>
#include <tuple>

#include "rueda/control/verdict.h"

namespace rueda::control {
namespace {

constexpr Nanos kJudgeLinksEvery = kSecond;
// Over which bytes are counted to notice a link. Facts about links come every 2 s, or 3 s on a busy machine.
constexpr Nanos kLinkWindow = 6 * kSecond;
// What was noticed must show once more in the bytes of so long a time after that, if it is clearly slow.
constexpr Nanos kIsClearFor = 5 * kSecond;
// By then it would be known that all links of a host are slow.
constexpr Nanos kIsPairFor = 7 * kSecond;
// One direction may show before the other.
constexpr Nanos kIsOneWayFor = 6 * kSecond;
constexpr Nanos kIsPairOneWayFor = 10 * kSecond;
using trace::kIsSlowFor;
constexpr Nanos kIsFastFor = 6 * kSecond;
// A link that is used once in a while is watched until it is used again.
constexpr Nanos kSuspectFor = 60 * kSecond;

// Whether enough has been sent on it, in each direction that was slow, to say that it is fast.
bool is_speed_known(const trace::SlowLink& link, const trace::LinkTotals& totals) {
  const auto knows = [&totals](Rank from, Rank to) {
    return std::ranges::any_of(totals, [&](const auto& each) {
      return (from < 0 || each.first.first == from) && (to < 0 || each.first.second == to) &&
             trace::speed_of(each.second) > 0;
    });
  };
  return (!link.sends || knows(link.end, link.other)) && (!link.receives || knows(link.other, link.end));
}

// Null: it is not slow.
const trace::SlowLink* find_among(const std::vector<trace::SlowLink>& slow,
                                  const std::pair<Rank, Rank>& key) {
  const auto at = std::ranges::find(slow, key, trace::ends_of);
  return at == slow.end() ? nullptr : &*at;
}

}  // namespace

void LinkJudge::on_facts(Rank from, const std::vector<LinkFact>& links, Nanos now) {
  for (const LinkFact& link : links) {
    if (std::cmp_greater_equal(link.with, hosts_.size())) continue;
    samples_[{{from, link.with}, Teller::kSender}].push_back({.when = now, .total = link.sent});
    samples_[{{link.with, from}, Teller::kReceiver}].push_back({.when = now, .total = link.received});
  }
}

void LinkJudge::forget(Nanos now) {
  for (auto& [told, samples] : samples_)
    while (samples.size() > 1 && samples[1].when <= now - kIsSlowFor) samples.pop_front();
}

// What hosts have sent to each other since that time. Ranks tell at times of their own, so what they had sent
// by then lies between two samples.
trace::LinkTotals LinkJudge::totals_since(Nanos when) const {
  trace::LinkTotals totals;
  for (const auto& [told, samples] : samples_) {
    const Link& link = told.first;
    auto next = samples.begin();
    while (next != samples.end() && next->when <= when) ++next;
    const Sample& last = samples.back();
    const Sample begin = next == samples.begin() ? *next
                         : next == samples.end() ? last
                                                 : between(*std::prev(next), *next, when);
    const Rank from = hosts_[static_cast<size_t>(link.first)], to = hosts_[static_cast<size_t>(link.second)];
    trace::LinkTotal sent = last.total - begin.total;
    sent.covered = last.when - begin.when;
    totals[{from, to}] += sent;
  }
  return totals;
}

LinkJudge::Sample LinkJudge::between(const Sample& before, const Sample& after, Nanos when) {
  const double part = static_cast<double>(when - before.when) / static_cast<double>(after.when - before.when);
  return {.when = when, .total = trace::between(before.total, after.total, part)};
}

void LinkJudge::see(const std::vector<trace::SlowLink>& slow, Nanos now) {
  for (const trace::SlowLink& link : slow) {
    Suspect& suspect = suspects_[trace::ends_of(link)];
    if (suspect.since == 0) suspect.since = now;
    suspect.link = link;
    suspect.seen = now;
    suspect.fast_since = 0;
  }
}

bool LinkJudge::is_told_of(Rank end) const {
  const auto at = suspects_.find({end, -1});
  return at != suspects_.end() && at->second.is_said;
}

// Whether a pair of this host was said, so that the rest of its links must be clearly slow as well.
bool LinkJudge::has_told_pair(Rank end) const {
  return std::ranges::any_of(suspects_, [end](const auto& each) {
    const auto& [ends, one] = each;
    return one.is_said && ends.second >= 0 && (ends.first == end || ends.second == end);
  });
}

// Whether all links of this host may turn out to be slow, so that it is too early to blame a pair.
bool LinkJudge::is_doubted(Rank end, Nanos now) const {
  const auto at = suspects_.find({end, -1});
  return at != suspects_.end() && at->second.since != 0 && now - at->second.since < kIsSlowFor;
}

// What has shown once more since it was noticed; nothing: it is not certain yet.
std::optional<trace::SlowLink> LinkJudge::certain(const Link& key, const Suspect& one, Nanos now) const {
  const Nanos age = now - one.since;
  if (age < kIsClearFor) return std::nullopt;
  const std::vector<trace::SlowLink> slow = trace::find_slow_links(totals_since(one.since));
  const trace::SlowLink* const found = find_among(slow, key);
  if (found == nullptr) return std::nullopt;
  const bool is_pair = key.second >= 0;
  const bool is_clear = found->speed < trace::kClearlySlow * found->usual;
  const bool is_one_way = !found->sends || !found->receives;
  if (is_pair && (is_doubted(key.first, now) || is_doubted(key.second, now))) return std::nullopt;
  if (!is_pair && has_told_pair(key.first) && (age < kIsSlowFor || !is_clear)) return std::nullopt;
  const Nanos enough = !is_clear    ? kIsSlowFor
                       : is_one_way ? (is_pair ? kIsPairOneWayFor : kIsOneWayFor)
                       : is_pair    ? kIsPairFor
                                    : kIsClearFor;
  if (age < enough) return std::nullopt;
  trace::SlowLink link = one.link;
  const bool is_turned = found->end != link.end;
  link.sends = link.sends || (is_turned ? found->receives : found->sends);
  link.receives = link.receives || (is_turned ? found->sends : found->receives);
  if (is_pair && link.sends && link.receives) std::tie(link.end, link.other) = key;  // in order
  return link;
}

bool LinkJudge::is_certainly_over(const Link& key, const Suspect& one, Nanos now) const {
  if (now - one.fast_since < kIsFastFor) return false;
  const trace::LinkTotals since = totals_since(one.fast_since);
  return is_speed_known(one.link, since) && find_among(trace::find_slow_links(since), key) == nullptr;
}

std::vector<LinkJudge::News> LinkJudge::tick(Nanos now) {
  std::vector<News> news;
  if (samples_.empty() || now < next_) return news;
  next_ = now + kJudgeLinksEvery;
  forget(now);
  const trace::LinkTotals sent = totals_since(now - kLinkWindow);
  see(trace::find_slow_links(sent), now);
  for (auto at = suspects_.begin(); at != suspects_.end();) {
    const Link key = at->first;
    Suspect& one = at->second;
    const bool is_slow = one.seen == now;
    const bool is_fast = !is_slow && is_speed_known(one.link, sent);
    const bool may_say = one.said_at == 0 || now - one.said_at >= kSaidAgainAfter;
    const bool is_part = key.second >= 0 && (is_told_of(key.first) || is_told_of(key.second));
    if (is_slow && !one.is_said && may_say && !is_part) {
      if (const std::optional<trace::SlowLink> link = certain(key, one, now)) {
        one.is_said = true;
        one.said_at = now;
        news.push_back({.link = *link});
      }
    }
    if (is_fast && one.fast_since == 0) one.fast_since = now;
    if (is_fast && one.is_said && is_certainly_over(key, one, now)) {
      one.is_said = false;
      news.push_back({.link = one.link, .is_over = true, .age = one.fast_since - one.since});
    }
    if (is_fast && !one.is_said && now - one.fast_since >= kIsClearFor) one.since = 0;
    const bool is_suspect = one.since != 0 && now - one.seen < kSuspectFor;
    at = is_suspect || one.is_said || !may_say ? std::next(at) : suspects_.erase(at);
  }
  return news;
}

}  // namespace rueda::control
