#include "timeline/words.h"

#include <algorithm>
#include <ctime>
#include <functional>
#include <utility>

#include "timeline/units.h"

namespace rueda::timeline {
namespace {

constexpr size_t kShownCritical = 4, kShownHosts = 16;
constexpr double kFewGbps = 0.0995;  // below, MB/s are easier to read
constexpr double kIsLate = 0.01;     // of a step for which others wait

// more(share): what follows it.
template <class More>
std::string shares_with(const Shares& shares, double least, const More& more) {
  std::string text;
  for (size_t i = 0; i < kShares; ++i) {
    if (shares[i] <= 0 || shares[i] < least) continue;
    const auto share = static_cast<StepShare>(i);
    text +=
        fmt::format("{}{} {}{}", text.empty() ? "" : ", ", name_of(share), time_text(shares[i]), more(share));
  }
  return text;
}

// Of all that passed in messages.
SpeedUnit unit_of_messages(const Summary& s) {
  double most = 0;
  for (const LinkTransfer& link : s.by_link) most = std::max({most, link.gbps, link.measured_gbps});
  return speed_unit(most);
}

}  // namespace

std::string_view explain(StepShare share) {
  switch (share) {
    case StepShare::kCompute:
      return "everything that is not below";
    case StepShare::kInput:
      return "waiting for the next batch";
    case StepShare::kWaiting:
      return "blocked until the last rank came";
    case StepShare::kTransfer:
      return "blocked while bytes moved";
    case StepShare::kPacking:
      return "blocked while tensors were copied together or apart";
    case StepShare::kNegotiation:
      return "blocked while rank 0 ordered what all had ready";
    case StepShare::kQueue:
      return "blocked behind other transfers that had not begun";
    case StepShare::kWaking:
      return "blocked after the transfer had ended: no core was free";
    case StepShare::kOther:
      return "blocked, and no record says by what";
  }
  return {};
}

std::string_view lateness_text(const Summary& summary, const RankSummary& rank) {
  if (rank.cost < kIsLate * summary.step_length) return {};
  switch (rank.why) {
    case Lateness::kNone:
      return "";
    case Lateness::kCompute:
      return "computes longer";
    case Lateness::kInput:
      return "waits for input";
    case Lateness::kTransfer:
      return "transfers last longer";
    case Lateness::kRarely:
      return "in few steps";
    case Lateness::kInputAtTimes:
      return "input at times";
    case Lateness::kComputeAtTimes:
      return "computes at times";
    case Lateness::kUnknown:
      return "at times";
  }
  return {};
}

std::string shares_text(const Shares& shares, double least) {
  return shares_with(shares, least, [](StepShare) { return std::string(); });
}

std::string step_text(const StepSummary& step) {
  return shares_with(step.shares, 1, [&](StepShare share) -> std::string {
    if (share == StepShare::kWaiting && !step.waiting_for.empty()) {
      const auto& [rank, time] = step.waiting_for.front();
      return fmt::format(", of it {} for rank {}", time_text(time), rank);
    }
    if (share == StepShare::kTransfer && !step.transfer_on.empty()) {
      const auto& [link, time] = step.transfer_on.front();
      return fmt::format(", of it {} from rank {} to rank {}", time_text(time), link.first, link.second);
    }
    return {};
  });
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
  // Where process sets have calls of their own, a rank may have had less than one on average.
  const std::string calls = s.calls < 9.95 ? fmt::format("{:.2g}", s.calls) : fmt::format("{:.0f}", s.calls);
  std::string text = fmt::format("{} in {} for each rank", calls, size_text(s.bytes));
  if (s.size > 1)  // a single rank learns no plan
    text += fmt::format(", {} by a learned plan", percent_text(s.calls > 0 ? s.planned_calls / s.calls : 0));
  if (s.bus_gbps > 0) text += fmt::format(", {} on the bus", gbps_text(s.bus_gbps));
  return text;
}

std::string head_text(const Summary& s) {
  const std::string steps = count_text(s.steps, s.has_steps ? "step" : "window");
  return fmt::format("{}, epoch {}, {} of {}{} (median {}, 95th percentile {})", count_text(s.size, "rank"),
                     s.epoch, steps, s.has_steps ? "" : "time (the program marks no steps) of ",
                     time_text(s.step_length), time_text(s.step_p50), time_text(s.step_p95));
}

std::string job_text(const Summary& s) {
  std::string text = "Job " + s.job;
  if (s.began_micros <= 0) return text;
  const auto seconds = static_cast<time_t>(s.began_micros / 1'000'000);
  tm utc{};
  std::array<char, 32> when{};
  if (gmtime_r(&seconds, &utc) == nullptr) return text;
  const size_t used = strftime(when.data(), when.size(), "%Y-%m-%d %H:%M:%S", &utc);
  return fmt::format("{}, begun {} UTC", text, std::string_view(when.data(), used));
}

std::string hosts_text(const Summary& s) {
  std::vector<std::pair<std::string, std::vector<Rank>>> hosts;
  for (const RankSummary& rank : s.by_rank) {
    auto at = std::ranges::find(hosts, rank.host, &decltype(hosts)::value_type::first);
    if (at == hosts.end()) at = hosts.insert(at, {rank.host, {}});
    at->second.push_back(rank.rank);
  }
  std::string text;
  for (size_t i = 0; i < std::min(hosts.size(), kShownHosts); ++i) {
    const auto& [host, ranks] = hosts[i];
    const bool is_row = ranks.back() - ranks.front() + 1 == std::ssize(ranks);
    text += fmt::format("{}{} ({})", i == 0 ? "" : ", ", host,
                        ranks.size() == 1 ? fmt::format("rank {}", ranks.front())
                        : is_row          ? fmt::format("ranks {}-{}", ranks.front(), ranks.back())
                                          : count_text(std::ssize(ranks), "rank"));
  }
  if (hosts.size() > kShownHosts) text += fmt::format(" and {} more", hosts.size() - kShownHosts);
  return text;
}

std::string no_advice_text() {
  return fmt::format("Nothing in these records takes more than {} of a step and could be saved.",
                     percent_text(kWorthAdvice));
}

LinkCells link_heads(const Summary& s, std::string_view arrow) {
  const std::string unit = unit_of_messages(s).name;
  return {fmt::format("from {} to", arrow), "of a step", "part", "bytes a step", unit, "busy " + unit};
}

std::vector<LinkCells> link_rows(const Summary& s, size_t most, std::string_view arrow) {
  const double transfer = s.shares[static_cast<size_t>(StepShare::kTransfer)];
  const auto speed = [unit = unit_of_messages(s)](double gbps) {
    return gbps > 0 ? unit.text(gbps) : std::string();
  };
  const auto part = [&](double time) { return percent_text(transfer > 0 ? time / transfer : 0); };
  std::vector<LinkCells> rows;
  for (size_t i = 0; i < std::min(s.by_link.size(), most); ++i) {
    const LinkTransfer& link = s.by_link[i];
    rows.push_back({fmt::format("{} {} {}", link.from, arrow, link.to), time_text(link.blocked),
                    part(link.blocked), size_text(static_cast<int64_t>(link.bytes)), speed(link.gbps),
                    speed(link.measured_gbps)});
  }
  rows.push_back({"no link", time_text(s.off_links), part(s.off_links), "", "", ""});
  return rows;
}

std::string gbps_text(double gbps) {
  if (gbps <= 0) return "?";
  const SpeedUnit unit = speed_unit(gbps);
  return fmt::format("{} {}", unit.text(gbps), unit.name);
}

SpeedUnit speed_unit(double largest_gbps) {
  return largest_gbps < kFewGbps ? SpeedUnit{"MB/s", 1e3} : SpeedUnit{"GB/s", 1};
}

std::string SpeedUnit::text(double gbps) const { return fmt::format("{:.3g}", gbps * of_gbps); }

SpeedUnit unit_of_transfers(const Summary& s) {
  double most = 0;
  for (const TransferSummary& one : s.by_transfer) most = std::max(most, one.bus_gbps);
  return speed_unit(most);
}

SpeedUnit unit_of_links(const Summary& s) {
  double most = 0;
  for (const LinkSummary& link : s.links) most = std::max({most, link.out_gbps, link.in_gbps});
  return speed_unit(most);
}

std::string rank_text(const Summary& summary, Rank rank) {
  const auto at = std::ranges::find(summary.by_rank, rank, &RankSummary::rank);
  const bool has_host = at != summary.by_rank.end() && !at->host.empty();
  return fmt::format("rank {}{}", rank, has_host ? " (host " + at->host + ")" : std::string());
}

std::string link_text(const Summary& summary, const SlowLink& link) {
  const std::string end = rank_text(summary, link.end);
  if (link.other < 0) return "of " + end;
  return fmt::format("{} {} {} {}", link.receives ? "between" : "from", end, link.receives ? "and" : "to",
                     rank_text(summary, link.other));
}

std::vector<SlowLink> slow_links_of(const Summary& summary) {
  std::vector<SlowLink> links;
  for (const LinkSummary& link : summary.links) {
    if (!link.is_slow_out && !link.is_slow_in) continue;
    const bool is_out = link.is_slow_out && (!link.is_slow_in || link.out_gbps <= link.in_gbps);
    links.push_back({.end = link.rank,
                     .sends = link.is_slow_out,
                     .receives = link.is_slow_in,
                     .speed = is_out ? link.out_gbps : link.in_gbps});
  }
  links.insert(links.end(), summary.slow_pairs.begin(), summary.slow_pairs.end());
  for (const SlowTime& time : summary.slow_times) links.push_back(time.link);
  return links;
}

std::string late_transfers_text(const Summary& summary) {
  const bool has_late = std::ranges::any_of(summary.by_rank, [&](const RankSummary& rank) {
    return rank.why == Lateness::kTransfer && !lateness_text(summary, rank).empty();
  });
  const std::vector<SlowLink> links = slow_links_of(summary);
  if (!has_late || links.empty()) return {};
  return fmt::format(
      "A rank whose transfers last longer comes late to the next ones. Here the slow link {} explains it.",
      link_text(summary, links.front()));
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
