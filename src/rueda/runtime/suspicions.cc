#include "rueda/runtime/suspicions.h"

#include <utility>

namespace rueda::runtime {

void Suspicions::report(Rank reporter, Rank suspect, std::string why, Nanos now) {
  // The reporter lives, so suspicions against it are settled.
  for (Suspicion& other : open_) other.is_alive = other.is_alive || other.suspect == reporter;
  open_.push_back({reporter, suspect, std::move(why), now});
}

void Suspicions::answered(Rank rank, Nanos asked_at) {
  for (Suspicion& one : open_) one.is_alive = one.is_alive || (one.suspect == rank && asked_at >= one.since);
}

std::optional<Suspicions::Finding> Suspicions::judge(Nanos now) const {
  for (const Suspicion& one : open_) {
    if (one.is_alive || now >= one.since + kAnswerWait)
      return Finding{one.reporter, one.suspect, !one.is_alive, one.why};
  }
  return std::nullopt;
}

}  // namespace rueda::runtime
