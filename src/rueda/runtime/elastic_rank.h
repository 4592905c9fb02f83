// This process in an elastic job: the view to which it belongs, and how it joins the next one.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "rueda/base/clock.h"
#include "rueda/members/member_views.h"
#include "rueda/membership/member.h"
#include "rueda/runtime/rendezvous_point.h"
#include "rueda/store/world.h"

namespace rueda::runtime {

// What a process says when it joins.
struct JoinRequest {
  membership::Commit commit = membership::kNoCommit;  // the newest that it holds
  std::string digest{};                               // of the names, shapes and types of its state
  Nanos timeout = 0;                                  // 0: as long as the launcher allows
  store::Interrupted is_interrupted = {};
};

// One thread at a time.
class ElasticRank {
 public:
  explicit ElasticRank(const store::GetEnv& get_env);

  [[nodiscard]] bool is_elastic() const { return membership_.has_value(); }
  // A launcher decides the views.
  [[nodiscard]] bool has_launcher() const { return is_elastic() && !members_; }
  // No launcher decides the views, and this process has not met the others of the first one.
  [[nodiscard]] bool must_begin() const { return members_ && !is_joiner_ && membership_->number() == 0; }
  Status begin(const store::World& world, const std::string& interface, const members::ViewWait& wait);
  // The next init has to wait for a view: this process belongs to none, or its epoch there has failed.
  [[nodiscard]] bool must_join() const;
  // An epoch of this view, or an init in it, has failed. Another one cannot succeed.
  // cut_from: the rank whose host acknowledged nothing; -1: none.
  void spend(Rank cut_from = -1) {
    is_spent_ = true;
    cut_from_ = cut_from;
  }
  // Not in an epoch. Returns when this process belongs to the next view.
  Status join(RendezvousPoint& point, store::World world, const std::string& interface,
              const JoinRequest& request);
  // Without a launcher: this process has made a commit, and may ask the others to leave the view at a later
  // one.
  void committed(membership::Commit commit) {
    if (members_ && view() != nullptr) members_->committed(*view(), commit);
  }
  // The commit at which all leave the view; kNoCommit: none, or a launcher names it.
  [[nodiscard]] membership::Commit leave_at() const {
    return members_ && view() != nullptr ? members_->leave_at(view()->number) : membership::kNoCommit;
  }
  // For an init in this view. Where a launcher tells nobody that a rank has ended, the ranks look themselves:
  // then is_missing becomes true, and the wait ends.
  [[nodiscard]] store::Interrupted watching(store::Interrupted given, std::shared_ptr<bool> is_missing);
  // The place of this process in the view, instead of the one that the environment gives.
  [[nodiscard]] store::World seated(store::World world) const;
  // Null if it has not joined one yet; the processes that were started first begin in view 1.
  [[nodiscard]] const membership::View* view() const;
  [[nodiscard]] const membership::Uid& uid() const { return membership_->uid(); }

 private:
  Result<membership::View> read_view(store::Store& store, const std::string& number, Deadline deadline);
  Result<std::string> await_answer(store::Store& store, int64_t after, const JoinRequest& request,
                                   Deadline deadline);

  Status join_members(const store::World& world, const std::string& interface, const membership::Ready& mine,
                      const members::ViewWait& wait);
  [[nodiscard]] membership::Ready leave(const JoinRequest& request);

  std::optional<membership::Membership> membership_;
  std::unique_ptr<members::MemberViews> members_;  // null where a launcher decides the views
  bool is_joiner_ = false;
  bool is_in_first_ = false;  // it belongs to view 1, which it need not know
  bool is_spent_ = false;
  Rank cut_from_ = -1;  // in the view to which it belongs
  Nanos timeout_ = 600 * kSecond;
};

}  // namespace rueda::runtime
