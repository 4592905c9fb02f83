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
  return interpolate(*(next - 1), *next, when);
}

ClockOffset ClockEstimate::interpolate(const ClockSample& before, const ClockSample& after, Nanos when) {
  const double length = between(before, after);
  const double share = between(before, {when, 0, 0}) / length;
  const double offset = static_cast<double>(after.offset - before.offset) * share;
  // A drift that changes meanwhile bends the line between the ends.
  const double windows = std::max(1.0, length / static_cast<double>(kWindow));
  const double bend = kMaxWander * windows * length * share * (1 - share);
  const double bound = half(before) * (1 - share) + half(after) * share + bend;
  return {before.offset + std::llround(offset), std::llround(std::ceil(bound))};
}

void ClockEstimate::settle() {
  std::vector<ClockSample> settled = best_;
  std::vector<const ClockSample*> before, after;  // each faster than those nearer
  const auto take = [](std::vector<const ClockSample*>& faster, const ClockSample& sample, Nanos least) {
    if (sample.round_trip < (faster.empty() ? least : faster.back()->round_trip)) faster.push_back(&sample);
  };
  for (size_t i = 0; i < best_.size(); ++i) {
    const ClockSample& own = best_[i];
    before.clear(), after.clear();
    for (size_t steps = 1; steps <= kSettleReach; ++steps) {
      if (steps <= i) take(before, best_[i - steps], own.round_trip);
      if (i + steps < best_.size()) take(after, best_[i + steps], own.round_trip);
    }
    for (const ClockSample* const one : before)
      for (const ClockSample* const other : after) {
        const ClockOffset found = interpolate(*one, *other, own.at);
        if (2 * found.bound < settled[i].round_trip)
          settled[i] = {.at = own.at, .offset = found.offset, .round_trip = 2 * found.bound};
      }
  }
  best_ = std::move(settled);
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
