#include "rueda/status/meters.h"

#include <algorithm>

namespace rueda::status {
namespace {

// Shorter ones are the transfer's own.
constexpr Nanos kShortestStill = kMillisecond;

void add(Count& counter, int64_t more) { counter.fetch_add(more, std::memory_order_relaxed); }

void add_time(Count& counter, Nanos from, Nanos to) {
  if (from != 0 && to > from) add(counter, to - from);
}

}  // namespace

void Meters::called(const CallTrace& call) {
  const auto what = static_cast<size_t>(call.what);
  if (what >= kCollectives) return;
  add(calls[what], 1);
  add(bytes[what], call.bytes);
  add(tensors[what], call.tensors);
  if (call.is_planned) add(planned_calls, 1);
  // A bucket of a learned plan is not negotiated. What its call does while a rank has not come is waiting.
  const Nanos still = call.is_planned && call.still >= kShortestStill ? call.still : 0;
  if (call.is_planned)
    add(others_ns, still);
  else
    add_time(others_ns, call.submitted, call.ordered);
  add_time(queued_ns, call.is_planned && call.submitted != 0 ? call.submitted : call.ordered, call.started);
  add_time(running_ns, call.started + still, call.ended);
  if (call.submitted != 0 && call.ended > call.submitted) call_time.add(call.ended - call.submitted);
}

void Meters::waited_for(Rank rank, Nanos duration) {
  for (Late& late : late_ranks) {
    const Rank owner = late.rank.load(std::memory_order_relaxed);
    if (owner == rank) return add(late.waited_ns, duration);
    if (owner >= 0) continue;
    Nanos& before = not_yet_late_[rank];
    before += duration;
    if (before < kSecond) break;
    not_yet_late_.erase(rank);
    late.rank.store(rank, std::memory_order_relaxed);
    return add(late.waited_ns, duration);
  }
  add(other_late_ns, duration);
}

// Another source takes over when the one that counts seems to have gone: it is the first to mark a second
// time since, or several others have marked many times.
bool Meters::counts(int64_t source) {
  constexpr int64_t kManyMarks = 8;
  int64_t counting = 0;
  if (!source_.compare_exchange_strong(counting, source) && counting != source) {
    int64_t rival = 0;
    const bool is_first = rival_.compare_exchange_strong(rival, source);
    const int64_t others = others_.fetch_add(1, std::memory_order_relaxed) + 1;
    if (is_first || (rival != source && others < kManyMarks)) return false;
    source_.store(source, std::memory_order_relaxed);
  }
  rival_.store(0, std::memory_order_relaxed);
  others_.store(0, std::memory_order_relaxed);
  return true;
}

void Meters::stepped(Nanos now, int64_t source) {
  if (!counts(source == 0 ? -1 : source)) return;  // 0 is kept for "none"
  const int64_t number = steps.fetch_add(1, std::memory_order_relaxed);
  const auto place = static_cast<size_t>(number);
  const Nanos before = number > 0 ? recent_[(place - 1) % kRecent].load(std::memory_order_relaxed) : 0;
  recent_[place % kRecent].store(now, std::memory_order_relaxed);
  if (before != 0 && now > before) step_time.add(now - before);
}

Meters::Recent Meters::recent_steps() const {
  const int64_t count = steps.load(std::memory_order_relaxed);
  if (count < 1) return {};
  const auto kept = static_cast<size_t>(std::min<int64_t>(count, kRecent));
  const auto at = [&](size_t number) { return recent_[number % kRecent].load(std::memory_order_relaxed); };
  return {.steps = static_cast<int64_t>(kept) - 1,
          .began = at(static_cast<size_t>(count) - kept),
          .last = at(static_cast<size_t>(count) - 1)};
}

}  // namespace rueda::status
