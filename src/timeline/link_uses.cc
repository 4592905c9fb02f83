#include "timeline/link_uses.h"

#include <algorithm>

namespace rueda::timeline {

void LinkUses::add(const Job& job, const std::vector<RankStep>& steps) {
  for (size_t i = 0; i < steps.size(); ++i)
    for (const Span& message : steps[i].messages) sent_.add(job.ranks[i].rank, message, message.begin);
}

void LinkUses::forget(const Job& job, const std::vector<RankStep>& steps) {
  for (size_t i = 0; i < steps.size(); ++i)
    for (const Span& message : steps[i].messages) sent_.forget(job.ranks[i].rank, message);
}

// Receives are posted long before their message is sent.
Nanos LinkUses::began(Rank rank, const Span& message) const {
  if (message.kind == SpanKind::kSent) return message.begin;
  return std::clamp(sent_.of(rank, message), message.begin, message.end);
}

void LinkUses::count(Rank rank, const RankStep& step) {
  for (const Span& message : step.messages) {
    if (message.kind != SpanKind::kReceived) continue;
    Use& use = uses_[{message.peer, rank}];
    use.bytes += message.value;
    // Bytes that came before the receive was posted have taken their time as well.
    const Nanos sent = sent_.of(rank, message);
    use.under_way += std::max<Nanos>(message.end - (sent != 0 ? sent : message.begin), 0);
  }
}

std::map<LinkTimes::Link, Nanos> LinkUses::add_step(const Job& job,
                                                    std::span<const std::vector<RankStep>* const> parts,
                                                    const std::vector<std::vector<Interval>>& transfers) {
  LinkTimes times;
  for (size_t i = 0; i < job.ranks.size(); ++i) {
    const Rank rank = job.ranks[i].rank;
    count(rank, (*parts.front())[i]);
    std::vector<MessageTimes> messages;
    for (const std::vector<RankStep>* part : parts)
      for (const Span& message : (*part)[i].messages)
        messages.push_back({.peer = message.peer,
                            .is_sent = message.kind == SpanKind::kSent,
                            .posted = message.begin,
                            .began = began(rank, message),
                            .ended = message.end});
    has_messages_ = has_messages_ || !messages.empty();
    times.add(rank, messages);
  }
  std::map<LinkTimes::Link, Nanos> blocked;
  if (!has_messages_) return blocked;
  for (size_t i = 0; i < job.ranks.size(); ++i)
    off_links_ += times.divide(job.ranks[i].rank, transfers[i], blocked);
  for (const auto& [link, time] : blocked) uses_[link].blocked += time;
  return blocked;
}

void LinkUses::finish(const Job& job, Summary& summary) const {
  if (!has_messages_ || summary.steps == 0) return;
  const auto steps = static_cast<double>(summary.steps);
  const double all = steps * static_cast<double>(job.ranks.size());
  for (const auto& [link, use] : uses_) {
    LinkTransfer& made = summary.by_link.emplace_back(LinkTransfer{.from = link.first, .to = link.second});
    made.blocked = static_cast<double>(use.blocked) / all;
    made.bytes = static_cast<double>(use.bytes) / steps;
    if (use.under_way > 0) made.gbps = static_cast<double>(use.bytes) / static_cast<double>(use.under_way);
    const auto file = std::ranges::lower_bound(job.ranks, link.first, {}, &RankFile::rank);  // sorted
    if (file == job.ranks.end() || file->rank != link.first) continue;
    if (const auto at = file->links.find(link.second); at != file->links.end() && !at->second.is_empty())
      made.measured_gbps = speed_of(at->second.total());
  }
  summary.off_links = static_cast<double>(off_links_) / all;
  std::ranges::stable_sort(summary.by_link, std::greater<>(), &LinkTransfer::blocked);
}

}  // namespace rueda::timeline
