#include "timeline/division.h"

#include <algorithm>
#include <vector>

#include "timeline/job.h"
#include "timeline/losses.h"

namespace rueda::timeline {
namespace {

constexpr Nanos kWindow = kSecond;        // where a program marks no steps
constexpr int64_t kMaxWindows = 1 << 16;  // 18 hours; beyond, windows grow: the times may be damaged

std::vector<Stretch> gaps_of(const Job& job, Nanos Loss::*end) {
  std::vector<Stretch> gaps;
  for (const RankFile& file : job.ranks)
    for (const Loss& loss : file.losses.all())
      gaps.push_back({loss.from == 0 ? INT64_MIN : file.aligned(loss.from),
                      loss.*end == 0 ? INT64_MAX : file.aligned(loss.*end)});
  return gaps;
}

// Of a rank, without the time in which marks are missing.
Nanos step_of(const RankFile& file) {
  auto time = static_cast<double>(file.steps.last_mark - file.steps.first_mark);  // sums of damaged times
  int64_t steps = file.steps.marks - 1;
  for (const Loss& loss : file.losses.all()) {
    if (loss.mark_before == 0 || loss.mark_after == 0) continue;
    time -= static_cast<double>(loss.mark_after - loss.mark_before);
    --steps;
  }
  return static_cast<Nanos>(std::max(time, 0.0) / static_cast<double>(std::max<int64_t>(steps, 1)));
}

Division windows_of(const Job& job) {
  Stretch all{INT64_MAX, 0};
  for (const RankFile& file : job.ranks) {
    if (file.calls == 0) continue;
    all.from = std::min(all.from, file.aligned(file.first));
    all.until = std::max(all.until, file.aligned(file.last));
  }
  if (all.until < all.from) all.from = all.until = 0;
  const std::vector<Stretch> gaps = gaps_of(job, &Loss::until);
  if (!gaps.empty()) all = longest_whole(all, gaps);
  // A short job is one window of its own length.
  const Nanos span = std::max<Nanos>(all.until - all.from, 1);
  return {.from = all.from,
          .window = std::max(std::min(kWindow, span), span / kMaxWindows),
          .until = all.until,
          .is_part = !gaps.empty()};
}

// Whether the first marks of all ranks are of one step: they have equally many, and the middle of their marks
// is less than half a step apart. A single mark may be late by more on a busy machine.
bool begin_alike(const Job& job, Nanos step) {
  Nanos earliest = INT64_MAX, latest = INT64_MIN;
  for (const RankFile& file : job.ranks) {
    const Nanos first = file.aligned(file.steps.first_mark), last = file.aligned(file.steps.last_mark);
    const Nanos middle = first + (last - first) / 2;
    earliest = std::min(earliest, middle);
    latest = std::max(latest, middle);
    if (file.steps.marks != job.ranks.front().steps.marks) return false;
  }
  return latest - earliest < step / 2;
}

}  // namespace

// Ranks that record only their last minute begin at different steps. A step ends on all ranks at about the
// same time, because they need the same gradients. Where records are missing, so are marks, and the ranks
// would no longer be in the same step: the longest part without gaps is taken.
Division division_of(const Job& job) {
  const bool has_steps = std::ranges::all_of(job.ranks, [](const RankFile& f) { return f.steps.marks >= 2; });
  if (!has_steps) return windows_of(job);
  Nanos earliest = INT64_MAX, latest = INT64_MIN, step = INT64_MAX, end = INT64_MIN;
  for (const RankFile& file : job.ranks) {
    earliest = std::min(earliest, file.aligned(file.steps.first_mark));
    latest = std::max(latest, file.aligned(file.steps.first_mark));
    end = std::max(end, file.aligned(file.steps.last_mark));
    step = std::min(step, step_of(file));
  }
  const std::vector<Stretch> gaps = gaps_of(job, &Loss::mark_after);
  if (gaps.empty()) return {.from = begin_alike(job, step) ? earliest : latest - step / 2};
  const Stretch whole = longest_whole({latest, end}, gaps);
  return {.from = whole.from - step / 2, .until = whole.until, .is_part = true};
}

}  // namespace rueda::timeline
