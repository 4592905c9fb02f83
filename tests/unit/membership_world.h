// A job in which everything goes wrong, under virtual time: processes that commit steps, rival proposers, the
// register (one place, or the majority of the last view), and a network between them that loses, repeats,
// reorders and cuts. One seed is one schedule. Faults fall between any two messages. After each event the
// world checks what must never happen.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "membership_record.h"

namespace rueda::membership::simulation {

class World : public Record {
 public:
  World(uint32_t seed, const Faults& faults) : random_(seed), faults_(faults) {
    const int count = 2 + below(4);
    View first{.number = 1, .members = {}, .lost = {}};
    for (int i = 0; i < count; ++i) first.members.push_back({.uid = spawn(i % kHosts), .host = {}});
    for (Member& one : first.members) {
      one.host = host_name(process(one.uid).host);
      one.is_new = true;
    }
    const Rules rules{.least = 1 + below(2), .most = 6, .timeout = kTimeout};
    const int proposers = faults_.has_rivals ? 2 : 1;
    for (int i = 0; i < proposers; ++i) proposers_.push_back({Proposer(rules), below(kHosts)});
    least_ = rules.least;
    history_.push_back(first);
    for (Process& one : processes_) install(one, first);
    for (Boss& boss : proposers_) boss.proposer.on_view(first, now_);
  }

  // Runs events with faults, then heals the network and runs until nothing changes. Returns what was wrong.
  std::string run(int events) {
    for (int i = 0; i < events && wrong_.empty(); ++i) {
      disturb();
      turn();
    }
    is_healed_ = true;
    cut_.clear();
    for (int i = 0; i < kHealing && wrong_.empty() && !has_settled(); ++i) turn();
    if (wrong_.empty() && !has_settled()) wrong_ = "no progress after healing: " + describe();
    return wrong_;
  }

  [[nodiscard]] bool has_ended() const { return is_ended_; }

 private:
  static constexpr int kHosts = 3;
  static constexpr Nanos kTimeout = 400;  // in turns
  static constexpr int kHealing = 20000;
  static constexpr size_t kMostProcesses = 12;

  int below(int bound) { return static_cast<int>(random_() % static_cast<uint32_t>(bound)); }
  bool chance(int permille) { return below(1000) < permille; }

  Uid spawn(int host) {
    const Uid uid = host_name(host) + "#" + std::to_string(processes_.size());
    processes_.push_back({Membership(uid, host_name(host)), host});
    return uid;
  }

  void fail(const std::string& what) {
    if (wrong_.empty()) wrong_ = what + ": " + describe();
  }
  // ---- faults ----

  void disturb() {
    if (chance(faults_.crash_permille)) crash(processes_[static_cast<size_t>(below(count()))]);
    if (faults_.has_rivals && chance(faults_.crash_permille / 4)) proposers_.back().is_alive = false;
    if (chance(faults_.spawn_permille) && processes_.size() < kMostProcesses) {
      const int host = below(kHosts);
      if (!given_up_.contains(host)) spawn(host);
    }
    if (chance(faults_.cut_permille)) {
      if (const int host = below(kHosts); !cut_.erase(host)) cut_.insert(host);
    }
    if (faults_.loses_hosts && !cut_.empty() && chance(20)) give_up(*cut_.begin());
  }

  static void crash(Process& one) { one.is_alive = false; }
  // Its host or another member does not hear of it any more.
  void leave_out(const Uid& uid) {
    for (size_t boss = 0; boss < proposers_.size(); ++boss) on(GoneFor{boss, uid, false});
  }

  // The launcher takes the host for lost. Its processes live on for a while, and find out.
  void give_up(int host) {
    if (given_up_.size() + 1 == kHosts) return;  // one host is always left
    given_up_.insert(host);
    for (Process& one : processes_) {
      if (one.host != host) continue;
      one.is_given_up = true;
      leave_out(one.membership.uid());
    }
  }

  // ---- one event ----

