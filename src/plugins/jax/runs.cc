#include "plugins/jax/runs.h"

#include <utility>

namespace rueda::jax {

int32_t Runs::begin(int64_t groups) {
  std::lock_guard lock(mutex_);
  next_ = static_cast<int32_t>(static_cast<uint32_t>(next_) + 1);
  runs_[next_] = {.groups_left = groups, .why = ""};
  return next_;
}

std::string Runs::end_group(int32_t run, std::string why) {
  std::lock_guard lock(mutex_);
  Run& mine = runs_[run];
  if (mine.why.empty()) {
    mine.why = std::move(why);
  }
  if (--mine.groups_left > 0) {
    return "";
  }
  std::string first = std::move(mine.why);
  runs_.erase(run);
  return first;
}

Runs& runs() {
  static Runs* const only = new Runs;
  return *only;
}

}  // namespace rueda::jax
