// Finds a commit at which all members of a view leave it, while they go on committing. See
// status/elastic_board.h for what each of them does. Pure.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "rueda/status/elastic_board.h"

namespace rueda::launch {

// One thread.
class CommonCommit {
 public:
  struct Member {
    int number = 0;  // of its process
    bool does_leave = false;
  };
  struct Reasons {
    bool are_hosts_added = false, are_hosts_removed = false;
  };
  // What a process is told.
  using Orders = std::vector<std::pair<int, status::ViewChange>>;

  [[nodiscard]] bool is_under_way() const { return phase_ != status::ViewChange::Phase::kNone; }
  Orders begin(const std::vector<Member>& members, const Reasons& reasons);
  // How far the process is, or (after a proposal) whether it saw that in time: 1, or too late: -1.
  Orders on_report(int number, uint16_t round, int64_t commit, int answer);
  // The view ends, at that commit or because a member was lost: nothing is proposed any more.
  Orders end();
  // A member has left the view. Before the confirmation it has done so after a failure, and will not answer:
  // the others must not wait for it.
  Orders on_left() { return phase_ == status::ViewChange::Phase::kConfirmed ? Orders() : end(); }

 private:
  struct State {
    bool does_leave = false, has_answered = false;
    int64_t commit = -1;
  };
  Orders tell(status::ViewChange::Phase phase, int64_t commit);
  [[nodiscard]] bool have_all_answered() const;

  std::map<int, State> members_;
  Reasons reasons_;
  status::ViewChange::Phase phase_ = status::ViewChange::Phase::kNone;
  uint16_t round_ = 0;
  int64_t target_ = -1;
  int64_t ahead_ = 1;  // how far beyond the members the next proposal lies
  bool was_late_ = false;
};

}  // namespace rueda::launch