  void turn() {
    ++now_;
    switch (below(4)) {
      case 0:
        return act(processes_[static_cast<size_t>(below(count()))]);
      case 1:
        return act_as(static_cast<size_t>(below(static_cast<int>(proposers_.size()))));
      default:
        return deliver();
    }
  }

  void send(int from, int to, decltype(Message::body) body) {
    if (network_.size() == 64) {  // one of them is lost
      network_[static_cast<size_t>(below(64))] = std::move(network_.back());
      network_.pop_back();
    }
    Message& added = network_.emplace_back();
    added.from = from;
    added.to = to;
    added.body = std::move(body);
  }

  void deliver() {
    if (network_.empty()) return;
    const auto at = static_cast<size_t>(below(static_cast<int>(network_.size())));
    Message message = network_[at];
    const bool is_repeated = !is_healed_ && below(100) < faults_.repeated_percent;
    if (!is_repeated) {
      network_[at] = std::move(network_.back());
      network_.pop_back();
    }
    if (!is_healed_ && below(100) < faults_.lost_percent) return;
    if (cut_.contains(message.from) || cut_.contains(message.to)) return;
    std::visit([this](auto& body) { on(body); }, message.body);
  }

  void on(const ReadyFor& message) {
    if (Boss& boss = proposers_[message.boss]; boss.is_alive) boss.proposer.on_ready(message.ready, now_);
  }
  void on(const GoneFor& message) {
    Boss& boss = proposers_[message.boss];
    if (boss.is_alive) boss.proposer.on_gone(message.uid, now_);
    if (!message.is_certain) return;
    boss.ended.insert(message.uid);
    if (boss.attempt) boss.attempt->on_ended(message.uid);
  }
  void on(const Ask& message) { send(-1, process(message.uid).host, Held{message.uid, last()}); }
  void on(const AskOther& message) {
    const Process& other = process(message.other);
    if (other.is_alive && other.seen.number > 0)
      send(other.host, process(message.uid).host, Held{message.uid, other.seen});
  }
  void on(const VoteFor& message) {
    Process& voter = process(message.request.to);
    if (!voter.is_alive) return;
    const Vote now = compare_and_set(voter, message.number, message.request);
    send(voter.host, proposers_[message.boss].host,
         VoteOf{message.boss, message.number, message.request.to, now});
  }
  void on(const VoteOf& message) {
    Boss& boss = proposers_[message.boss];
    if (boss.is_alive && boss.attempt && boss.number == message.number)
      boss.attempt->on_vote(message.from, message.vote);
  }
  void on(const Propose& message) {
    if (message.view.number == last().number + 1) decide(message.view);
    send(-1, proposers_[message.boss].host, Held{message.boss, last()});
  }
  void on(const Held& message) {
    if (const auto* boss = std::get_if<size_t>(&message.to))
      return proposers_[*boss].proposer.on_view(message.view, now_);
    Process& one = process(std::get<Uid>(message.to));
    if (one.is_alive) learn(one, message.view);
  }

  // ---- processes ----

  void learn(Process& one, const View& view) {
    const bool was_member = one.membership.number() > 0;
    if (view.number > one.seen.number) one.seen = view;
    switch (one.membership.on_view(view)) {
      case Membership::Outcome::kInstalled:
        return install_checked(one);
      case Membership::Outcome::kExcluded:
        one.is_excluded = true;
        if (!was_member && !has_belonged(one)) fail("a process was excluded from views it never belonged to");
        return;
      case Membership::Outcome::kNoNews:
        return;
    }
  }

  void install(Process& one, const View& view) {
    one.seen = view;
    if (one.membership.on_view(view) == Membership::Outcome::kInstalled) install_checked(one);
  }

  void install_checked(Process& one) {
    const View& view = *one.membership.view();
    if (!(view == decided(view.number))) fail("two lists for one number");
    if (faults_.is_by_majority && view.number > 1) {
      one.votes[view.number] = closed();
      end_neighbours(view);
    }
    one.started = kNoCommit;
    one.said.reset();
  }

