#include "rueda/control/joins.h"

#include <algorithm>
#include <utility>

#include "rueda/base/check.h"

namespace rueda::control {

bool Joins::add(Rank from, const TensorRequest& request, int64_t round) {
  const auto rank = static_cast<size_t>(from);
  if (has_joined_[rank]) return false;
  has_joined_[rank] = true;
  ranks_.add(from);
  answer_.tag = is_nobody() ? request.tag : std::max(answer_.tag, request.tag);
  if (std::ranges::find(answer_.names, request.name) == answer_.names.end())
    answer_.names.push_back(request.name);
  ++count_;
  // Ranks that join in the same round have no order among themselves: the highest rank counts as the last
  // one, whichever request came first.
  answer_.last = last_round_ == round ? std::max(answer_.last, from) : from;
  last_round_ = round;
  return true;
}

StalledTensor Joins::wait(Nanos age) const {
  StalledTensor wait{
      .name = "join()", .operation = "JOIN", .process_set = 0, .age = age, .missing = {}, .waiting = {}};
  for (size_t rank = 0; rank < has_joined_.size(); ++rank)
    (has_joined_[rank] ? wait.waiting : wait.missing).push_back(static_cast<Rank>(rank));
  return wait;
}

Joined Joins::take() {
  RUEDA_CHECK(is_everybody(), "all ranks must have joined");
  std::fill(has_joined_.begin(), has_joined_.end(), false);
  ranks_ = {};
  count_ = 0;
  last_round_ = -1;
  return std::exchange(answer_, {});
}

}  // namespace rueda::control
