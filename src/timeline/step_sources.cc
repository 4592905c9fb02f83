#include "timeline/step_sources.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace rueda::timeline {
namespace {
constexpr size_t kMostSources = 4096;  // a damaged file may name more
}

void StepSources::add(int64_t source, Nanos when) {
  if (marks_.size() >= kMostSources && !marks_.contains(source)) return;
  Marks& marks = marks_[source];
  if (marks.count++ == 0) marks.first = when;
  marks.last = when;
}

Steps StepSources::steps() const {
  std::vector<std::pair<int64_t, Marks>> by_first(marks_.begin(), marks_.end());
  std::ranges::sort(by_first, {}, [](const auto& each) { return each.second.first; });
  Steps steps;
  for (const auto& [source, marks] : by_first) {
    if (steps.marks > 0 && marks.first <= steps.last_mark) continue;
    if (steps.marks == 0) steps.first_mark = marks.first;
    steps.marks += marks.count;
    steps.last_mark = marks.last;
    steps.sources.insert(source);
  }
  return steps;
}

}  // namespace rueda::timeline
