// Which ranks have joined, and what all of them are told once the last has. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rueda/base/types.h"
#include "rueda/control/messages.h"

namespace rueda::control {

class Joins {
 public:
  explicit Joins(Rank world_size) : has_joined_(static_cast<size_t>(world_size), false) {}

  // By world rank; stays where it is.
  [[nodiscard]] const std::vector<bool>& has_joined() const { return has_joined_; }
  [[nodiscard]] bool is_nobody() const { return count_ == 0; }
  [[nodiscard]] bool is_everybody() const { return static_cast<size_t>(count_) == has_joined_.size(); }

  // A rank joins in the coordinator's round-th round. False when it has joined already.
  bool add(Rank from, const TensorRequest& request, int64_t round);
  // Everybody has joined: the answer, and nobody has from now on.
  Joined take();

 private:
  std::vector<bool> has_joined_;
  Rank count_ = 0;
  int64_t last_round_ = -1;  // of answer_.last
  Joined answer_;
};

}  // namespace rueda::control
