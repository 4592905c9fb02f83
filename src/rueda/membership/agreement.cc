#include "rueda/membership/agreement.h"

#include <algorithm>
#include <utility>

#include "rueda/base/check.h"

namespace rueda::membership {

bool is_quorum(size_t agreed, size_t ended, size_t voters) {
  return 2 * agreed > voters || (2 * agreed == voters && 2 * ended == voters);
}

Agreement::Agreement(Ballot first, View last, View proposed, std::set<Uid> ended)
    : last_(std::move(last)),
      proposed_(std::move(proposed)),
      ended_(std::move(ended)),
      value_(proposed_),
      ballot_(std::move(first)) {
  RUEDA_CHECK(proposed_.number == last_.number + 1, "the view after that of the voters");
  std::erase_if(ended_, [this](const Uid& uid) { return last_.rank_of(uid) < 0; });
}

void Agreement::retry() {
  if (is_decided_ || is_too_late_) return;
  ballot_.round = std::max(round_seen_, ballot_.round) + 1;
  phase_ = Phase::kPromise;
  is_outbid_ = false;
  agreed_.clear();
  highest_.reset();
  value_ = proposed_;
}

// A vote that agrees with this ballot, made from one that allows it.
Vote Agreement::wanted(const Vote& known) const {
  return phase_ == Phase::kPromise ? promise(known, ballot_) : accept(ballot_, value_);
}

std::vector<Agreement::Request> Agreement::requests() const {
  std::vector<Request> all;
  if (is_decided_ || is_outbid_ || is_too_late_) return all;
  for (const Member& one : last_.members) {
    if (ended_.contains(one.uid) || lost_.contains(one.uid) || agreed_.contains(one.uid)) continue;
    const auto known = known_.find(one.uid);
    const Vote now = known == known_.end() ? Vote{} : known->second;
    all.push_back({.to = one.uid, .expected = now, .next = wanted(now)});
  }
  return all;
}

void Agreement::on_vote(const Uid& from, const Vote& vote) {
  if (is_decided_ || is_too_late_ || last_.rank_of(from) < 0 || ended_.contains(from)) return;
  if (vote.is_closed) {
    is_too_late_ = true;
    return;
  }
  round_seen_ = std::max(round_seen_, vote.promised.round);
  Vote& known = known_[from];
  if (std::pair(vote.promised, vote.accepted) >= std::pair(known.promised, known.accepted)) known = vote;
  // An answer may be old. What it says was true then, and a promise and an acceptance hold for ever.
  const bool agrees = vote.promised == ballot_ && (phase_ == Phase::kPromise || vote.accepted == ballot_);
  if (agrees && agreed_.insert(from).second && phase_ == Phase::kPromise && vote.view &&
      (!highest_ || vote.accepted > highest_->accepted))
    highest_ = vote;
  if (!agrees && vote.promised > ballot_) is_outbid_ = true;
  advance();
}

void Agreement::on_ended(const Uid& from) {
  if (is_decided_ || is_too_late_ || last_.rank_of(from) < 0) return;
  ended_.insert(from);
  agreed_.erase(from);
  advance();
}

void Agreement::advance() {
  if (!is_quorum(agreed_.size(), ended_.size(), last_.members.size())) return;
  if (phase_ == Phase::kAccept) {
    is_decided_ = true;
    return;
  }
  phase_ = Phase::kAccept;
  agreed_.clear();
  // It may have been decided, and nothing else can be, any more.
  if (highest_) value_ = *highest_->view;
}

size_t Agreement::in_reach() const {
  return static_cast<size_t>(std::ranges::count_if(last_.members, [this](const Member& one) {
    return !ended_.contains(one.uid) && !lost_.contains(one.uid);
  }));
}

bool Agreement::is_out_of_reach() const {
  return !is_quorum(in_reach(), ended_.size(), last_.members.size());
}

}  // namespace rueda::membership
