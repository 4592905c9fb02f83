#include "rueda/membership/member.h"

#include <algorithm>
#include <utility>

namespace rueda::membership {

Ready Membership::leave(Commit newest, std::string digest) {
  has_left_ = true;
  return {.uid = uid_, .host = host_, .after = number(), .commit = newest, .digest = std::move(digest)};
}

Membership::Outcome Membership::on_view(const View& view) {
  if (view.number <= number()) return Outcome::kNoNews;
  if (view.rank_of(uid_) >= 0) {
    view_ = view;
    has_left_ = false;
    return Outcome::kInstalled;
  }
  // One that has never belonged to a view may belong to a later one, unless it has missed the one to which it
  // did belong.
  if (number() == 0 && std::ranges::find(view.lost, uid_) == view.lost.end()) return Outcome::kNoNews;
  has_left_ = true;
  return Outcome::kExcluded;
}

}  // namespace rueda::membership
