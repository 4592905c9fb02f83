// What has happened in a simulated job, and what follows from it (membership_world.h).
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "membership_players.h"

namespace rueda::membership::simulation {

class Record {
 public:
  [[nodiscard]] size_t views() const { return history_.size(); }
  [[nodiscard]] Commit newest_stable() const { return stable_; }

 protected:
  static std::string host_name(int host) { return std::string(1, static_cast<char>('a' + host)); }
  Process& process(const Uid& uid) { return processes_[static_cast<size_t>(std::stoi(uid.substr(2)))]; }
  [[nodiscard]] const Process& process(const Uid& uid) const {
    return processes_[static_cast<size_t>(std::stoi(uid.substr(2)))];
  }
  [[nodiscard]] int count() const { return static_cast<int>(processes_.size()); }
  [[nodiscard]] const View& last() const { return history_.back(); }
  [[nodiscard]] const View& decided(int64_t number) const {
    return history_[static_cast<size_t>(number - 1)];
  }

  [[nodiscard]] std::string describe() const {
    std::string text = "view " + std::to_string(last().number) + " of";
    for (const Member& one : last().members) text += " " + one.uid + "=" + std::to_string(one.commit);
    for (const Process& one : processes_)
      text += "; " + one.membership.uid() + (one.is_alive ? "" : " dead") + " view " +
              std::to_string(one.membership.number()) + (one.membership.has_left() ? " left" : "") +
              " commit " + std::to_string(one.commit);
    return text + "; stable " + std::to_string(stable_);
  }

  // To a view which it may have missed.
  [[nodiscard]] bool has_belonged(const Process& one) const {
    return std::ranges::any_of(history_,
                               [&](const View& view) { return view.rank_of(one.membership.uid()) >= 0; });
  }

  [[nodiscard]] bool has_host(const View& view, int host) const {
    return std::ranges::any_of(view.members,
                               [&](const Member& one) { return process(one.uid).host == host; });
  }

  // A majority of the last view has accepted it, or a half of which the other half has ended.
  [[nodiscard]] bool has_quorum(const View& view) const {
    size_t accepted = 0, alive = 0;
    for (const Member& one : last().members) {
      accepted += process(one.uid).accepted.contains(view.number) ? 1 : 0;
      alive += process(one.uid).is_alive ? 1 : 0;
    }
    const size_t all = last().members.size();
    return 2 * accepted > all || (2 * accepted == all && 2 * alive <= all);
  }

  // So no view can follow that of this number, and none must.
  [[nodiscard]] bool is_majority_lost(int64_t number) const {
    const std::vector<Member>& members = decided(number).members;
    const auto ended = static_cast<size_t>(
        std::ranges::count_if(members, [this](const Member& one) { return !process(one.uid).is_alive; }));
    return !is_quorum(members.size() - ended, ended, members.size());
  }

  void note_stable(const View& view) {
    Commit least = INT64_MAX;
    for (const Member& other : view.members) {
      const Process& peer = process(other.uid);
      if (peer.membership.number() != view.number) return;
      least = std::min(least, peer.commit);
    }
    stable_ = std::max(stable_, least);
  }

  std::vector<Process> processes_;
  std::vector<View> history_;  // [number - 1]: what was decided
  Commit stable_ = kNoCommit;
};

}  // namespace rueda::membership::simulation
