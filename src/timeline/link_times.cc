#include "timeline/link_times.h"

#include <algorithm>
#include <set>

namespace rueda::timeline {
namespace {

constexpr int kMostHops = 64;  // beyond, nobody would follow

}  // namespace

// Goes through the moments at which something begins or ends at one rank.
class LinkTimes::Sweep {
 public:
  explicit Sweep(const std::vector<MessageTimes>& messages) {
    for (const MessageTimes& each : messages) {
      const Nanos began = std::min(each.began, each.ended);
      if (each.is_sent) {
        add({What::kSending, each.ended, each.peer}, began, each.ended);
      } else {
        add({What::kAwaiting, -each.ended, each.peer}, each.posted, began);
        add({What::kArriving, each.ended, each.peer}, began, each.ended);
      }
    }
    std::ranges::sort(edges_, {}, &Edge::when);
  }

  std::vector<Segment> run() {
    std::vector<Segment> segments;
    std::multiset<Open> open;
    for (const Edge& edge : edges_) {
      if (const Segment now = top(open, edge.when); segments.empty() || edge.when > segments.back().until)
        segments.push_back(now);
      if (edge.is_begin)
        open.insert(edge.open);
      else
        open.erase(open.find(edge.open));
    }
    return segments;
  }

 private:
  // The largest counts: bytes that arrive before those that are awaited, and these before those that leave.
  // Of what moves, that which ends last; of what is awaited, that which comes first.
  struct Open {
    What what;
    Nanos order;
    Rank peer;
    auto operator<=>(const Open&) const = default;
  };
  struct Edge {
    Nanos when;
    bool is_begin;
    Open open;
  };
  void add(const Open& open, Nanos begin, Nanos end) {
    if (begin >= end) return;
    edges_.push_back({begin, true, open});
    edges_.push_back({end, false, open});
  }
  static Segment top(const std::multiset<Open>& open, Nanos until) {
    if (open.empty()) return {.until = until};
    return {.until = until, .what = open.rbegin()->what, .peer = open.rbegin()->peer};
  }

  std::vector<Edge> edges_;
};

void LinkTimes::add(Rank rank, const std::vector<MessageTimes>& messages) {
  if (!messages.empty()) segments_[rank] = Sweep(messages).run();
}

Nanos LinkTimes::divide(Rank rank, const std::vector<Interval>& blocked, std::map<Link, Nanos>& links) const {
  Nanos left = 0;
  for (const Interval& each : blocked) left += follow(rank, each, 0, links);
  return left;
}

Nanos LinkTimes::follow(Rank rank, Interval during, int depth, std::map<Link, Nanos>& links) const {
  const auto mine = segments_.find(rank);
  if (mine == segments_.end() || depth == kMostHops) return during.end - during.begin;
  Nanos left = 0;
  auto at = std::ranges::upper_bound(mine->second, during.begin, {}, &Segment::until);
  for (Nanos from = during.begin; from < during.end; ++at) {
    if (at == mine->second.end()) return left + during.end - from;
    const Nanos until = std::min(at->until, during.end);
    switch (at->what) {
      case What::kNothing:
        left += until - from;
        break;
      case What::kSending:
        links[{rank, at->peer}] += until - from;
        break;
      case What::kArriving:
        links[{at->peer, rank}] += until - from;
        break;
      case What::kAwaiting:
        left += follow(at->peer, {from, until}, depth + 1, links);
        break;
    }
    from = until;
  }
  return left;
}

}  // namespace rueda::timeline
