// The one thread that performs effects. It joins control to backends: submissions go to the coordinator,
// responses come back in one global order and run, peers are watched, and everything in flight fails at once
// with a named culprit when the epoch breaks. Public members: any thread, unless they say otherwise.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/control/coordinator.h"
#include "rueda/runtime/counters.h"
#include "rueda/runtime/dispatcher.h"
#include "rueda/runtime/gate.h"
#include "rueda/runtime/groups.h"
#include "rueda/runtime/links.h"
#include "rueda/runtime/liveness.h"
#include "rueda/runtime/operations.h"
#include "rueda/runtime/planner.h"
#include "rueda/runtime/session.h"
#include "rueda/runtime/suspicions.h"
#include "rueda/trace/timeline.h"

namespace rueda::runtime {

class Engine {
 public:
  // Fails where this machine has no thread to give.
  static Result<std::shared_ptr<Engine>> start(Session session);
  ~Engine();  // as shutdown()
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Validates, registers and starts the tensors as one operation. will_wait: the caller's next call is
  // wait().
  Result<int64_t> submit(std::vector<Tensor> tensors, bool will_wait = false);
  // As Operations::wait. Unless somebody is at it, the caller does the engine's work.
  Status wait(int64_t handle, std::optional<Deadline> deadline);
  // Collective over the world; blocks.
  Result<int32_t> add_process_set(std::vector<Rank> ranks);
  Status remove_process_set(int32_t id);

  // goes_on: as TimelineOptions.
  Status start_timeline(const std::string& path, bool mark_cycles, bool goes_on = false);
  void stop_timeline();

  // Leaves in good order: everything the coordinator has ordered completes, then all ranks stop. Bounded.
  void shutdown();
  [[nodiscard]] Status health() const { return operations_.closed_with(); }
  // The rank whose loss ended this epoch, as all ranks have been told, or -1.
  [[nodiscard]] Rank lost_rank() const { return lost_rank_; }

  [[nodiscard]] const Session& session() const { return session_; }
  [[nodiscard]] Operations& operations() { return operations_; }
  [[nodiscard]] const Groups& groups() const { return groups_; }
  [[nodiscard]] const EngineCounters& counters() const { return counters_; }

 private:
  explicit Engine(Session session);
  enum class Phase : uint8_t { kRunning, kDraining, kStopped, kClosed };

  [[nodiscard]] bool is_coordinator() const { return session_.me == kCoordinator; }
  void run();
  bool cycle();
  void idle(std::unique_lock<std::mutex>& lock);
  [[nodiscard]] bool is_left_to_waiters(Nanos now) const;
  void set_gate(bool is_left, Nanos now);
  void park(std::unique_lock<std::mutex>& lock, Nanos until);
  void wake();
  void ring();
  bool drive(const Operation& operation, std::optional<Deadline> deadline);
  bool look_closely(const Operation& operation);
  void leave_parked();
  [[nodiscard]] bool prepare_sleep();  // false: there is work
  void end_sleep();
  [[nodiscard]] Nanos next_event(Nanos now) const;

  bool collect_submissions();
  bool handle_frames();
  void handle_frame(Frame frame, Nanos now);
  void handle_heartbeat(Rank from, const control::Heartbeat& heartbeat, Nanos now);
  void handle_losses();
  void suspect(Rank reporter, Rank whom, const std::string& why);
  void judge_suspects(Nanos now);
  void handle_abort(Rank from, const control::Abort& abort);
  bool coordinate(Nanos now);
  void check_stalls(Nanos now);
  void watch_peers(Nanos now);
  bool end_broken_epoch(Nanos now);
  void negotiate(std::span<const control::Request> requests);
  void send_requests(std::span<const control::Request> requests);
  [[nodiscard]] PlannerActions planner_actions();
  [[nodiscard]] Planner::Options planner_options() const;
  void handle_plan_news(const Frame& frame);
  void trace_negotiation(TraceKind kind, const control::Request& request);
  void trace_wait(TraceKind kind, const std::string& name, std::string_view phase);
  void trace_round(Nanos now);
  void broadcast_responses(std::span<const control::Response> responses);
  void accept(std::vector<control::Response> responses);
  void send(Rank peer, control::FrameType type, Bytes payload);
  void send_trace_batches();
  [[nodiscard]] bool has_trace_batches();

  void begin_draining(Rank leaver);
  void advance_closing();
  void flush_frames(Nanos at_most);
  // Ends the epoch with a failure; tells the others unless the news came from the coordinator.
  void fail(const Status& why, Rank lost, bool tell_others);
  Result<int64_t> submit_set_change(control::Request request);
  [[nodiscard]] Status lost_status(Rank lost, const std::string& why) const;

  Session session_;
  EngineCounters counters_;
  std::atomic<bool> is_asleep_{false};
  std::atomic<bool> is_leaving_{false};
  Operations operations_;
  Groups groups_;
  std::mutex timeline_mutex_;
  std::shared_ptr<trace::Timeline> timeline_;
  std::string timeline_path_;
  std::mutex trace_mutex_;
  std::vector<Bytes> trace_batches_;  // on their way to rank 0

  // Whoever holds it is the engine: its own thread, or one that waits for an operation. "Engine thread" in
  // other headers means the holder.
  std::mutex mutex_;
  bool is_parked_ = false;         // the engine's own thread sleeps in poll until rung
  bool has_silent_lanes_ = false;  // only shared memory: it wakes nobody who has not announced sleep
  Gate gate_;                      // of the transports' descriptors
  Phase phase_ = Phase::kRunning;
  bool has_asked_to_leave_ = false;
  std::unique_ptr<control::Coordinator> coordinator_;  // rank 0 only
  Dispatcher dispatcher_;
  Planner planner_;
  std::set<std::string> waiting_in_plan_;  // tensors whose wait for a bucket the timeline shows
  bool drains_after_plan_ = false;         // coordinator
  bool has_core_to_itself_ = false;        // as far as the last yield has shown
  Rank first_leaver_ = -1;                 // who asked to shut down
  std::string leaver_;                     // the same, for people
  Liveness liveness_;
  Nanos last_moved_ = 0;
  Nanos last_driven_ = -kSecond;     // by a thread that waited
  Nanos quiet_time_ = kMillisecond;  // that the engine's own thread leaves the wires to such threads
  Nanos next_stall_check_ = 0;
  Nanos next_round_ = 0;       // coordinator: RUEDA_CYCLE_TIME after the last round
  std::vector<bool> is_done_;  // coordinator: ranks that have stopped
  Suspicions suspicions_;      // coordinator
  std::atomic<Rank> lost_rank_{-1};
  Rank suspect_ = -1;  // a peer this rank reported; the coordinator's verdict is awaited
  Nanos suspect_deadline_ = 0;
  Nanos failure_deadline_ = 0;  // of a failure this rank noticed itself, 0 = none
  std::string suspect_reason_;

  std::thread thread_;  // last: starts when everything above stands
};

}  // namespace rueda::runtime
