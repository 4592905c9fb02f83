// Rows of steps, of which long jobs take several together. Memory is bounded. Pure.
#pragma once

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "timeline/summary.h"

namespace rueda::timeline {

inline constexpr size_t kKeptCauses = 4;  // of a row, for each share that has some

// The largest of them, most first.
template <class Who>
void keep_largest(std::vector<std::pair<Who, double>>& causes) {
  std::ranges::sort(causes, [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  if (causes.size() > kKeptCauses) causes.resize(kKeptCauses);
}

// The mean of rows that follow one another; there is at least one.
StepSummary together(std::span<const StepSummary> rows);

}  // namespace rueda::timeline
