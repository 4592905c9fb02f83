#include "launch/host_news.h"

#include <algorithm>

namespace rueda::launch {

Status HostNews::on_held(const std::string& host, const std::vector<Rank>& ranks,
                         std::span<const std::byte> payload) {
  Result<status::JobNews> news = status::decode_job_news(payload);
  if (!news.is_ok()) return news.status();
  const auto is_there = [&](const status::HeldProcess& one) {
    return std::ranges::find(ranks, one.rank) != ranks.end();
  };
  if (!std::ranges::all_of(news.value().held, is_there))
    return {Code::kInvalidArgument, "its agent speaks of ranks that it does not have"};
  held_[host] = std::move(news.value().held);
  return Status::ok();
}

status::JobNews HostNews::news(std::span<const Host> hosts) const {
  status::JobNews news;
  for (const Host& host : hosts) {
    if (host.is_silent) {
      news.without_agent.insert(news.without_agent.end(), host.ranks.begin(), host.ranks.end());
    } else if (const auto held = held_.find(host.name); held != held_.end()) {
      news.held.insert(news.held.end(), held->second.begin(), held->second.end());
    }
  }
  return news;
}

}  // namespace rueda::launch
