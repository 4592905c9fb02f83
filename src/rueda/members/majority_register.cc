#include "rueda/members/majority_register.h"

#include <algorithm>
#include <random>
#include <string>

#include "rueda/base/sleep.h"
#include "rueda/membership/agreement.h"
#include "rueda/membership/keys.h"

namespace rueda::members {
namespace {

using membership::Agreement;
using membership::View;
using membership::Vote;

constexpr Nanos kAgreeTime = 60 * kSecond;            // of rivals that outbid one another
constexpr int kShortestRest = 5, kLongestRest = 100;  // ms, before a rival is outbid in turn

std::string text_of(const Vote& vote) {
  if (vote == Vote{}) return {};
  const Bytes raw = encode(vote);
  return {reinterpret_cast<const char*>(raw.data()), raw.size()};
}

Status too_few(const Agreement& attempt, const View& last) {
  const size_t all = last.members.size();
  return {Code::kUnavailable,
          "only " + std::to_string(attempt.in_reach()) + " of the " + std::to_string(all) +
              " members of view " + std::to_string(last.number) + " can be reached from this process, and " +
              std::to_string(all / 2 + 1) +
              " have to agree on the next view, because the others may go on without it; it has to end."};
}

}  // namespace

Result<View> MajorityRegister::propose(const View& next) {
  Agreement attempt({.round = ++round_, .by = me_}, last_, next, ended_);
  for (const membership::Uid& uid : silent_) attempt.on_lost(uid);
  const std::string key = membership::vote_key(next.number);
  const Deadline deadline = Deadline::after(kAgreeTime);
  std::minstd_rand random(std::random_device{}());
  while (true) {
    if (const View* const decided = attempt.decided()) return *decided;
    if (attempt.is_too_late()) return decided_elsewhere(next.number);
    if (attempt.is_out_of_reach()) return too_few(attempt, last_);
    if (deadline.is_past())
      return Status(Code::kTimeout, "the members of view " + std::to_string(last_.number) +
                                        " did not agree on the next one in time.");
    if (attempt.is_outbid()) {
      const int rest = std::uniform_int_distribution<int>(kShortestRest, kLongestRest)(random);
      sleep_for(rest * kMillisecond);
      attempt.retry();
      round_ = std::max(round_, attempt.ballot().round);
    }
    const std::vector<Agreement::Request> requests = attempt.requests();
    std::vector<membership::Member> voters;
    for (const Agreement::Request& one : requests)
      voters.push_back(last_.members[static_cast<size_t>(last_.rank_of(one.to))]);
    const std::vector<Said> said = MemberPeers::ask_all(voters, [&](const membership::Member& voter) {
      const auto& one = *std::ranges::find(requests, voter.uid, &Agreement::Request::to);
      return peers_.compare_and_set(voter, key, text_of(one.expected), text_of(one.next));
    });
    for (size_t i = 0; i < said.size(); ++i) {
      const Result<Vote> vote = membership::decode_vote(std::as_bytes(std::span(said[i].text)));
      if (said[i].how == Said::How::kYes && vote.is_ok())
        attempt.on_vote(voters[i].uid, vote.value());
      else if (peers_.has_gone(voters[i], said[i]))  // it may have ended since it said that it was ready
        attempt.on_ended(voters[i].uid);
      else if (said[i].how != Said::How::kNotYet)  // else it is only slow, and is asked again
        attempt.on_lost(voters[i].uid);
    }
  }
}

// A member belongs to it already.
Result<View> MajorityRegister::decided_elsewhere(int64_t number) {
  for (const membership::Member& one : last_.members) {
    if (ended_.contains(one.uid) || silent_.contains(one.uid)) continue;
    const Said said = peers_.value(one, membership::kNewestKey);
    if (said.how != Said::How::kYes) continue;
    Result<View> view = membership::decode_view(std::as_bytes(std::span(said.text)));
    if (view.is_ok() && view.value().number >= number) return view;
  }
  return Status(Code::kUnavailable, "view " + std::to_string(number) +
                                        " was decided without this process, and no member tells it; it has "
                                        "to end.");
}

}  // namespace rueda::members
