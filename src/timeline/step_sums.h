// Sums by step, and where most of them lies. Memory is bounded: steps next to one another are taken together.
// Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace rueda::timeline {

struct StepRange {
  int64_t first = 0, last = -1;  // both are in it; last < first: none
  [[nodiscard]] int64_t count() const { return last - first + 1; }
};

class StepSums {
 public:
  static constexpr size_t kMost = 512;

  // step: not smaller than any before.
  void add(int64_t step, double value) {
    while (static_cast<size_t>(step / together_) >= kMost) halve();
    const auto at = static_cast<size_t>(step / together_);
    if (sums_.size() <= at) sums_.resize(at + 1);
    sums_[at] += value;
  }

  // Of the steps in the range, and of those that are taken together with them.
  [[nodiscard]] double sum(const StepRange& range) const {
    double sum = 0;
    for (auto at = static_cast<size_t>(range.first / together_);
         at < sums_.size() && static_cast<int64_t>(at) * together_ <= range.last; ++at)
      sum += sums_[at];
    return sum;
  }

  // The fewest steps in a row that hold this part of the sum of all, of which there are so many.
  [[nodiscard]] StepRange shortest_with(double part, int64_t steps) const {
    const double needed = part * std::accumulate(sums_.begin(), sums_.end(), 0.0);
    StepRange best;
    if (needed <= 0) return best;
    double sum = 0;
    for (size_t from = 0, to = 0; to < sums_.size(); ++to) {
      sum += sums_[to];
      while (sum - sums_[from] >= needed) sum -= sums_[from++];
      const StepRange range{.first = static_cast<int64_t>(from) * together_,
                            .last = std::min(static_cast<int64_t>(to + 1) * together_, steps) - 1};
      if (sum >= needed && (best.count() == 0 || range.count() < best.count())) best = range;
    }
    return best;
  }

 private:
  void halve() {
    for (size_t i = 0; i < sums_.size(); ++i) {
      const double value = sums_[i];
      sums_[i] = 0;
      sums_[i / 2] += value;
    }
    sums_.resize((sums_.size() + 1) / 2);
    together_ *= 2;
  }

  std::vector<double> sums_;  // of so many steps each
  int64_t together_ = 1;
};

}  // namespace rueda::timeline
