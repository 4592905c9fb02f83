// An elastic job without a launcher, as one of its processes sees it: the members decide the views
// themselves.
//
// Each process serves a store. A member that has left view n puts into its own store which commit it holds.
// The first member of view n that lives asks all others for these words, and has view n + 1 decided by the
// votes of view n (majority_register.h). The others wait for view n + 1 in its store, and if it ends or says
// nothing, the next member takes its place: rivals are ordered by the votes. Before a process installs the
// view, it ends those of its host that the view leaves out, because they share memory with it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/members/member_peers.h"
#include "rueda/membership/proposer.h"
#include "rueda/store/interrupted.h"

namespace rueda::members {

// How long a process waits for a view, and who ends the wait.
struct ViewWait {
  Deadline deadline;
  store::Interrupted is_interrupted = {};
};

// One thread at a time, but leave_at().
class MemberViews {
 public:
  // others: addresses of members, "host:port,…", where one that joins looks besides RUEDA_STORE.
  MemberViews(membership::Uid uid, std::string host, std::string others)
      : uid_(std::move(uid)), host_(std::move(host)), others_(std::move(others)) {}

  // In the first view: all processes meet at the store of rank 0.
  Result<membership::View> begin(const store::World& world, const std::string& interface,
                                 const ViewWait& wait);
  // mine: what this member says, which has left view `last`. timeout: for members that say nothing.
  Result<membership::View> next(const membership::View& last, const membership::Ready& mine, Nanos timeout,
                                const ViewWait& wait);
  // The view to which this process, which has belonged to none, is admitted.
  Result<membership::View> join(const store::World& world, const std::string& interface,
                                membership::Ready mine, const ViewWait& wait);
  // This process belongs to `view`, and before to `last`, if not null. Fails if a process that must have
  // ended lives on.
  Status install(const membership::View& view, const membership::View* last);

  // This process has made a commit in the view. Its first member asks all to leave the view soon, if
  // processes wait to join.
  void committed(const membership::View& view, membership::Commit commit);
  // The commit at which all leave the view; kNoCommit: none. Any thread.
  [[nodiscard]] membership::Commit leave_at(int64_t view) const {
    return own_ == nullptr ? membership::kNoCommit : own_->leave_at(view);
  }
  // While the ranks of this view meet: whether one of them has ended. Rank 0 looks at all, the others at it.
  [[nodiscard]] bool is_one_missing(const membership::View& view);

 private:
  Status serve(const store::World& world, const std::string& interface, bool is_first, const ViewWait& wait);
  Result<std::string> await(store::Store& store, const std::string& key, const std::string& whom,
                            const ViewWait& wait) const;
  Result<membership::View> lead(const membership::View& last, const membership::Ready& mine, Nanos timeout,
                                std::set<membership::Uid> silent, const ViewWait& wait);
  Result<membership::View> view_told(const membership::Member& member, const Said& said);
  void hear_members(membership::Proposer& proposer);
  void hear_joiners(membership::Proposer& proposer);
  void note(const membership::Member& member, const Said& said, membership::Proposer& proposer);
  void refuse(const membership::Uid& uid, const std::string& why);
  std::vector<membership::Ready> living_joiners(const membership::View& view);
  // Processes that listen where members may, and refuse this one.
  struct Refused {
    bool is_other_build = false, has_other_secret = false;
  };
  Result<membership::View> find_view(const store::World& world, const membership::View& known, Refused& by);
  Result<std::optional<membership::View>> ask_to_join(const membership::View& known,
                                                      const membership::Ready& mine, const ViewWait& wait);

  membership::Uid uid_;
  std::string host_, others_;
  std::unique_ptr<MemberStore> own_;
  std::unique_ptr<MemberPeers> peers_;
  int64_t round_ = 0;
  int64_t asked_view_ = 0;  // whose members were asked to leave it
  std::string digest_;      // of the state of the members, as this process said it last; empty: it never has
  // While this process leads. ahead: a member that belongs to the next view already.
  std::set<membership::Uid> ended_, silent_;
  std::optional<membership::Member> ahead_;
};

}  // namespace rueda::members
