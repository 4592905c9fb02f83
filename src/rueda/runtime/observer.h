// Says what is wrong while it happens: gathers facts about this rank and about the processes of its host, and
// on rank 0 gives the facts of all ranks to control::Judge and writes its verdicts to the log. Engine thread
// only, except for what says "any thread".
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/process.h"
#include "rueda/base/trace_sink.h"
#include "rueda/control/judge.h"
#include "rueda/control/planner.h"
#include "rueda/control/straggler_detector.h"
#include "rueda/runtime/hierarchy.h"
#include "rueda/runtime/operations.h"
#include "rueda/runtime/session.h"
#include "rueda/status/job_news.h"

namespace rueda::runtime {

class Observer {
 public:
  // All outlive this object.
  Observer(const Session& session, const Hierarchy& hierarchy, const Operations& operations, Nanos now);

  // ---- any thread ----
  // The program waits for its next batch from now on, or no longer.
  void input_begins(Nanos now) { input_since_.store(now); }
  void input_ends() { input_since_.store(0); }
  [[nodiscard]] Nanos input_since() const { return input_since_.load(); }  // 0: it does not wait
  // Remembers the first tensor with NaN or infinity, if RUEDA_CHECK_NUMBERS is on.
  void check_numbers(const Tensor& tensor, const void* input);

  void heard(Rank from, Nanos now) { judge_.heard(from, now); }
  void on_facts(Rank from, control::Facts facts, Nanos now) {
    straggler_detector_.on_participation(from, facts.participation, now);
    judge_.on_facts(from, std::move(facts), now);
  }
  // Rank 0: of itself, when it asks all others for theirs.
  void on_participation(Rank me, const control::Participation& participation, Nanos now) {
    straggler_detector_.on_participation(me, participation, now);
  }
  // As StragglerDetector::take().
  std::vector<control::StragglerDetector::Wait> take_waits() { return straggler_detector_.take(); }
  // Any thread: as StragglerDetector::stragglers(), at the last look. Empty on all ranks but 0.
  [[nodiscard]] std::vector<control::StragglerDetector::Straggler> stragglers() const;
  // For the coordinator.
  control::Facts facts(const control::Planner::Progress& place, Nanos now);

  // Whether it is time to look at processes and to judge.
  [[nodiscard]] bool is_due(Nanos now) const { return now >= next_look_; }
  // Whether the coordinator must have facts now, and not only with the next heartbeat. True once.
  bool take_news() { return has_news_.load(std::memory_order_relaxed) && has_news_.exchange(false); }
  [[nodiscard]] Nanos next_event() const { return next_look_; }
  // waits: as for Judge::tick. What is said goes to the log and into the trace. Returns the ranks whose
  // stacks say more about it.
  std::vector<Rank> look(const control::Planner::Progress& place, const control::PlanLedger& plan,
                         const std::vector<control::StalledTensor>& waits, Nanos now, TraceSink& trace);
  // Ranks whose processes are stopped or in a debugger, as far as this rank knows.
  [[nodiscard]] std::vector<control::PeerProcess> held(Nanos now) const;
  // Of the host of that rank, at the last look.
  [[nodiscard]] control::Agent agent_of(Rank rank) const;
  // For how long others must have waited.
  [[nodiscard]] Nanos limit() const { return judge_.limit(); }
  // What has waited in the learned plan for a second or longer, at the last look. Mostly empty.
  [[nodiscard]] const std::vector<control::StalledTensor>& waits_in_plan() const { return in_plan_; }
  // A rank was lost; loss: as FailureDetector::End.
  void lost(Rank rank, std::string_view loss, const std::string& why);

 private:
  [[nodiscard]] bool is_coordinator() const { return hierarchy_.is_root(); }
  [[nodiscard]] std::string describe(Rank rank) const;
  void look_at_processes(Nanos now);
  void read_news(Nanos now);
  // By another rank of its host, which sees that it is stopped and says so.
  [[nodiscard]] bool is_root_watched(const status::JobNews& news) const;
  [[nodiscard]] std::vector<control::Unreached> unreached() const;

  const Session& session_;
  const Hierarchy& hierarchy_;
  const Operations& operations_;
  control::Judge judge_;
  control::StragglerDetector straggler_detector_;
  bool is_silent_ = false;     // RUEDA_STALL_CHECK_DISABLE
  bool judges_first_ = false;  // this rank says what is wrong with rank 0, on another host
  std::vector<Rank> watched_;  // ranks of this host whose processes this rank watches
  std::vector<control::PeerProcess> peer_processes_;  // of watched ranks that do not run, at the last look
  std::vector<control::PeerProcess> held_elsewhere_;  // ranks of other hosts, by the news of the job
  std::optional<status::DatedNews> job_news_;         // at the last look
  std::vector<control::StalledTensor> in_plan_;
  ProcessUse use_;
  Nanos next_look_;
  std::atomic<Nanos> input_since_{0};
  std::atomic<int64_t> checked_{0};  // tensors
  std::atomic<bool> has_news_{false};
  mutable std::mutex mutex_;
  std::optional<control::NotFinite> not_finite_;                   // the first
  std::vector<control::StragglerDetector::Straggler> stragglers_;  // at the last look
};

}  // namespace rueda::runtime