  // A survivor ends those of its host that the view leaves out, before it installs the view.
  void end_neighbours(const View& view) {
    for (const Member& one : decided(view.number - 1).members)
      if (view.rank_of(one.uid) < 0 && has_host(view, process(one.uid).host)) crash(process(one.uid));
  }
  [[nodiscard]] bool is_running(const Process& one) const {
    return one.is_alive && one.membership.number() > 0 && !one.membership.has_left();
  }

  void act(Process& one) {
    if (!one.is_alive) return tell_gone(one);
    // The silence of the launcher ends it.
    if (one.is_given_up && !faults_.is_by_majority && chance(200)) return crash(one);
    if (one.is_excluded) return;
    if (!is_running(one)) return wait(one);
    const View& view = *one.membership.view();
    if (should_leave(one, view) && chance(500)) return leave(one);
    step(one, view);
  }

  // The agent of its host tells all proposers that it has ended.
  void tell_gone(const Process& one) {
    if (one.is_alive) return;
    for (size_t boss = 0; boss < proposers_.size(); ++boss)
      send(one.host, proposers_[boss].host, GoneFor{boss, one.membership.uid()});
  }

  // It sees that another member has ended or left, or is told that there is to be another view.
  bool should_leave(const Process& one, const View& view) {
    for (const Member& other : view.members) {
      const Process& peer = process(other.uid);
      const int64_t there = peer.membership.number();
      const bool has_gone = there > view.number || (there == view.number && peer.membership.has_left());
      const bool is_cut = cut_.contains(peer.host) != cut_.contains(one.host);
      if (!peer.is_alive || peer.is_given_up || has_gone || is_cut) return true;
    }
    return std::ranges::any_of(
        proposers_, [](const Boss& boss) { return boss.is_alive && boss.proposer.wants_change(); });
  }

  void leave(Process& one) { one.said = one.membership.leave(one.commit, "model"); }

  void wait(Process& one) {
    if (!one.said) leave(one);
    for (size_t boss = 0; boss < proposers_.size(); ++boss)
      send(one.host, proposers_[boss].host, ReadyFor{boss, *one.said});
    if (!faults_.is_by_majority) return send(one.host, -1, Ask{one.membership.uid()});
    if (!chance(250)) return;
    Process& other = processes_[static_cast<size_t>(below(count()))];
    send(one.host, other.host, AskOther{one.membership.uid(), other.membership.uid()});
    Boss& boss = proposers_[static_cast<size_t>(below(static_cast<int>(proposers_.size())))];
    if (boss.is_alive) send(boss.host, one.host, Held{one.membership.uid(), boss.proposer.view()});
  }

  // A member contributes to the next step, or completes the one to which all members have contributed.
  void step(Process& one, const View& view) {
    if (one.commit < view.commit()) {  // it receives the state from a member that holds it
      for (const Member& other : view.members) {
        const Process& holder = process(other.uid);
        if (is_running(holder) && holder.membership.number() == view.number && holder.commit >= view.commit())
          one.commit = view.commit();
      }
      return;
    }
    if (one.started <= one.commit) {
      one.started = one.commit + 1;
      return;
    }
    for (const Member& other : view.members) {
      const Process& peer = process(other.uid);
      if (peer.membership.number() != view.number || peer.started < one.started) return;
    }
    one.commit = one.started;
    note_stable(view);
  }

  // ---- proposers ----

  void act_as(size_t index) {
    Boss& boss = proposers_[index];
    if (!boss.is_alive) return;
    for (const Uid& uid : boss.proposer.silent(now_))  // its agent kills it, if there is one
      faults_.is_by_majority ? leave_out(uid) : crash(process(uid));
    if (faults_.is_by_majority)
      ask_for_votes(index);
    else if (const std::optional<View> next = boss.proposer.next())
      send(boss.host, -1, Propose{index, *next});
    else if (below(4) == 0)
      send(boss.host, -1, Propose{index, View{.number = 0, .members = {}, .lost = {}}});  // only asks
    if (is_healed_ && !boss.proposer.verdict(now_).empty()) is_ended_ = true;
  }

