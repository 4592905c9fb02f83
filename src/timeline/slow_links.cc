#include "timeline/slow_links.h"

#include <algorithm>

namespace rueda::timeline {
namespace {

constexpr double kSlow = 0.5;             // of what the median of the other ranks does
constexpr int64_t kLeastBytes = 4 << 20;  // less says nothing about a link
constexpr Nanos kLeastBusy = 50 * kMillisecond;

double speed(const LinkTotal& total) {
  if (total.bytes < kLeastBytes || total.busy < kLeastBusy) return 0;
  return static_cast<double>(total.bytes) / static_cast<double>(total.busy);
}

// Of the ranks other than this one that are known.
double median_of_others(const std::vector<LinkSummary>& links, size_t mine, double LinkSummary::*speed) {
  std::vector<double> others;
  for (size_t i = 0; i < links.size(); ++i)
    if (i != mine && links[i].*speed > 0) others.push_back(links[i].*speed);
  if (others.empty()) return 0;
  std::ranges::sort(others);
  return others[(others.size() - 1) / 2];
}

}  // namespace

std::vector<LinkSummary> links_of(const Job& job) {
  std::vector<LinkTotal> out(static_cast<size_t>(job.size)), in(static_cast<size_t>(job.size));
  bool is_known = false;
  for (const RankFile& file : job.ranks)
    for (const auto& [peer, total] : file.links) {
      if (peer < 0 || peer >= job.size) continue;
      is_known = true;
      for (LinkTotal* const sum : {&out[static_cast<size_t>(file.rank)], &in[static_cast<size_t>(peer)]}) {
        sum->bytes += total.bytes;
        sum->busy += total.busy;
      }
    }
  if (!is_known) return {};
  std::vector<LinkSummary> links;
  for (Rank rank = 0; rank < job.size; ++rank) {
    const auto i = static_cast<size_t>(rank);
    links.push_back({.rank = rank, .out_gbps = speed(out[i]), .in_gbps = speed(in[i])});
  }
  // With two ranks, what one sends slowly the other receives slowly: the sender is named.
  for (size_t i = 0; i < links.size(); ++i) {
    LinkSummary& link = links[i];
    link.is_slow_out =
        link.out_gbps > 0 && link.out_gbps < kSlow * median_of_others(links, i, &LinkSummary::out_gbps);
    link.is_slow_in = link.in_gbps > 0 && job.size > 2 &&
                      link.in_gbps < kSlow * median_of_others(links, i, &LinkSummary::in_gbps);
  }
  return links;
}

}  // namespace rueda::timeline
