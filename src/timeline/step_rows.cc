#include "timeline/step_rows.h"

#include <map>

namespace rueda::timeline {
namespace {

template <class Who>
std::vector<std::pair<Who, double>> mean_of(std::span<const StepSummary> rows, int64_t steps,
                                            std::vector<std::pair<Who, double>> StepSummary::*causes) {
  std::map<Who, double> sums;
  for (const StepSummary& row : rows)
    for (const auto& [who, time] : row.*causes)
      sums[who] += time * static_cast<double>(row.count) / static_cast<double>(steps);
  std::vector<std::pair<Who, double>> all(sums.begin(), sums.end());
  keep_largest(all);
  return all;
}

}  // namespace

StepSummary together(std::span<const StepSummary> rows) {
  StepSummary all{.first = rows.front().first, .count = 0};
  for (const StepSummary& row : rows) all.count += row.count;
  for (const StepSummary& row : rows) {
    const double part = static_cast<double>(row.count) / static_cast<double>(all.count);
    all.length += row.length * part;
    for (size_t s = 0; s < kShares; ++s) all.shares[s] += row.shares[s] * part;
  }
  all.waiting_for = mean_of(rows, all.count, &StepSummary::waiting_for);
  all.transfer_on = mean_of(rows, all.count, &StepSummary::transfer_on);
  return all;
}

}  // namespace rueda::timeline
