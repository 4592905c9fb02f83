#include "launch/restarts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace rueda::launch {
namespace {

// Of many statuses the first and the last ones are listed.
constexpr size_t kAllListed = 8, kFirstListed = 2, kLastListed = 3;

std::string list_statuses(std::span<const int> statuses) {
  if (statuses.size() <= kAllListed) return fmt::format("{}", fmt::join(statuses, ", "));
  return fmt::format("{}, … {} more …, {}", fmt::join(statuses.first(kFirstListed), ", "),
                     statuses.size() - kFirstListed - kLastListed,
                     fmt::join(statuses.last(kLastListed), ", "));
}

}  // namespace

TryEnd judge_end(std::span<const Ending> endings) {
  // The agent gives a code also to a rank that it could not start: there is no such command.
  const auto is_unstarted = [](const Ending& one) {
    return one.pid == 0 && one.exit_code != 0 && !one.was_stopped;
  };
  if (std::ranges::any_of(endings, is_unstarted)) return TryEnd::kNotStarted;
  return std::ranges::any_of(endings, &Ending::is_failure) ? TryEnd::kFailed : TryEnd::kWell;
}

bool Restarts::follows(TryEnd end, int status, Nanos lasted) {
  const bool begins_anew = statuses_.empty() || lasted >= kLongTry;
  pause_ = begins_anew ? first_pause_ : std::min(2 * pause_, std::max(kLongestPause, first_pause_));
  statuses_.push_back(status);
  const bool has_failed = end == TryEnd::kFailed || (end == TryEnd::kNotStarted && count_ > 0);
  follows_ = has_failed && count_ < most_;
  if (follows_) ++count_;
  return follows_;
}

std::string Restarts::notice() const {
  if (follows_)
    return fmt::format(
        "the job ended with exit status {} and is started again{} (restart {} of {})", statuses_.back(),
        pause_ > 0 ? fmt::format(" in {:.3g} s", static_cast<double>(pause_) / kSecond) : "", count_, most_);
  if (statuses_.size() < 2) return {};
  return fmt::format("the job was started {} times; exit statuses: {}", statuses_.size(),
                     list_statuses(statuses_));
}

}  // namespace rueda::launch
