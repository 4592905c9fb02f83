#include "rueda/trace/clock_estimate.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace rueda::trace {
namespace {

constexpr size_t kReach = 3;  // how many windows away the drift is measured

double half(const ClockSample& sample) { return static_cast<double>(sample.round_trip) / 2; }
double between(const ClockSample& a, const ClockSample& b) { return static_cast<double>(b.at - a.at); }

}  // namespace

void ClockEstimate::add(const ClockSample& sample) {
  if (sample.round_trip < 0) return;  // a clock was set meanwhile
  if (best_.empty() || sample.at / kWindow > best_.back().at / kWindow) {
    if (best_.size() == kMaxWindows) {
      for (size_t i = 1; 2 * i < best_.size(); ++i) best_[i] = best_[2 * i];
      best_.resize(best_.size() / 2);
    }
    best_.push_back(sample);
  } else if (sample.at / kWindow == best_.back().at / kWindow &&
             sample.round_trip < best_.back().round_trip) {
    best_.back() = sample;
  }
}

ClockOffset ClockEstimate::at(Nanos when) const {
  if (best_.empty()) return {};
  const auto next = std::ranges::lower_bound(best_, when, {}, &ClockSample::at);
  if (next == best_.begin()) return extrapolate(0, 1, when);
  if (next == best_.end()) return extrapolate(best_.size() - 1, -1, when);
  const ClockSample &before = *(next - 1), &after = *next;
  const double share = between(before, {when, 0, 0}) / between(before, after);
  const double offset = static_cast<double>(after.offset - before.offset) * share;
  // A drift that changes within the window bends the line between its ends.
  const double bend = kMaxWander * between(before, after) * share * (1 - share);
  const double bound = half(before) * (1 - share) + half(after) * share + bend;
  return {before.offset + std::llround(offset), std::llround(std::ceil(bound))};
}

// The nearest sample may be too near to tell the drift.
ClockOffset ClockEstimate::extrapolate(size_t end, int inwards, Nanos when) const {
  const ClockSample& from = best_[end];
  double drift = 0, unsure = kMaxDrift;
  for (size_t steps = 1; steps <= std::min(kReach, best_.size() - 1); ++steps) {
    const ClockSample& other = best_[inwards > 0 ? end + steps : end - steps];
    const double distance = std::abs(between(from, other));
    if (distance == 0) continue;
    const double error = (half(from) + half(other)) / distance + kMaxWander * static_cast<double>(steps);
    if (error >= unsure) continue;
    drift = static_cast<double>(from.offset - other.offset) / between(other, from);
    unsure = error;
  }
  const double age = std::abs(static_cast<double>(when - from.at));
  const double offset = drift * static_cast<double>(when - from.at);
  return {from.offset + std::llround(offset), std::llround(std::ceil(half(from) + unsure * age))};
}

}  // namespace rueda::trace
