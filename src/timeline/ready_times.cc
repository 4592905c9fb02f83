#include "timeline/ready_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace rueda::timeline {
namespace {

// The time that passes while the program is not blocked.
class ComputingClock {
 public:
  explicit ComputingClock(std::vector<Interval> blocked) {
    std::ranges::sort(blocked, {}, &Interval::begin);
    for (const Interval& each : blocked) {
      if (!blocked_.empty() && each.begin <= blocked_.back().end)
        blocked_.back().end = std::max(blocked_.back().end, each.end);
      else if (each.end > each.begin)
        blocked_.push_back(each);
    }
    Nanos sum = 0;
    for (const Interval& each : blocked_) {
      before_.push_back(sum);
      sum += each.end - each.begin;
    }
  }

  [[nodiscard]] Nanos at(Nanos when) const {
    const size_t after = first_after(when);
    if (after == 0) return when;
    const Interval& last = blocked_[after - 1];
    return when - before_[after - 1] - (std::min(when, last.end) - last.begin);
  }
  // When the wait has ended that is the last to begin before `until`; 0: there is none.
  [[nodiscard]] Nanos end_of_last_wait(Nanos until) const {
    const size_t after = first_after(until);
    return after == 0 ? 0 : std::min(blocked_[after - 1].end, until);
  }

 private:
  // The first wait that begins at that time or later.
  [[nodiscard]] size_t first_after(Nanos when) const {
    return static_cast<size_t>(std::ranges::lower_bound(blocked_, when, {}, &Interval::begin) -
                               blocked_.begin());
  }

  std::vector<Interval> blocked_;  // in order, apart from one another
  std::vector<Nanos> before_;      // [blocked_]: how long was waited before
};

using Submissions = std::span<const Submission>;

// Those of each step, from mark to mark.
std::vector<Submissions> by_step(const StepEvents& events) {
  std::vector<Submissions> steps;
  const Submissions all = events.submissions;
  for (size_t k = 0; k + 1 < events.marks.size(); ++k) {
    const auto from = std::ranges::lower_bound(all, events.marks[k].when, {}, &Submission::when);
    const auto to = std::ranges::lower_bound(all, events.marks[k + 1].when, {}, &Submission::when);
    steps.emplace_back(from, to);
  }
  return steps;
}

// How often each name comes.
using Counts = std::unordered_map<std::string_view, int64_t>;

// rare: a name that comes less often is one with a running number, if it has any.
void add_step(Submissions step, const Counts& counts, int64_t rare, const ComputingClock& clock, Nanos begin,
              ReadyTimes& out) {
  std::unordered_map<std::string, int> seen;
  for (const Submission& each : step) {
    std::string name = counts.at(each.name) < rare ? without_number(each.name) : std::string(each.name);
    if (const int times = ++seen[name]; times > 1) name += fmt::format(" ({})", times);
    const auto [at, is_new] = out.tensors.try_emplace(std::move(name));
    ReadyTensor& tensor = at->second;
    if (is_new) tensor.first = out.tensors.size();
    tensor.what = each.what;
    tensor.bytes = each.bytes;
    tensor.waited_for += each.is_waited_for ? 1 : 0;
    tensor.ready_ms.push_back(static_cast<double>(clock.at(each.when) - clock.at(begin)) / 1e6);
  }
}

}  // namespace

ReadyTimes ready_times_of(StepEvents events, bool knows_waits) {
  ReadyTimes out;
  std::ranges::sort(events.submissions, {}, &Submission::when);
  const std::vector<Submissions> steps = by_step(events);
  for (size_t k = 0; !knows_waits && k < steps.size(); ++k) {
    if (steps[k].empty()) continue;
    const Nanos ended = std::ranges::max_element(steps[k], {}, &Submission::ended)->ended;
    events.blocked.push_back({steps[k].back().when, std::min(ended, events.marks[k + 1].when)});
  }
  const ComputingClock clock(events.blocked);
  // The first step tells where the second one begins.
  std::vector<Nanos> ends;
  for (size_t k = 0; k < steps.size(); ++k) {
    const Nanos mark = events.marks[k + 1].when, waited = clock.end_of_last_wait(mark);
    ends.push_back(!steps[k].empty() && waited > steps[k].back().when ? waited : mark);
  }
  std::vector<size_t> whole;
  for (size_t k = 1; k < steps.size(); ++k)
    if (!steps[k].empty() && !events.marks[k].follows_gap && !events.marks[k + 1].follows_gap)
      whole.push_back(k);
  out.steps = std::ssize(whole);
  Counts counts;
  for (const Submission& each : events.submissions) ++counts[each.name];
  for (const int64_t warm_ups = warm_ups_of(out.steps); const size_t k : whole) {
    if (static_cast<int64_t>(k) <= warm_ups) continue;
    out.computed_ms.push_back(static_cast<double>(clock.at(ends[k]) - clock.at(ends[k - 1])) / 1e6);
    add_step(steps[k], counts, out.steps / 2, clock, ends[k - 1], out);
  }
  return out;
}

}  // namespace rueda::timeline
