#include "rueda/control/slow_ranks.h"

#include <algorithm>
#include <cmath>

namespace rueda::control {
namespace {

constexpr double kMuch = 0.3;  // of the time; ranks that do the same wait for one another for less
constexpr Nanos kCertainAfter = 30 * kSecond;
constexpr Nanos kFastAgainAfter = 30 * kSecond;  // without much waiting

}  // namespace

std::vector<Verdict> SlowRanks::tick(const std::vector<StragglerDetector::Straggler>& found,
                                     const std::set<Rank>& told, Nanos now) {
  std::vector<Verdict> news;
  for (const StragglerDetector::Straggler& one : found) {
    if (one.share < kMuch) continue;
    Slow& slow = slow_[one.rank];
    if (slow.since == 0) slow.since = slow.seen = now - one.window;
    slow.waited += std::llround(one.share * static_cast<double>(now - slow.seen));
    slow.seen = now;
  }
  for (auto& [rank, slow] : slow_) {
    if (slow.since == 0) continue;
    const bool is_told = told.contains(rank);
    Verdict verdict{
        .fault = Fault::kSlow, .rank = rank, .age = slow.seen - slow.since, .waited = slow.waited};
    if (now - slow.seen >= kFastAgainAfter || is_told) {
      verdict.is_over = true;
      if (slow.is_said && !is_told) news.push_back(verdict);
      slow = {.said_at = slow.said_at};
    } else if (slow.seen == now && verdict.age >= kCertainAfter &&
               (slow.said_at == 0 || now - slow.said_at >= kSaidAgainAfter)) {
      slow.is_said = true;
      slow.said_at = now;
      news.push_back(verdict);
    }
  }
  return news;
}

}  // namespace rueda::control
