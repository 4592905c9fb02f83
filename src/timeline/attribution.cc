#include "timeline/attribution.h"

#include <algorithm>
#include <utility>

namespace rueda::timeline {
namespace {

constexpr std::array<std::string_view, kShares> kNames = {
    "compute", "input", "waiting", "transfer", "packing", "negotiation", "queue", "waking", "other"};

// What holds at a moment. The phases of calls come first, in the order in which they count.
enum Layer : uint8_t { kTransferring, kPacks, kWaits, kNegotiates, kQueues, kUnderWay, kBlocked, kInputs };
constexpr size_t kLayers = 8;

struct Edge {
  Nanos when = 0;
  Layer layer = kTransferring;
  int8_t change = 0;
  Rank rank = -1;  // kWaits: for whom
};

class Edges {
 public:
  explicit Edges(Interval within) : within_(within) {}
  void add(Layer layer, Nanos begin, Nanos end, Rank rank = -1) {
    begin = std::max(begin, within_.begin);
    end = std::min(end, within_.end);
    if (begin >= end) return;
    edges_.push_back({begin, layer, 1, rank});
    edges_.push_back({end, layer, -1, rank});
  }
  std::vector<Edge> sorted() && {
    std::ranges::sort(edges_, {}, &Edge::when);
    return std::move(edges_);
  }

 private:
  Interval within_;
  std::vector<Edge> edges_;
};

void add(const CallTimes& call, Edges& edges) {
  if (call.submitted != 0 && call.ordered > call.submitted) {
    const Nanos ready = call.all_submitted();
    edges.add(kWaits, call.submitted, ready, call.submitted_last);
    edges.add(kNegotiates, ready, call.ordered);
  }
  edges.add(kQueues, call.ordered, call.started);
  const Nanos began = std::max(call.started, call.transfer_began);
  edges.add(kPacks, call.started, began);
  const Nanos sent = call.unpack_began != 0 ? call.unpack_began : call.ended;
  const bool has_late = call.started_last >= 0 && call.last_started > began;
  const Nanos arrived = has_late ? std::min(call.last_started, sent) : began;
  edges.add(kWaits, began, arrived, call.started_last);
  edges.add(kTransferring, arrived, sent);
  edges.add(kPacks, sent, call.ended);
  edges.add(kUnderWay, call.started, call.ended);
}

// has_ended: a call has ended since the thread was blocked, or not long before.
StepShare share_of(const std::array<int32_t, kLayers>& open, bool has_ended) {
  if (open[kBlocked] > 0) {
    if (open[kTransferring] > 0) return StepShare::kTransfer;
    if (open[kPacks] > 0) return StepShare::kPacking;
    if (open[kWaits] > 0) return StepShare::kWaiting;
    if (open[kNegotiates] > 0) return StepShare::kNegotiation;
    if (open[kQueues] > 0) return StepShare::kQueue;
    return has_ended ? StepShare::kWaking : StepShare::kOther;
  }
  return open[kInputs] > 0 ? StepShare::kInput : StepShare::kCompute;
}

}  // namespace

std::string_view name_of(StepShare share) { return kNames[static_cast<size_t>(share)]; }

Nanos Attribution::total() const {
  Nanos sum = 0;
  for (const Nanos share : shares) sum += share;
  return sum;
}

Attribution attribute(const RankStepTimes& times) {
  Edges edges(times.step);
  for (const CallTimes& call : times.calls) add(call, edges);
  for (const Interval& each : times.blocked) edges.add(kBlocked, each.begin, each.end);
  for (const Interval& each : times.inputs) edges.add(kInputs, each.begin, each.end);
  Attribution result;
  std::array<int32_t, kLayers> open{};
  std::vector<Rank> awaited;  // one entry for each wait that is open
  Nanos at = times.step.begin;
  // A thread that is blocked when the step begins may wait for an earlier call. What ended since it was last
  // blocked may not have been handed over yet: the thread that does so gets no core either.
  bool has_ended = true;
  bool has_ended_lately =
      std::ranges::any_of(times.blocked, [&](const Interval& each) { return each.begin < times.step.begin; });
  const auto advance = [&](Nanos to) {
    const Nanos time = to - at;
    at = to;
    if (time <= 0) return;
    const StepShare share = share_of(open, has_ended);
    result.shares[static_cast<size_t>(share)] += time;
    if (share == StepShare::kWaiting) result.waiting_for[awaited.front()] += time;
    if (share == StepShare::kTransfer) result.transfers.push_back({to - time, to});
    if (open[kUnderWay] == 0) return;
    result.under_way += time;
    if (open[kBlocked] == 0) result.hidden += time;
  };
  for (const Edge& edge : std::move(edges).sorted()) {
    advance(edge.when);
    open[edge.layer] += edge.change;
    if (edge.layer == kBlocked && edge.change > 0 && open[kBlocked] == 1)
      has_ended = std::exchange(has_ended_lately, false);
    if (edge.layer == kUnderWay && edge.change < 0) has_ended = has_ended_lately = true;
    if (edge.layer != kWaits) continue;
    if (edge.change > 0)
      awaited.push_back(edge.rank);
    else
      awaited.erase(std::ranges::find(awaited, edge.rank));
  }
  advance(times.step.end);
  return result;
}

}  // namespace rueda::timeline
