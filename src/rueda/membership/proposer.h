// From what is known of the processes of an elastic job to its next view. Pure: one thread, times are
// arguments.
//
// Example: view 1 is {a, b, c}. Process c ends: on_gone(c). The epoch of a and b fails, and both say that
// they are ready: a holds commit 7, b holds 6. Then next() lists view 2 as {a, b}; its commit is 7, and a has
// to give it to b. A process d starts in the place of c and says that it is ready. a and b are told to leave
// view 2 at one commit, 9; when both have said so, view 3 is {a, b, d}.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/membership/cuts.h"
#include "rueda/membership/view.h"

namespace rueda::membership {

struct Rules {
  int least = 1;                  // members of a view
  int most = 0;                   // 0: any number
  int64_t most_resets = -1;       // views after the first; -1: any number
  Nanos timeout = 600 * kSecond;  // for enough members, and for members that say nothing
};

// A sentence for a process that is not let in, because its state is not of what that of the members is made
// of; empty: it is, or nobody knows. digest: of the members.
std::string why_not_admitted(const Ready& joiner, std::string_view digest);

// One thread.
class Proposer {
 public:
  explicit Proposer(Rules rules) : rules_(rules) {}

  // What the register holds. Older views have no effect.
  void on_view(const View& view, Nanos now);
  void on_ready(const Ready& ready, Nanos now);
  // Its process has ended, or runs on a host that was lost: it can write nothing that others read.
  void on_gone(const Uid& uid, Nanos now);
  // Its host says nothing to the launcher either. Together with a member that is cut off from it, that makes
  // it one that the next view leaves out, as long as it has not said that it is ready.
  void on_silent(const Uid& uid);
  void on_heard(const Uid& uid) { silent_.erase(uid); }
  // It shall not belong to the next view, unless nobody else would hold the state any more.
  void on_leaving(const Uid& uid) { leaving_.insert(uid); }

  // So many members more than Rules::most, because all of them are to leave and somebody must take over.
  void allow_more(int members) { more_ = members; }

  // The next view, once every member of the last one is gone or ready. It stays the same until the register
  // has answered or something is learned.
  [[nodiscard]] std::optional<View> next() const;
  // The sentence with which the job ends, because no view can follow. Empty: one can, or may.
  [[nodiscard]] std::string verdict(Nanos now) const;
  // When verdict() or silent() may change; 0: not by time.
  [[nodiscard]] Nanos deadline() const;
  // Members for which the others wait in vain. They must be ended before there can be a view without them.
  [[nodiscard]] std::vector<Uid> silent(Nanos now) const;
  [[nodiscard]] bool has_ready_member() const;
  // The members that have not said that they are ready.
  [[nodiscard]] std::vector<Uid> awaited() const;
  // Whether the members should leave their view soon, because one is to leave, or another process could
  // join.
  [[nodiscard]] bool wants_change() const;
  [[nodiscard]] bool has_joiners() const { return has_room(view_.size()) && !joiners().empty(); }
  [[nodiscard]] bool is_leaving(const Uid& uid) const { return leaving_.contains(uid); }
  // Processes that cannot join or stay, and why, one sentence each. Each is returned once.
  std::vector<std::pair<Uid, std::string>> take_refused();

  // Those that cuts of the network have put out of the last view: their hosts should rest.
  [[nodiscard]] const std::set<Uid>& cut_off() const { return cut_off_; }

  [[nodiscard]] const View& view() const { return view_; }
  [[nodiscard]] bool is_forming() const { return waiting_since_ != 0; }  // a member is ready or gone

 private:
  [[nodiscard]] bool is_ready(const Member& member) const;
  [[nodiscard]] bool is_holder(const Member& member) const;
  [[nodiscard]] bool must_leavers_stay() const;
  [[nodiscard]] std::vector<Member> candidates() const;
  [[nodiscard]] std::vector<Ready> joiners() const;
  [[nodiscard]] bool has_room(std::ptrdiff_t members) const;
  [[nodiscard]] bool are_all_heard() const;  // every member of the last view is gone or ready
  [[nodiscard]] bool has_holder() const;
  void refuse_others_state(const Ready& ready);
  [[nodiscard]] std::vector<Cut> cuts() const;
  void leave_out_silent();
  void leave_out_cut_off();

  Rules rules_;
  View view_;
  std::map<Uid, Ready> ready_;  // the newest of each process
  std::vector<Uid> arrivals_;   // of those that are ready, in the order in which they came
  std::set<Uid> gone_, leaving_, silent_, cut_off_;
  std::string digest_;  // of the members' state; empty: none has said it
  std::map<Uid, std::string> refused_;
  std::vector<std::pair<Uid, std::string>> news_;
  int more_ = 0;
  Nanos waiting_since_ = 0;  // 0: nobody waits for a next view
};

}  // namespace rueda::membership
