#include "timeline/late_calls.h"

#include <algorithm>

#include "timeline/arrivals.h"

namespace rueda::timeline {
namespace {

constexpr double kFewCalls = 0.4;    // waits that vary by chance alone, exponentially, are 0.5
constexpr int64_t kKeptWindows = 2;  // a call ends on another rank at most so much later

}  // namespace

void LateCalls::add(const std::vector<RankStep>& windows) {
  ++window_;
  for (size_t i = 0; i < windows.size(); ++i) add_window(i, windows[i]);
  std::erase_if(open_, [&](const auto& one) { return one.second.window + kKeptWindows < window_; });
}

void LateCalls::add_window(size_t rank, const RankStep& window) {
  OneRank& mine = ranks_[rank];
  std::vector<const Call*> calls;
  for (const Call& call : window.calls) calls.push_back(&call);
  std::ranges::stable_sort(calls, {}, [](const Call* call) { return begin_of(*call); });
  size_t next_input = 0;
  for (const Call* call : calls) {
    const Nanos begin = begin_of(*call);
    Arrival now{.rank = rank, .submitted = begin};
    if (mine.before != 0) now.compute = std::max<Nanos>(0, begin - mine.before);
    for (; next_input < window.inputs.size() && window.inputs[next_input].first < begin; ++next_input) {
      const auto& [from, to] = window.inputs[next_input];
      now.input += std::max<Nanos>(0, std::min(to, begin) - std::max(from, mine.before));
    }
    now.input = std::min(now.input, now.compute);
    now.compute -= now.input;
    mine.before = std::max({mine.before, begin, call->ended});
    const uint64_t key = Arrivals::key_of(*call);
    Open& open = open_[key];
    open.window = window_;
    open.arrivals.push_back(now);
    if (open.arrivals.size() < ranks_.size()) continue;
    judge(open.arrivals);
    open_.erase(key);
  }
}

void LateCalls::judge(const std::vector<Arrival>& arrivals) {
  const Arrival& last = *std::ranges::max_element(arrivals, {}, &Arrival::submitted);
  double waited = 0;
  std::vector<Nanos> others;
  for (const Arrival& one : arrivals) {
    waited += static_cast<double>(last.submitted - one.submitted);
    if (&one != &last) others.push_back(one.input + one.compute);
  }
  if (others.empty()) return;
  // What it did before this call explains no longer wait.
  waited =
      std::min(waited / static_cast<double>(others.size()), static_cast<double>(last.input + last.compute));
  const auto middle = others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2);
  std::ranges::nth_element(others, middle);
  usual_.add(static_cast<double>(*middle));
  ranks_[last.rank].waited.add(waited);
  for (const Arrival& one : arrivals)
    ranks_[one.rank].samples.add({.step = count_,
                                  .wait = &one == &last ? static_cast<float>(waited) : 0,
                                  .input = static_cast<float>(one.input),
                                  .compute = static_cast<float>(one.compute)});
  ++count_;
}

bool LateCalls::is_late_to_few(size_t rank) const {
  const double calls = usual_.count();
  return calls > 0 && ranks_[rank].waited.count() <= kFewCalls * calls;
}

}  // namespace rueda::timeline
