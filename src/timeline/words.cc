#include "timeline/words.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "timeline/units.h"

namespace rueda::timeline {
namespace {

constexpr size_t kShownCritical = 4;

}  // namespace

std::string_view explain(Share share) {
  switch (share) {
    case Share::kCompute:
      return "everything that is not below";
    case Share::kInput:
      return "waiting for the next batch";
    case Share::kWaiting:
      return "blocked until the last rank came";
    case Share::kTransfer:
      return "blocked while bytes moved";
    case Share::kPacking:
      return "blocked while tensors were copied together or apart";
    case Share::kNegotiation:
      return "blocked while rank 0 ordered what all had ready";
    case Share::kQueue:
      return "blocked behind other transfers that had not begun";
    case Share::kWaking:
      return "blocked after the transfer had ended: no core was free";
    case Share::kOther:
      return "blocked, and no record says by what";
  }
  return {};
}

std::string_view lateness_text(Lateness why) {
  switch (why) {
    case Lateness::kNone:
      return "";
    case Lateness::kCompute:
      return "computes longer";
    case Lateness::kInput:
      return "waits for input";
    case Lateness::kRarely:
      return "in few steps";
    case Lateness::kUnknown:
      return "at times";
  }
  return {};
}

std::string shares_text(const Shares& shares, double least) {
  std::string text;
  for (size_t i = 0; i < kShares; ++i) {
    if (shares[i] <= 0 || shares[i] < least) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(static_cast<Share>(i)),
                        time_text(shares[i]));
  }
  return text;
}

std::string clocks_text(const Summary& s) {
  if (s.clock_bound <= 0) return {};
  return fmt::format("Clocks of hosts agree within {}; smaller differences are not called waiting.",
                     time_text(s.clock_bound));
}

std::string critical_ranks_text(const Summary& s) {
  if (s.by_rank.size() < 2) return {};
  std::vector<RankSummary> sorted = s.by_rank;
  std::ranges::stable_sort(sorted, std::greater<>(), &RankSummary::critical);
  std::string who;
  size_t shown = 0;
  for (const RankSummary& rank : sorted) {
    if (rank.critical == 0 || shown == kShownCritical) break;
    const double part = static_cast<double>(rank.critical) / static_cast<double>(s.steps);
    who += fmt::format("{}rank {} in {}", shown++ == 0 ? "" : ", ", rank.rank, percent_text(part));
  }
  return who + " of the steps";
}

std::string transfers_text(const Summary& s) {
  std::string text = fmt::format(
      "{} in {} for each rank, {} by a learned plan", s.calls, size_text(s.bytes),
      percent_text(s.calls == 0 ? 0 : static_cast<double>(s.planned_calls) / static_cast<double>(s.calls)));
  if (s.bus_gbps > 0) text += fmt::format(", {:.3g} GB/s on the bus", s.bus_gbps);
  return text;
}

std::string gbps_text(double gbps) { return gbps > 0 ? fmt::format("{:.3g} GB/s", gbps) : std::string("?"); }

std::string for_terminal(std::string text) {
  for (char& c : text)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7F) c = '?';
  return text;
}

double length_of(const RankSummary& rank) {
  double length = 0;
  for (const double share : rank.shares) length += share;
  return length;
}

std::vector<RankSummary> latest_first(std::vector<RankSummary> ranks) {
  std::ranges::stable_sort(ranks, std::greater<>(), &RankSummary::cost);
  return ranks;
}

std::vector<LinkSummary> slowest_first(std::vector<LinkSummary> links) {
  std::ranges::stable_sort(links, {}, [](const LinkSummary& link) {
    return std::pair(!(link.is_slow_out || link.is_slow_in), std::min(link.out_gbps, link.in_gbps));
  });
  return links;
}

}  // namespace rueda::timeline
