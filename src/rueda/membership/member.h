// One process of an elastic job: it belongs to a view, or has left it and is ready for the next, or is
// excluded. Pure.
#pragma once

#include <optional>
#include <string>

#include "rueda/membership/view.h"

namespace rueda::membership {

// One thread.
class Membership {
 public:
  Membership(Uid uid, std::string host) : uid_(std::move(uid)), host_(std::move(host)) {}

  // It leaves the view to which it belongs, if any: from now on it commits nothing in it. The same statement
  // may be sent again.
  Ready leave(Commit newest, std::string digest);

  enum class Outcome { kInstalled, kExcluded, kNoNews };
  // What the register holds. kInstalled: this process belongs to it now. kExcluded: this view and all later
  // ones go on without it, and it has left the last one that it belonged to.
  Outcome on_view(const View& view);

  [[nodiscard]] const View* view() const { return view_ ? &*view_ : nullptr; }  // null before the first
  [[nodiscard]] int64_t number() const { return view_ ? view_->number : 0; }
  [[nodiscard]] bool has_left() const { return has_left_; }
  [[nodiscard]] const Uid& uid() const { return uid_; }

 private:
  Uid uid_;
  std::string host_;
  std::optional<View> view_;
  bool has_left_ = true;
};

}  // namespace rueda::membership
