#include "launch/start_progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "launch/ending.h"

namespace rueda::launch {
namespace {

constexpr size_t kNamed = 8;  // so that the line can be read at a glance
constexpr Nanos kLogInterval = 5 * kSecond;

}  // namespace

bool NoticePace::is_due(Nanos waited) {
  if (waited < next_) return false;
  next_ = waited + (is_terminal_ ? kSecond : std::max(kLogInterval, waited / 2));
  return true;
}

std::string shortened(std::span<const std::string> names, std::string_view between) {
  std::string text;
  for (const std::string& name : names.first(std::min(names.size(), kNamed)))
    text += fmt::format("{}{}", text.empty() ? "" : between, name);
  return names.size() <= kNamed ? text : fmt::format("{} and {} more", text, names.size() - kNamed);
}

void InitWatch::on_arrival(Rank rank, Nanos now) {
  if (rank >= std::ssize(has_arrived_) || has_arrived_[static_cast<size_t>(rank)]) return;
  if (arrived_++ == 0) first_ = now;
  has_arrived_[static_cast<size_t>(rank)] = true;
  if (arrived_ == std::ssize(has_arrived_)) is_over_ = true;
}

std::string InitWatch::notice(const std::function<std::string_view(Rank)>& host_of, Nanos now) {
  if (is_over_ || arrived_ == 0 || !pace_.is_due(now - first_)) return {};
  std::vector<std::string> groups;  // one for each host
  const Rank size = static_cast<Rank>(has_arrived_.size());
  for (Rank rank = 0; rank < size;) {
    const std::string_view host = host_of(rank);
    std::vector<Rank> missing;
    for (; rank < size && host_of(rank) == host; ++rank)
      if (!has_arrived_[static_cast<size_t>(rank)]) missing.push_back(rank);
    if (!missing.empty()) groups.push_back(fmt::format("{} on {}", rank_list(missing), host));
  }
  return fmt::format(
      "still waiting for {} of {} ranks in init after {} s: {} (not called yet, or no connection to this "
      "machine)",
      size - arrived_, size, (now - first_) / kSecond, shortened(groups));
}

}  // namespace rueda::launch
