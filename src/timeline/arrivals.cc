#include "timeline/arrivals.h"

namespace rueda::timeline {

void Arrivals::add(const RankFile& file, const RankStep& step) {
  for (const Call& call : step.calls) {
    Last& last = calls_[key_of(call)];
    if (call.submitted > last.submitted) {
      last.submitted = call.submitted;
      last.submitted_by = &file;
    }
    if (call.started > last.started) {
      last.started = call.started;
      last.started_by = &file;
    }
    last.first_started = std::min(last.first_started, call.started);
  }
}

// A call may end in one step on one rank and in the next on another, so its entry may already be gone.
void Arrivals::forget(const std::vector<RankStep>& steps) {
  for (const RankStep& step : steps)
    for (const Call& call : step.calls) {
      const auto at = calls_.find(key_of(call));
      if (at == calls_.end()) continue;
      const Last& last = at->second;
      if (last.started_by != nullptr && last.started > last.first_started) ++counts_[last.started_by->rank];
      calls_.erase(at);
    }
}

CallTimes Arrivals::times_of(const Call& call, const RankFile& file) const {
  CallTimes times{.submitted = call.submitted,
                  .ordered = call.ordered,
                  .started = call.started,
                  .transfer_began = call.transfer_began,
                  .unpack_began = call.unpack_began,
                  .ended = call.ended};
  const auto at = calls_.find(key_of(call));
  if (at == calls_.end() || !file.is_aligned) return times;
  const Last& last = at->second;
  const auto is_later = [&](const RankFile* other, Nanos theirs, Nanos mine) {
    return other != nullptr && other->rank != file.rank && other->is_aligned &&
           theirs - mine > file.bound(*other, call.ended);
  };
  if (is_later(last.submitted_by, last.submitted, call.submitted)) {
    times.last_submitted = last.submitted;
    times.submitted_last = last.submitted_by->rank;
  }
  if (is_later(last.started_by, last.started, call.started)) {
    times.last_started = last.started;
    times.started_last = last.started_by->rank;
  }
  return times;
}

int64_t Arrivals::last_of(Rank rank) const {
  const auto at = counts_.find(rank);
  return at == counts_.end() ? 0 : at->second;
}

}  // namespace rueda::timeline
