#include "launch/restarts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace rueda::launch {

TryEnd judge_end(std::span<const Ending> endings) {
  // The agent gives a code also to a rank that it could not start: there is no such command.
  const auto is_unstarted = [](const Ending& one) {
    return one.pid == 0 && one.exit_code != 0 && !one.was_stopped;
  };
  if (std::ranges::any_of(endings, is_unstarted)) return TryEnd::kNotStarted;
  return std::ranges::any_of(endings, &Ending::is_failure) ? TryEnd::kFailed : TryEnd::kWell;
}

bool Restarts::follows(TryEnd end, int status) {
  statuses_.push_back(status);
  const bool has_failed = end == TryEnd::kFailed || (end == TryEnd::kNotStarted && count_ > 0);
  follows_ = has_failed && count_ < most_;
  if (follows_) ++count_;
  return follows_;
}

std::string Restarts::notice() const {
  if (follows_)
    return fmt::format("the job ended with exit status {} and is started again (restart {} of {})",
                       statuses_.back(), count_, most_);
  if (statuses_.size() < 2) return {};
  return fmt::format("the job was started {} times; exit statuses: {}", statuses_.size(),
                     fmt::join(statuses_, ", "));
}

}  // namespace rueda::launch
