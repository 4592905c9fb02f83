#include "timeline/losses.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "timeline/units.h"

namespace rueda::timeline {
namespace {

constexpr size_t kMostLosses = 256;  // of a rank; those that follow are one with the last

std::string moment(Nanos when, Nanos began) {
  return time_text(static_cast<double>(std::max(when - began, Nanos{0})));
}

bool is_full(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

}  // namespace

// Goes on with the last one where nothing has come since.
void Losses::begin_loss() {
  is_paused_ = false;
  const bool goes_on = !all_.empty() && (all_.back().until == 0 || all_.size() == kMostLosses);
  if (!goes_on) {
    Loss& made = all_.emplace_back();
    made.from = last_;
    made.mark_before = last_mark_;
  }
  all_.back().until = all_.back().mark_after = 0;
}

void Losses::add(const Gap& gap) {
  if (gap.records == 0) {
    is_paused_ = true;
    return;
  }
  begin_loss();
  Loss& loss = all_.back();
  loss.records += gap.records;
  if (gap.error != 0) loss.error = gap.error;
}

void Losses::note(Nanos when, bool is_mark) {
  if (is_paused_) begin_loss();
  last_ = std::max(last_, when);
  if (is_mark) last_mark_ = when;
  if (all_.empty()) return;
  if (all_.back().until == 0) all_.back().until = when;
  if (is_mark && all_.back().mark_after == 0) all_.back().mark_after = when;
}

std::string losses_text(const std::vector<Loss>& all, Nanos began) {
  std::vector<Loss> losses;
  std::ranges::copy_if(all, std::back_inserter(losses), [](const Loss& loss) { return loss.records > 0; });
  if (losses.empty()) return {};
  int64_t records = 0;
  int error = 0;
  for (const Loss& loss : losses) {
    records += loss.records;
    if (loss.error != 0) error = loss.error;
  }
  const Nanos from = losses.front().from, until = losses.back().until;
  return fmt::format("{} {}from {}{}, because {}", count_text(records, "record"),
                     losses.size() == 1 ? std::string() : fmt::format("in {} places ", losses.size()),
                     from == 0 ? "its beginning" : moment(from, began) + " after it began",
                     until == 0 ? " to the end" : " to " + moment(until, began),
                     error == 0 ? "the disk was slower than the job"
                     : is_full(error)
                         ? fmt::format("its disk was full ({})", std::strerror(error))
                         : fmt::format("its file could not be written ({})", std::strerror(error)));
}

std::string pauses_text(const std::vector<Loss>& all, Nanos began) {
  std::string text;
  size_t more = 0;
  for (const Loss& loss : all) {
    if (loss.records > 0) continue;
    if (text.empty())
      text = fmt::format("The timeline was stopped from {} to {} after it began", moment(loss.from, began),
                         moment(loss.until, began));
    else
      ++more;
  }
  if (more > 0) text += fmt::format(", and {} more", count_text(static_cast<int64_t>(more), "time"));
  return text.empty() ? text : text + ".";
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
