// For how long this rank has taken part in collectives, in this epoch. Engine thread only.
#pragma once

#include "rueda/base/clock.h"
#include "rueda/control/facts.h"

namespace rueda::runtime {

class ParticipationClock {
 public:
  // What holds from now on. in_world: a collective of all ranks is asked for or under way; in_any: one of any
  // process set is.
  void note(bool in_world, bool in_any, Nanos now) {
    sums_ = at(now);
    is_in_world_ = in_world;
    is_in_any_ = in_any;
  }
  [[nodiscard]] bool is(bool in_world, bool in_any) const {
    return is_in_world_ == in_world && is_in_any_ == in_any;
  }
  [[nodiscard]] control::Participation at(Nanos now) const {
    const Nanos passed = sums_.at == 0 ? 0 : now - sums_.at;
    return {.at = now,
            .in_world = sums_.in_world + (is_in_world_ ? passed : 0),
            .in_any = sums_.in_any + (is_in_any_ ? passed : 0)};
  }

 private:
  control::Participation sums_;
  bool is_in_world_ = false, is_in_any_ = false;
};

}  // namespace rueda::runtime
