// What was counted of one link again and again while the job ran, in bounded memory. Pure.
#pragma once

#include <vector>

#include "rueda/base/clock.h"
#include "timeline/link_speeds.h"

namespace rueda::timeline {

class LinkSeries {
 public:
  // In the order of time. Counts only grow. Of many samples every other one is forgotten.
  void add(Nanos when, const LinkTotal& total);
  // The rest of what belongs to the last sample.
  [[nodiscard]] LinkTotal& last() { return samples_.back().total; }
  [[nodiscard]] bool is_empty() const { return samples_.empty(); }
  [[nodiscard]] const LinkTotal& total() const { return samples_.back().total; }
  [[nodiscard]] Nanos begin() const { return samples_.front().when; }
  [[nodiscard]] Nanos end() const { return samples_.back().when; }
  // What was added in this time; between samples, as if it had come evenly.
  [[nodiscard]] LinkTotal between(Nanos from, Nanos until) const;

 private:
  static constexpr size_t kMostSamples = 128;
  struct Sample {
    Nanos when = 0;
    LinkTotal total;
  };
  [[nodiscard]] LinkTotal at(Nanos when) const;

  std::vector<Sample> samples_;
};

}  // namespace rueda::timeline
