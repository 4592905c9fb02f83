#include "rueda/membership/proposer.h"

#include <algorithm>
#include <utility>

#include "rueda/base/counted.h"

namespace rueda::membership {
namespace {

// Members of one host stay together. Hosts, and members of one host, are in the order of their age, so the
// oldest member of all is rank 0.
std::vector<Member> by_host(std::vector<Member> members) {
  std::vector<Member> sorted;
  while (!members.empty()) {
    const std::string host = members.front().host;
    const auto rest = std::stable_partition(members.begin(), members.end(),
                                            [&](const Member& one) { return one.host == host; });
    sorted.insert(sorted.end(), members.begin(), rest);
    members.erase(members.begin(), rest);
  }
  return sorted;
}

std::string excluded(int64_t view, const std::string& why) {
  return "this process was excluded from view " + std::to_string(view) + " of the job, because " + why +
         "; it has to end.";
}

std::string in_seconds(Nanos time) { return std::to_string(time / kSecond) + " s"; }

}  // namespace

void Proposer::on_view(const View& view, Nanos now) {
  if (view.number <= view_.number) return;
  view_ = view;
  std::erase_if(ready_, [&](const auto& one) {
    return one.second.after < view_.number && (one.second.after != 0 || view_.rank_of(one.first) >= 0);
  });
  // News of this view may have come before it.
  const bool is_forming = std::ranges::any_of(
      view_.members, [this](const Member& one) { return gone_.contains(one.uid) || is_ready(one); });
  waiting_since_ = is_forming ? now : 0;
}

void Proposer::on_ready(const Ready& ready, Nanos now) {
  const bool is_member = view_.rank_of(ready.uid) >= 0;
  const auto known = ready_.find(ready.uid);
  const bool is_old = known != ready_.end() && known->second.after >= ready.after;
  if (is_old || gone_.contains(ready.uid) || refused_.contains(ready.uid)) return;
  if (is_member ? ready.after < view_.number : ready.after != 0 && ready.after <= view_.number) return;
  ready_[ready.uid] = ready;
  if (std::ranges::find(arrivals_, ready.uid) == arrivals_.end()) arrivals_.push_back(ready.uid);
  if (is_member && waiting_since_ == 0) waiting_since_ = now;
  refuse_others_state(ready);
  leave_out_silent();
  leave_out_cut_off();
}

void Proposer::on_gone(const Uid& uid, Nanos now) {
  gone_.insert(uid);
  ready_.erase(uid);
  if (view_.rank_of(uid) >= 0 && waiting_since_ == 0) waiting_since_ = now;
  leave_out_silent();
  leave_out_cut_off();
}

void Proposer::on_silent(const Uid& uid) {
  if (!silent_.insert(uid).second || waiting_since_ == 0) return;
  leave_out_silent();
  leave_out_cut_off();
}

// What the members that are ready say about others that are not gone.
std::vector<Cut> Proposer::cuts() const {
  std::vector<Cut> cuts;
  for (const Member& one : view_.members)
    if (is_ready(one) && !gone_.contains(ready_.at(one.uid).cut_from))
      cuts.emplace_back(one.uid, ready_.at(one.uid).cut_from);
  return cuts;
}

// Members that neither the launcher nor another member can reach. All of them must be of that kind, so that
// those that can be reached are waited for.
void Proposer::leave_out_silent() {
  const std::vector<Uid> missing = awaited();
  std::set<std::string> hosts;  // that a member is cut off from
  for (const auto& [one, other] : cuts())
    if (const Rank rank = view_.rank_of(other); rank >= 0)
      hosts.insert(view_.members[static_cast<size_t>(rank)].host);
  const auto is_out = [&](const Uid& uid) {
    return silent_.contains(uid) &&
           hosts.contains(view_.members[static_cast<size_t>(view_.rank_of(uid))].host);
  };
  if (missing.empty() || !std::ranges::all_of(missing, is_out)) return;
  for (const Uid& uid : missing) {
    gone_.insert(uid);
    news_.emplace_back(uid, excluded(view_.number + 1, "its host could not be reached"));
  }
}

// Once all have been heard. Those that cannot reach one another cannot form a view, though all are alive.
void Proposer::leave_out_cut_off() {
  if (waiting_since_ == 0 || !are_all_heard()) return;
  std::vector<Member> ready;
  for (const Member& one : view_.members)
    if (is_ready(one)) ready.push_back(one);
  for (const Uid& uid : left_out(ready, cuts())) {
    gone_.insert(uid);
    ready_.erase(uid);
    cut_off_.insert(uid);
    news_.emplace_back(uid, excluded(view_.number + 1, "its host cannot reach those of the others"));
  }
}

std::string why_not_admitted(const Ready& joiner, std::string_view digest) {
  if (joiner.digest.empty() || digest.empty() || joiner.digest == digest) return {};
  return "this process cannot join the job: the names, shapes or types of its state differ from those of the "
         "members; start the same program with the same model everywhere.";
}

// The state of the members is that of the job; one that joins must have the same. What members have said last
// holds while they are at work.
void Proposer::refuse_others_state(const Ready& ready) {
  if (view_.rank_of(ready.uid) >= 0 && !ready.digest.empty()) digest_ = ready.digest;
  std::vector<std::pair<Uid, std::string>> others;
  for (const auto& [uid, one] : ready_)
    if (std::string why = why_not_admitted(one, digest_); !why.empty() && view_.rank_of(uid) < 0)
      others.emplace_back(uid, std::move(why));
  for (auto& [uid, why] : others) {
    ready_.erase(uid);
    refused_[uid] = why;
    news_.emplace_back(uid, std::move(why));
  }
}

std::vector<std::pair<Uid, std::string>> Proposer::take_refused() { return std::exchange(news_, {}); }

bool Proposer::is_ready(const Member& member) const {
  const auto found = ready_.find(member.uid);
  return found != ready_.end() && found->second.after == view_.number;
}

bool Proposer::are_all_heard() const {
  return std::ranges::all_of(view_.members,
                             [this](const Member& one) { return gone_.contains(one.uid) || is_ready(one); });
}

std::vector<Ready> Proposer::joiners() const {
  std::vector<Ready> joiners;
  for (const Uid& uid : arrivals_)
    if (const auto one = ready_.find(uid);
        one != ready_.end() && view_.rank_of(uid) < 0 && !leaving_.contains(uid))
      joiners.push_back(one->second);
  return joiners;
}

// The members that go on, in their order, and then those that join.
std::vector<Member> Proposer::candidates() const {
  std::vector<Member> list;
  const bool do_leavers_stay = must_leavers_stay();
  for (const Member& one : view_.members)
    if (is_ready(one) && (do_leavers_stay || !leaving_.contains(one.uid)))
      list.push_back(
          {.uid = one.uid, .host = one.host, .commit = ready_.at(one.uid).commit, .contact = one.contact});
  for (const Ready& one : joiners())
    if (has_room(std::ssize(list)))
      list.push_back(
          {.uid = one.uid, .host = one.host, .commit = kNoCommit, .is_new = true, .contact = one.contact});
  return list;
}

bool Proposer::is_holder(const Member& member) const {
  return is_ready(member) && ready_.at(member.uid).commit >= view_.commit();
}

bool Proposer::has_holder() const {
  return std::ranges::any_of(view_.members, [this](const Member& one) { return is_holder(one); });
}

// Those that were to stay may have been lost meanwhile.
bool Proposer::must_leavers_stay() const {
  return std::ranges::none_of(
      view_.members, [this](const Member& one) { return is_holder(one) && !leaving_.contains(one.uid); });
}

std::optional<View> Proposer::next() const {
  if (view_.number == 0 || waiting_since_ == 0 || !are_all_heard() || !has_holder()) return std::nullopt;
  if (rules_.most_resets >= 0 && view_.number > rules_.most_resets) return std::nullopt;
  View next{.number = view_.number + 1, .members = by_host(candidates()), .lost = {}};
  if (next.size() < rules_.least) return std::nullopt;
  for (const Member& one : view_.members)
    if (next.rank_of(one.uid) < 0) next.lost.push_back(one.uid);
  return next;
}

std::string Proposer::verdict(Nanos now) const {
  if (view_.number == 0 || waiting_since_ == 0) return {};
  if (rules_.most_resets >= 0 && view_.number > rules_.most_resets)
    return "Horovod was shutdown because number of resets during elastic job exceeded limit: " +
           std::to_string(rules_.most_resets);
  if (are_all_heard() && !has_holder()) {
    if (view_.commit() == kNoCommit)
      return "every member of view " + std::to_string(view_.number) + " has ended";
    return "no process is left that holds commit " + std::to_string(view_.commit()) + " or a later one";
  }
  const auto size = std::ssize(candidates());
  if (now - waiting_since_ < rules_.timeout || size >= rules_.least) return {};
  return "Timed out waiting for minimum number of slots to become available. For " +
         in_seconds(rules_.timeout) + (size == 1 ? " there was " : " there were ") +
         counted(size, "process") + ", and there must be enough resources to run at least " +
         std::to_string(rules_.least) + " Horovod processes (--min-np); --elastic-timeout gives them longer";
}

Nanos Proposer::deadline() const { return waiting_since_ == 0 ? 0 : waiting_since_ + rules_.timeout; }

std::vector<Uid> Proposer::silent(Nanos now) const {
  if (waiting_since_ == 0 || now - waiting_since_ < rules_.timeout) return {};
  return awaited();
}

std::vector<Uid> Proposer::awaited() const {
  std::vector<Uid> awaited;
  for (const Member& one : view_.members)
    if (!gone_.contains(one.uid) && !is_ready(one)) awaited.push_back(one.uid);
  return awaited;
}

bool Proposer::has_ready_member() const {
  return std::ranges::any_of(view_.members, [this](const Member& one) { return is_ready(one); });
}

bool Proposer::has_room(std::ptrdiff_t members) const {
  return rules_.most == 0 || members < rules_.most + more_;
}

bool Proposer::wants_change() const {
  if (view_.number == 0) return false;
  bool does_one_stay = false, does_one_leave = false;
  for (const Member& one : view_.members)
    if (!gone_.contains(one.uid)) (is_leaving(one.uid) ? does_one_leave : does_one_stay) = true;
  return (does_one_leave && does_one_stay) || has_joiners();
}

}  // namespace rueda::membership
