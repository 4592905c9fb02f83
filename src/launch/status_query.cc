#include "launch/status_query.h"

#include <fmt/format.h>

#include <utility>

namespace rueda::launch {
namespace {

// So that the whole, with its names, stays below what the caller takes.
constexpr size_t kMaxTexts = status::kMaxJobReply - (8u << 20);

size_t bytes_of(const std::vector<status::ProcessAnswer>& processes) {
  size_t bytes = 0;
  for (const status::ProcessAnswer& one : processes) bytes += one.text.size() + one.missing.size();
  return bytes;
}

}  // namespace

StatusQuery::StatusQuery(uint32_t id, status::JobAnswer about)
    : id_(id), answer_(std::move(about)), is_told_(answer_.hosts.size()), waiting_(answer_.hosts.size()) {}

status::HostAnswer* StatusQuery::waiting_for(const std::string& host) {
  for (size_t i = 0; i < answer_.hosts.size(); ++i) {
    if (answer_.hosts[i].host != host || is_told_[i]) continue;
    is_told_[i] = true;
    --waiting_;
    return &answer_.hosts[i];
  }
  return nullptr;
}

void StatusQuery::on_answer(const std::string& host, std::vector<status::ProcessAnswer> processes) {
  status::HostAnswer* const one = waiting_for(host);
  if (one == nullptr) return;
  const size_t bytes = bytes_of(processes);
  if (bytes_ + bytes > kMaxTexts) {
    one->missing = fmt::format("all answers together are longer than {} MiB; ask for one rank",
                               status::kMaxJobReply >> 20);
    return;
  }
  bytes_ += bytes;
  one->processes = std::move(processes);
}

void StatusQuery::on_missing(const std::string& host, std::string why) {
  if (status::HostAnswer* const one = waiting_for(host)) one->missing = std::move(why);
}

status::JobAnswer StatusQuery::result(int timeout_ms) && {
  for (size_t i = 0; i < answer_.hosts.size(); ++i)
    if (!is_told_[i])
      answer_.hosts[i].missing = fmt::format("its agent did not answer within {} ms", timeout_ms);
  return std::move(answer_);
}

}  // namespace rueda::launch
