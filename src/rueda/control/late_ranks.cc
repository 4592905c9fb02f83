#include "rueda/control/late_ranks.h"

#include <algorithm>
#include <utility>

namespace rueda::control {
namespace {

// If the rank is late for another reason, or waited for longer than ever.
constexpr Nanos kSayNewsAfter = 30 * kSecond;
// In units of the limit. Between two waits a rank computes, and the second one is certain after the limit.
constexpr int kOverAfter = 3;
// Ages come with facts, once a second: two looks at one wait may differ by that in when it began.
constexpr Nanos kAgesDiffer = 2 * kSecond;

}  // namespace

void LateRanks::see(Late& late, const Verdict& verdict, Nanos now) const {
  const Nanos began = now - verdict.age;
  const bool is_other_wait = late.times == 0 || began - late.wait_began > std::max(limit_ / 2, kAgesDiffer);
  if (is_other_wait) {
    if (late.times == 0) late.began = began;
    ++late.times;
    late.waited += late.wait_age;
    late.longest = std::max(late.longest, late.wait_age);
    late.wait_began = began;
    late.wait_age = 0;
    late.is_wait_said = false;
  }
  late.wait_age = std::max(late.wait_age, verdict.age);
  late.seen = now;
}

bool LateRanks::is_news(const Late& late, const Verdict& verdict, Nanos now) {
  if (late.said.empty()) return true;
  if (now - late.said_at < kSayNewsAfter) return false;
  const auto before = late.said.find(verdict.fault);
  if (before == late.said.end() || now - before->second >= kSaidAgainAfter) return true;
  // It was late for some seconds, and now it seems not to come at all.
  return !late.is_wait_said && verdict.age >= std::max(2 * late.longest, kSayNewsAfter);
}

Verdict LateRanks::with_sums(const Late& late, Verdict verdict) {
  verdict.times = late.times;
  verdict.lasted = late.seen - late.began;
  verdict.waited = late.waited + late.wait_age;
  return verdict;
}

std::vector<Verdict> LateRanks::tick(const std::map<Rank, Verdict>& found, const std::set<Rank>& held,
                                     Nanos now) {
  std::vector<Verdict> news;
  for (const auto& [rank, verdict] : found) {
    Late& late = late_[rank];
    see(late, verdict, now);
    if (!is_news(late, verdict, now)) continue;
    late.verdict = with_sums(late, verdict);
    late.is_said = late.is_wait_said = true;
    late.said[verdict.fault] = late.said_at = now;
    news.push_back(late.verdict);
  }
  for (auto at = late_.begin(); at != late_.end();) {
    auto& [rank, late] = *at;
    if (held.contains(rank)) late.seen = now;
    if (now - late.seen < kOverAfter * limit_) {
      ++at;
      continue;
    }
    if (std::exchange(late.is_said, false)) {
      late.verdict.is_over = true;
      late.verdict.age = late.seen - late.wait_began;
      news.push_back(with_sums(late, late.verdict));
    }
    at = now - late.said_at >= kSaidAgainAfter ? late_.erase(at) : std::next(at);
  }
  return news;
}

}  // namespace rueda::control
