#include "timeline/transfers.h"

#include <algorithm>
#include <cmath>

namespace rueda::timeline {
namespace {

constexpr size_t kMaxTransfers = 1u << 16;  // different ones; the rest counts in the totals only
constexpr size_t kShown = 20;

// Until the last rank had its tensors ready, where rank 0 orders what all have ready.
Nanos negotiated_wait(const CallTimes& times) {
  const bool is_negotiated = times.submitted != 0 && times.ordered > times.submitted;
  return is_negotiated ? times.all_submitted() - times.submitted : 0;
}

}  // namespace

double bus_factor(Collective what, Rank ranks) {
  const auto n = static_cast<double>(ranks);
  if (ranks < 2) return 0;
  switch (what) {
    case Collective::kAllreduce:
      return 2 * (n - 1) / n;
    case Collective::kReducescatter:
    case Collective::kAlltoall:
      return (n - 1) / n;
    case Collective::kAllgather:
      return n - 1;
    case Collective::kBroadcast:
      return 1;
    case Collective::kJoin:
    case Collective::kBarrier:
      return 0;
  }
  return 0;
}

size_t Transfers::Hash::operator()(const Key& key) const {
  const auto mixed = static_cast<uint64_t>(key.bytes) * 0x9E3779B97F4A7C15u ^ uint64_t { key.name } << 20 ^
                     static_cast<uint64_t>(key.tensors);
  return mixed ^ mixed >> 29;
}

void Transfers::add(const Call& call, const CallTimes& times, Rank world) {
  ++calls_;
  planned_ += call.is_planned ? 1 : 0;
  bytes_ += call.bytes;
  const Nanos sent = times.unpack_began != 0 ? times.unpack_began : times.ended;
  const Nanos began = std::max(times.started, times.transfer_began);
  const Nanos arrived = std::clamp(times.started_last >= 0 ? times.last_started : began, began, sent);
  const double factor = call.process_set == 0 && !call.is_launched ? bus_factor(call.what, world) : 0;
  if (factor > 0) {
    bus_bytes_ += factor * static_cast<double>(call.bytes);
    bus_time_ += static_cast<double>(sent - arrived);
  }
  const Key key{call.name_id, call.tensors, call.bytes, call.what};
  if (totals_.size() >= kMaxTransfers && !totals_.contains(key)) return;
  Total& total = totals_[key];
  total.backend = call.backend_id;
  ++total.calls;
  total.transfer += sent - arrived;
  total.waiting += arrived - began + negotiated_wait(times);
  total.ranks = factor > 0 ? world : 1;
}

void Transfers::finish(const Names& names, int64_t files, Summary& summary) const {
  const auto ranks = static_cast<double>(std::max<int64_t>(files, 1));
  summary.calls = static_cast<double>(calls_) / ranks;
  summary.planned_calls = static_cast<double>(planned_) / ranks;
  summary.bytes = bytes_ / std::max<int64_t>(files, 1);
  if (bus_time_ > 0) summary.bus_gbps = bus_bytes_ / bus_time_;
  std::vector<std::pair<Key, Total>> sorted(totals_.begin(), totals_.end());
  std::ranges::sort(sorted, std::greater<>(), [](const auto& each) {
    return std::pair(each.second.transfer + each.second.waiting, each.first.bytes);
  });
  if (sorted.size() > kShown) sorted.resize(kShown);
  for (const auto& [key, total] : sorted) {
    const auto calls = static_cast<double>(total.calls);
    TransferSummary& made = summary.by_transfer.emplace_back();
    made.name = names.text(key.name);
    made.tensors = key.tensors;
    made.what = rueda::name_of(key.what);
    made.backend = names.text(total.backend);
    // Of calls that not all ranks take part in, at least one.
    made.calls = std::max<int64_t>(1, std::llround(calls / ranks));
    made.bytes = key.bytes;
    made.transfer = static_cast<double>(total.transfer) / calls;
    made.waiting = static_cast<double>(total.waiting) / calls;
    if (made.transfer > 0)
      made.bus_gbps = bus_factor(key.what, total.ranks) * static_cast<double>(key.bytes) / made.transfer;
  }
}

}  // namespace rueda::timeline
