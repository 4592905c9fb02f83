// The engine of one epoch. It joins control to backends: submissions go to the coordinator, responses come
// back in one global order and run, peers are watched, and everything in flight fails at once with a named
// culprit when the epoch breaks. Its work is divided into four jobs: the driver (which thread does the work,
// and how it sleeps), the negotiation (what runs next), the failure detector (what a loss means) and the
// shutdown (how ranks leave in good order). This class passes events to them and carries out what they
// decide. Public members: any thread, unless they say otherwise.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/runtime/control_channel.h"
#include "rueda/runtime/counters.h"
#include "rueda/runtime/dispatcher.h"
#include "rueda/runtime/driver.h"
#include "rueda/runtime/engine_actions.h"
#include "rueda/runtime/failure_detector.h"
#include "rueda/runtime/groups.h"
#include "rueda/runtime/hierarchy.h"
#include "rueda/runtime/inbox.h"
#include "rueda/runtime/negotiation.h"
#include "rueda/runtime/observer.h"
#include "rueda/runtime/operations.h"
#include "rueda/runtime/participation_clock.h"
#include "rueda/runtime/recording.h"
#include "rueda/runtime/session.h"
#include "rueda/runtime/shutdown.h"
#include "rueda/runtime/submissions.h"

namespace rueda::runtime {

class Engine final : private Work {
 public:
  // Fails if this machine cannot start a thread.
  static Result<std::shared_ptr<Engine>> start(Session session);
  ~Engine() override;  // as shutdown()
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] Submissions& submissions() { return submissions_; }
  // As Operations::wait(). Meanwhile the caller does the engine's work, unless another thread does it.
  Status wait(int64_t handle, std::optional<Deadline> deadline);
  // As Operations::StreamWaits; otherwise as wait().
  Status wait_on_stream(int64_t handle, void* stream, std::optional<Deadline> deadline);
  // The same for several, until one fails. ended: how many have not.
  Status wait_all_on_stream(std::span<const int64_t> handles, void* stream, std::optional<Deadline> deadline,
                            size_t& ended);
  // Collective over the world; blocks.
  Result<int32_t> add_process_set(std::vector<Rank> ranks);
  Status remove_process_set(int32_t id);

  // As in Recording.
  Status start_timeline(const std::string& path, bool mark_cycles) {
    return recording_.start(path, mark_cycles, true);
  }
  void stop_timeline() { recording_.stop_with_others(); }

  // As in Observer.
  void input_begins() { observer_.input_begins(monotonic_now()); }
  void input_ends() { observer_.input_ends(); }
  [[nodiscard]] Nanos input_since() const { return observer_.input_since(); }  // 0: it does not wait

  [[nodiscard]] std::vector<control::StragglerDetector::Straggler> stragglers() const {
    return observer_.stragglers();
  }

  // Leaves in good order: everything the coordinator has ordered completes, then all ranks stop.
  // Bounded in time.
  void shutdown();
  [[nodiscard]] Status health() const { return operations_.closed_with(); }
  // The rank whose loss ended this epoch, as all ranks have been told, or -1.
  [[nodiscard]] Rank lost_rank() const { return actions_.lost_rank(); }
  [[nodiscard]] Rank cut_from() const { return actions_.cut_from(); }  // FailureDetector::End

  [[nodiscard]] const Session& session() const { return session_; }
  [[nodiscard]] Operations& operations() { return operations_; }
  [[nodiscard]] const Groups& groups() const { return groups_; }
  [[nodiscard]] const EngineCounters& counters() const { return counters_; }

 private:
  explicit Engine(Session session);
  [[nodiscard]] bool is_coordinator() const { return hierarchy_.is_root(); }
  template <class F>
  Status wait_for(const std::shared_ptr<Operation>& operation, std::optional<Deadline> deadline,
                  const F& wait);
  Result<int32_t> change_process_sets(control::SetChange change);  // the id of the set that was added

  // ---- what the driver drives ----
  bool turn() override;
  bool look_closely(const std::atomic<bool>& is_done) override;
  [[nodiscard]] bool is_over() const override { return shutdown_.is_closed(); }
  void ended() override;
  [[nodiscard]] Nanos next_event(Nanos now) const override;
  [[nodiscard]] bool has_due_times(Nanos now) const override;
  [[nodiscard]] bool is_quiet() const override;
  [[nodiscard]] bool needs_polling() const override {
    return session_.backends->needs_polling() || dispatcher_.waits_for_device();
  }
  bool prepare_sleep() override;
  void wake_up() override;

  void look_around(Nanos now);
  void note_participation(std::optional<Nanos> now);

  Session session_;
  Hierarchy hierarchy_;
  EngineCounters counters_;
  ReadyStreams ready_streams_;  // before operations_, whose events use it
  Operations operations_;
  Groups groups_;
  Recording recording_;
  ControlChannel channel_;
  Dispatcher dispatcher_;
  Negotiation negotiation_;
  FailureDetector failure_detector_;
  Observer observer_;
  Submissions submissions_;
  ParticipationClock participation_;
  Shutdown shutdown_;
  EngineActions actions_;
  Inbox inbox_;
  Driver driver_;  // last: its thread uses everything above
};

}  // namespace rueda::runtime
