#include "timeline/link_series.h"

#include <algorithm>

namespace rueda::timeline {

void LinkSeries::add(Nanos when, const trace::LinkTotal& total) {
  if (samples_.size() == kMostSamples) {
    for (size_t i = 0; i < kMostSamples / 2; ++i) samples_[i] = samples_[2 * i];
    samples_.resize(kMostSamples / 2);
  }
  samples_.push_back({when, total});
}

trace::LinkTotal LinkSeries::at(Nanos when) const {
  const auto after = std::ranges::upper_bound(samples_, when, {}, &Sample::when);
  if (after == samples_.begin()) return after->total;
  const auto before = std::prev(after);
  if (after == samples_.end()) return before->total;
  const double part =
      static_cast<double>(when - before->when) / static_cast<double>(after->when - before->when);
  trace::LinkTotal total = before->total;
  for (int64_t trace::LinkTotal::*count :
       {&trace::LinkTotal::bytes, &trace::LinkTotal::busy, &trace::LinkTotal::pauses,
        &trace::LinkTotal::awaited_bytes, &trace::LinkTotal::awaited})
    total.*count += static_cast<int64_t>(part * static_cast<double>(after->total.*count - total.*count));
  return total;
}

trace::LinkTotal LinkSeries::between(Nanos from, Nanos until) const {
  const trace::LinkTotal a = at(from), b = at(until);
  return {.bytes = b.bytes - a.bytes,
          .busy = b.busy - a.busy,
          .pauses = b.pauses - a.pauses,
          .awaited_bytes = b.awaited_bytes - a.awaited_bytes,
          .awaited = b.awaited - a.awaited};
}

}  // namespace rueda::timeline