  void ask_for_votes(size_t index) {
    Boss& boss = proposers_[index];
    if (!boss.attempt || boss.number <= boss.proposer.view().number || chance(5)) begin_attempt(boss);
    if (!boss.attempt) return;
    if (boss.attempt->is_outbid() && chance(100)) boss.attempt->retry();
    boss.round = std::max(boss.round, boss.attempt->ballot().round);
    for (const Agreement::Request& one : boss.attempt->requests())
      if (chance(700)) send(boss.host, process(one.to).host, VoteFor{index, boss.number, one});
    if (boss.attempt->is_too_late()) {
      const Process& other = processes_[static_cast<size_t>(below(count()))];
      if (other.is_alive) send(other.host, boss.host, Held{index, other.seen});
    }
    if (const View* const view = boss.attempt->decided()) {
      if (view->number == last().number + 1) {
        if (!has_quorum(*view)) fail("a minority has decided");
        decide(*view);
      }
      if (!(*view == decided(view->number))) fail("two lists were decided");
      boss.proposer.on_view(*view, now_);
    }
  }

  void begin_attempt(Boss& boss) {
    boss.attempt.reset();
    const std::optional<View> next = boss.proposer.next();
    if (!next) return;
    const auto rival = static_cast<size_t>(&boss - proposers_.data());
    const Ballot first{.round = boss.round + 1, .by = std::to_string(rival)};
    boss.number = next->number;
    boss.attempt.emplace(first, boss.proposer.view(), *next, boss.ended);
  }

  // Nobody who lives knows a view from which another one can follow.
  bool is_stuck() {
    int64_t known = 0;
    for (const Process& one : processes_)
      if (one.is_alive) known = std::max(known, one.seen.number);
    for (const Boss& one : proposers_)
      if (one.is_alive) known = std::max(known, one.proposer.view().number);
    return faults_.is_by_majority && is_majority_lost(known);
  }

  void decide(const View& view) {
    if (view.size() < least_) fail("a view is too small");
    bool has_stable = stable_ == kNoCommit;
    for (const Member& one : view.members) {
      const Process& peer = process(one.uid);
      has_stable = has_stable || peer.commit >= stable_;
      if (!one.is_new && peer.commit < one.commit) fail("a member holds less than the view says");
      if (!one.is_new && last().rank_of(one.uid) < 0) fail("a member came back");
    }
    if (!has_stable) fail("no member holds the newest stable commit");
    if (!faults_.is_by_majority)
      for (const Member& one : last().members) check_fenced(process(one.uid), view);
    history_.push_back(view);
  }

  // Memory is shared inside a host: who is evicted there must not run any more.
  void check_fenced(const Process& evicted, const View& view) {
    if (view.rank_of(evicted.membership.uid()) >= 0 || !is_running(evicted)) return;
    for (const Member& one : view.members)
      if (process(one.uid).host == evicted.host) fail("an evicted member can still write");
  }

  // ---- after healing ----

  // The job has ended with a verdict, or all that can belong to the last view do, and commit in it.
  bool has_settled() {
    if (is_ended_ || is_stuck()) return true;
    for (const Process& one : processes_) {
      if (!one.is_alive || one.is_given_up || one.is_excluded) continue;
      const bool has_place = last().rank_of(one.membership.uid()) >= 0;
      if (!has_place && has_belonged(one)) continue;  // it hears so, or asks until its time is over
      if (!has_place && last().size() < 6) return false;
      if (has_place && (!is_running(one) || one.membership.number() != last().number)) return false;
      if (has_place && one.commit < last().commit() + 2) return false;
    }
    return std::ranges::all_of(last().members, [this](const Member& one) {
      const Process& peer = process(one.uid);
      return peer.is_alive && !peer.is_given_up;
    });
  }

  std::mt19937 random_;
  Faults faults_;
  std::vector<Boss> proposers_;
  std::vector<Message> network_;
  std::set<int> cut_, given_up_;
  int least_ = 1;
  Nanos now_ = 1;
  bool is_healed_ = false, is_ended_ = false;
  std::string wrong_;
};

}  // namespace rueda::membership::simulation
