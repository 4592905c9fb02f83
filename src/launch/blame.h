// Whom the ranks of a job blame that all failed because of others, as their last lines say. Pure.
#pragma once

#include <optional>
#include <span>

#include "launch/ending.h"

namespace rueda::launch {

struct Blame {
  enum class Kind {
    kRank,         // the ranks lost this one
    kCutOff,       // the same, because of the network: its host acknowledged nothing to several others
    kCutLink,      // the network between `rank` and `other` broke, and both were running
    kUnconnected,  // `rank` never reached `other`
  } kind = Kind::kRank;
  Rank rank = 0, other = -1;
  size_t spokesman = 0;  // index of the first ending that says so
};

// Each end of a cut network blames the other one, and whoever ended first may be the only one that is right
// or the only one that is wrong: so what most say counts. Empty: nobody is named, or a rank failed by itself.
std::optional<Blame> agreed_blame(std::span<const Ending> endings);

}  // namespace rueda::launch
