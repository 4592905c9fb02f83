#include "timeline/losses.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "timeline/units.h"

namespace rueda::timeline {
namespace {

constexpr size_t kMost = 256;  // of a rank; those that follow are one with the last

bool is_full(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

}  // namespace

void Losses::add(const Gap& gap) {
  const bool goes_on = !all_.empty() && (all_.back().until == 0 || all_.size() == kMost);
  if (!goes_on) all_.push_back({.from = last_, .mark_before = last_mark_});
  Loss& loss = all_.back();
  loss.until = loss.mark_after = 0;
  loss.records += gap.records;
  if (gap.error != 0) loss.error = gap.error;
}

void Losses::note(Nanos when, bool is_mark) {
  last_ = std::max(last_, when);
  if (is_mark) last_mark_ = when;
  if (all_.empty()) return;
  if (all_.back().until == 0) all_.back().until = when;
  if (is_mark && all_.back().mark_after == 0) all_.back().mark_after = when;
}

std::string losses_text(const std::vector<Loss>& losses, Nanos began) {
  if (losses.empty()) return {};
  int64_t records = 0;
  int error = 0;
  for (const Loss& loss : losses) {
    records += loss.records;
    if (loss.error != 0) error = loss.error;
  }
  const auto moment = [&](Nanos when) {
    return time_text(static_cast<double>(std::max(when - began, Nanos{0})));
  };
  const Nanos from = losses.front().from, until = losses.back().until;
  return fmt::format("{} {} {}from {}{}, because {}", records, records == 1 ? "record" : "records",
                     losses.size() == 1 ? std::string() : fmt::format("in {} places ", losses.size()),
                     from == 0 ? "its beginning" : moment(from) + " after it began",
                     until == 0 ? " to the end" : " to " + moment(until),
                     error == 0 ? "the disk was slower than the job"
                     : is_full(error)
                         ? fmt::format("its disk was full ({})", std::strerror(error))
                         : fmt::format("its file could not be written ({})", std::strerror(error)));
}

Stretch longest_whole(Stretch all, std::vector<Stretch> gaps) {
  std::ranges::sort(gaps, {}, &Stretch::from);
  gaps.push_back({all.until, all.until});
  Stretch longest{all.from, all.from};
  Nanos at = all.from;
  for (const Stretch& gap : gaps) {
    const Nanos end = std::min(gap.from, all.until);
    if (end > at && end - at > longest.until - longest.from) longest = {at, end};
    at = std::max(at, gap.until);
  }
  return longest;
}

}  // namespace rueda::timeline
