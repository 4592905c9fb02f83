#include "rueda/schedule/token_bucket.h"

#include <algorithm>

namespace rueda::schedule {

double TokenBucket::pass(double bytes, double at_us) {
  if (burst_ <= 0) return at_us + bytes / rate_;
  credit_ = std::min(burst_, credit_ + rate_ * std::max(0.0, at_us - known_us_));
  const double at_peak = std::min(bytes, credit_ * peak_ / (peak_ - rate_));  // credit comes back meanwhile
  const double peak_us = at_peak / peak_;
  credit_ = std::max(0.0, credit_ + rate_ * peak_us - at_peak);
  known_us_ = at_us + peak_us + (bytes - at_peak) / rate_;
  return known_us_;
}

}  // namespace rueda::schedule
