#include "timeline/slow_links.h"

namespace rueda::timeline {

void judge_links(const Job& job, Summary& summary) {
  trace::LinkTotals totals;
  for (const RankFile& file : job.ranks)
    for (const auto& [peer, total] : file.links)
      if (peer >= 0 && peer < job.size) totals[{file.rank, peer}] = total;
  if (totals.empty()) return;
  const std::map<Rank, double> out = trace::fastest_out(totals), in = trace::fastest_in(totals);
  const auto speed_of = [](const std::map<Rank, double>& speeds, Rank rank) {
    const auto at = speeds.find(rank);
    return at == speeds.end() ? 0 : at->second;
  };
  for (Rank rank = 0; rank < job.size; ++rank)
    summary.links.push_back({.rank = rank, .out_gbps = speed_of(out, rank), .in_gbps = speed_of(in, rank)});
  for (const trace::SlowLink& slow : trace::find_slow_links(totals)) {
    if (slow.other >= 0) {
      summary.slow_pairs.push_back(slow);
      continue;
    }
    LinkSummary& link = summary.links[static_cast<size_t>(slow.end)];
    link.is_slow_out = slow.sends;
    link.is_slow_in = slow.receives;
  }
}

}  // namespace rueda::timeline
