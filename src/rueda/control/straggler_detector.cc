#include "rueda/control/straggler_detector.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace rueda::control {
namespace {

constexpr Nanos kWindow = 10 * kSecond;
constexpr Nanos kShortestWindow = 5 * kSecond;
constexpr Nanos kRecentLasts = 3 * kSecond;  // without answers of all ranks
constexpr double kStraggles = 0.1;
constexpr size_t kMostStragglers = 8;
// Ranks do not answer at the same moment. What is less than this share of an interval is no wait.
constexpr double kNoise = 0.02;

// The middle of all but one; of two, the larger one. sorted: ascending, at least two.
double median_without(const std::vector<double>& sorted, double one) {
  const auto place = static_cast<size_t>(std::ranges::lower_bound(sorted, one) - sorted.begin());
  const size_t middle = (sorted.size() - 1) / 2;
  return sorted[middle < place ? middle : middle + 1];
}

}  // namespace

void StragglerDetector::on_participation(Rank from, const Participation& participation, Nanos now) {
  const auto rank = static_cast<size_t>(from);
  if (rank >= newest_.size() || newest_.size() < 2) return;
  if (newest_[rank].at == last_[rank].at) ++fresh_;
  newest_[rank] = participation;
  if (fresh_ == newest_.size()) end_interval(now);
}

void StragglerDetector::end_interval(Nanos now) {
  const Nanos length = now - std::exchange(began_, now);
  if (length > 0 && length < now) {  // the first answers only begin one
    std::vector<Nanos> waited = waits(length);
    sums_.resize(waited.size());
    for (size_t rank = 0; rank < waited.size(); ++rank) sums_[rank] += waited[rank];
    recent_.push_back({.length = length, .waited = std::move(waited)});
    Nanos all = 0;
    for (const Interval& one : recent_) all += one.length;
    for (; all - recent_.front().length >= kWindow; recent_.pop_front()) all -= recent_.front().length;
  }
  last_ = newest_;
  fresh_ = 0;
}

// Each rank's own clock says how long its interval was, so it need not begin and end with those of others.
std::vector<Nanos> StragglerDetector::waits(Nanos length) const {
  std::vector<double> in_world, in_any;
  for (size_t rank = 0; rank < last_.size(); ++rank) {
    const auto passed = static_cast<double>(std::max<Nanos>(newest_[rank].at - last_[rank].at, 1));
    in_world.push_back(static_cast<double>(newest_[rank].in_world - last_[rank].in_world) / passed);
    in_any.push_back(static_cast<double>(newest_[rank].in_any - last_[rank].in_any) / passed);
  }
  std::vector<double> sorted = in_world;
  std::ranges::sort(sorted);
  std::vector<Nanos> waited(last_.size());
  for (size_t rank = 0; rank < last_.size(); ++rank) {
    const double share = std::min(median_without(sorted, in_world[rank]) - in_any[rank], 1.0);
    if (share >= kNoise) waited[rank] = static_cast<Nanos>(share * static_cast<double>(length));
  }
  return waited;
}

std::vector<StragglerDetector::Wait> StragglerDetector::take() {
  std::vector<Wait> out;
  for (size_t rank = 0; rank < sums_.size(); ++rank)
    if (sums_[rank] > 0) out.push_back({.rank = static_cast<Rank>(rank), .waited = sums_[rank]});
  sums_.clear();
  return out;
}

std::vector<StragglerDetector::Straggler> StragglerDetector::stragglers(Nanos now) const {
  Nanos window = 0;
  for (const Interval& one : recent_) window += one.length;
  if (window < kShortestWindow || now - began_ > kRecentLasts) return {};
  std::vector<Straggler> out;
  for (size_t rank = 0; rank < last_.size(); ++rank) {
    Nanos waited = 0;
    for (const Interval& one : recent_) waited += one.waited[rank];
    const double share = static_cast<double>(waited) / static_cast<double>(window);
    if (share >= kStraggles)
      out.push_back({.rank = static_cast<Rank>(rank), .share = share, .window = window});
  }
  std::ranges::stable_sort(out, std::greater(), &Straggler::share);
  if (out.size() > kMostStragglers) out.resize(kMostStragglers);
  return out;
}

}  // namespace rueda::control
