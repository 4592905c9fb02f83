// One attempt to have view n + 1 decided by the members of view n: Paxos for this one decision, in which a
// vote is a value in the store of a member (vote.h). Pure: requests out, votes in.
//
// Example: a, b and c are view 1, c is dead, and a proposes {a, b}. a asks all to promise ballot (1, a). a
// and b do, and neither has accepted a view before. So a asks both to accept {a, b}, and both do: two of
// three are a majority, and view 2 is decided. Then b, which has heard nothing of this, proposes {b, c}. Its
// ballot (1, b) is above (1, a), so a and b promise it, but both say that they have accepted {a, b}. b has to
// adopt that, and ends with the same view 2.
//
// Nothing is kept on disk: a process that ends never comes back under its uid, so its votes are asked for by
// nobody, and it counts as one that does not answer.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "rueda/membership/vote.h"

namespace rueda::membership {

// Whether those of `voters` that agree, `agreed`, decide for all.
//   A majority does. Half of an even number does if the others have all ended: a process that has ended
// answers nobody, so all later attempts need the same half, and any majority that decided before has a member
// in that half.
[[nodiscard]] bool is_quorum(size_t agreed, size_t ended, size_t voters);

// One thread.
class Agreement {
 public:
  // first: a ballot that this process has never used for this view. last: whose members vote. ended: those of
  // them of which it is certain that their processes have ended; being out of reach is not enough.
  Agreement(Ballot first, View last, View proposed, std::set<Uid> ended);

  // What is to be asked of a voter: if its vote is `expected`, it becomes `next`. The answer is the vote that
  // it has then.
  struct Request {
    Uid to;
    Vote expected, next;
  };
  // All that are not answered yet. They may be sent again, in any order.
  [[nodiscard]] std::vector<Request> requests() const;
  // The vote of this member, now or at any time before: votes only grow.
  void on_vote(const Uid& from, const Vote& vote);
  // It has ended for certain. What it has agreed to counts no more: half of the members that are left must
  // not be a half that another attempt lacks.
  void on_ended(const Uid& from);
  // It does not answer.
  void on_lost(const Uid& from) { lost_.insert(from); }

  // The decided view: the one that was proposed here, or that of a rival.
  [[nodiscard]] const View* decided() const { return is_decided_ ? &value_ : nullptr; }
  // A rival is ahead. retry() begins a ballot above all that were seen; rivals should wait for different
  // times before it.
  [[nodiscard]] bool is_outbid() const { return is_outbid_; }
  void retry();
  [[nodiscard]] const Ballot& ballot() const { return ballot_; }
  // A voter belongs to the next view already: this process has to ask for it.
  [[nodiscard]] bool is_too_late() const { return is_too_late_; }
  // Too few of those that do not answer are left for a decision.
  [[nodiscard]] bool is_out_of_reach() const;
  [[nodiscard]] size_t in_reach() const;  // voters that may still answer

 private:
  enum class Phase : uint8_t { kPromise, kAccept };

  [[nodiscard]] Vote wanted(const Vote& known) const;
  void advance();

  View last_, proposed_;
  std::set<Uid> ended_, lost_;
  std::map<Uid, Vote> known_;    // the newest vote of each
  std::set<Uid> agreed_;         // in this phase of this ballot
  std::optional<Vote> highest_;  // of those that promised: the one accepted in the highest ballot
  View value_;                   // what is to be accepted, or was decided
  Ballot ballot_;
  Phase phase_ = Phase::kPromise;
  int64_t round_seen_ = 0;
  bool is_outbid_ = false, is_too_late_ = false, is_decided_ = false;
};

}  // namespace rueda::membership
