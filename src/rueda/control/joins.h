// Which ranks have joined, and the answer for all ranks once the last one has joined. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rueda/base/types.h"
#include "rueda/control/messages.h"
#include "rueda/control/rank_set.h"
#include "rueda/control/stalls.h"

namespace rueda::control {

class Joins {
 public:
  explicit Joins(Rank world_size) : has_joined_(static_cast<size_t>(world_size), false) {}

  // By world rank. These references stay valid.
  [[nodiscard]] const std::vector<bool>& has_joined() const { return has_joined_; }
  [[nodiscard]] const RankSet& ranks() const { return ranks_; }  // the same
  [[nodiscard]] bool is_nobody() const { return count_ == 0; }
  [[nodiscard]] bool is_everybody() const { return static_cast<size_t>(count_) == has_joined_.size(); }

  // A rank joins. round: the number of the coordinator's round. False if the rank has joined already.
  bool add(Rank from, const TensorRequest& request, int64_t round);
  // For the others, as a stall says it. age: since nothing moves.
  [[nodiscard]] StalledTensor wait(Nanos age) const;
  // To be called when all ranks have joined. Returns the answer; from now on no rank has joined.
  Joined take();

 private:
  std::vector<bool> has_joined_;
  RankSet ranks_;
  Rank count_ = 0;
  int64_t last_round_ = -1;  // in which answer_.last joined
  Joined answer_;
};

}  // namespace rueda::control
