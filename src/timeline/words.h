// Sentences and orders that the text and the page of a summary share. Pure.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "timeline/summary.h"

namespace rueda::timeline {

std::string_view explain(StepShare share);
// Why the rank is late; "": others wait for it for less than a hundredth of a step.
std::string_view lateness_text(const Summary& summary, const RankSummary& rank);

// "compute 12 ms, transfer 3 ms": what takes at least that many nanoseconds.
std::string shares_text(const Shares& shares, double least);
// The shares of a step. It also names the rank for which most of the waiting was, and the link on which most
// of the transfers were: "waiting 12 ms, of it 11 ms for rank 3".
std::string step_text(const StepSummary& step);
// How well clocks agree; empty for one host.
std::string clocks_text(const Summary& summary);
// "rank 1 in 80 % of the steps, …": through whom the critical path goes; empty for one rank.
std::string critical_ranks_text(const Summary& summary);
// "31 in 15 MiB for each rank, 87 % by a learned plan"
std::string transfers_text(const Summary& summary);
// "2 ranks, epoch 1, 59 steps of 265 ms (median 263 ms, 95th percentile 317 ms)"
std::string head_text(const Summary& summary);

// "Job 1a2b3c4d, begun 2026-11-26 14:03:12 UTC"
std::string job_text(const Summary& summary);
// "a (ranks 0-3), b (ranks 4-7)": at most so many hosts.
std::string hosts_text(const Summary& summary);

std::string no_advice_text();

// The table of transfers by link: at most so many links, then the time on none. arrow: "->"
inline constexpr std::string_view kByLinkTitle =
    "Transfer by link: where the bytes were for which ranks were blocked";
using LinkCells = std::array<std::string, 6>;
LinkCells link_heads(const Summary& summary, std::string_view arrow);
std::vector<LinkCells> link_rows(const Summary& summary, size_t most, std::string_view arrow);

std::string gbps_text(double gbps);  // "1.2 GB/s", "35 MB/s"; "?": not known
// One unit for all speeds that stand in one table.
struct SpeedUnit {
  const char* name;                                   // "MB/s"
  double of_gbps;                                     // so many are 1 GB/s
  [[nodiscard]] std::string text(double gbps) const;  // "35", without the unit
};
SpeedUnit speed_unit(double largest_gbps);
SpeedUnit unit_of_transfers(const Summary& summary);
SpeedUnit unit_of_links(const Summary& summary);  // of the table of links between hosts
// "rank 2 (host a)"
std::string rank_text(const Summary& summary, Rank rank);
// "of rank 2 (host a)", "between rank 0 (host a) and rank 2 (host b)", "from … to …"
std::string link_text(const Summary& summary, const SlowLink& link);
// Those that are slow all the time or for a part of the job, by their ends; no rank that is slow itself is
// named with another one.
std::vector<SlowLink> slow_links_of(const Summary& summary);
// Where the table of ranks blames one whose transfers last longer; "": it does not.
std::string late_transfers_text(const Summary& summary);
// Of an average step of the rank, in nanoseconds.
double length_of(const RankSummary& rank);

// Ranks for which others wait most come first, and slow links.
std::vector<RankSummary> latest_first(std::vector<RankSummary> ranks);
std::vector<LinkSummary> slowest_first(std::vector<LinkSummary> links);

}  // namespace rueda::timeline
