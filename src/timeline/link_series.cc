#include "timeline/link_series.h"

#include <algorithm>

namespace rueda::timeline {

void LinkSeries::add(Nanos when, const LinkTotal& total) {
  if (samples_.size() == kMostSamples) {
    for (size_t i = 0; i < kMostSamples / 2; ++i) samples_[i] = samples_[2 * i];
    samples_.resize(kMostSamples / 2);
  }
  samples_.push_back({when, total});
}

LinkTotal LinkSeries::at(Nanos when) const {
  const auto after = std::ranges::upper_bound(samples_, when, {}, &Sample::when);
  if (after == samples_.begin()) return after->total;
  const auto before = std::prev(after);
  if (after == samples_.end()) return before->total;
  const double part =
      static_cast<double>(when - before->when) / static_cast<double>(after->when - before->when);
  return timeline::between(before->total, after->total, part);
}

LinkTotal LinkSeries::between(Nanos from, Nanos until) const { return at(until) - at(from); }

}  // namespace rueda::timeline
