// Finds out which tensors run next on this rank: submissions go to the coordinator or into the learned plan,
// and the responses go to the dispatcher in the global order. Carries out what control::Rounds (on rank 0)
// and control::Planner decide. Engine thread only.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/control/request_reader.h"
#include "rueda/control/rounds.h"
#include "rueda/control/statement.h"
#include "rueda/runtime/control_channel.h"
#include "rueda/runtime/dispatcher.h"
#include "rueda/runtime/groups.h"
#include "rueda/runtime/hierarchy.h"
#include "rueda/runtime/learned_plans.h"
#include "rueda/runtime/operations.h"
#include "rueda/runtime/ready_streams.h"
#include "rueda/runtime/session.h"
#include "rueda/runtime/tuning.h"

namespace rueda::runtime {

class Negotiation {
 public:
  // All outlive this object.
  struct Parts {
    const Session& session;
    const Hierarchy& hierarchy;
    const Groups& groups;
    Operations& operations;
    Dispatcher& dispatcher;
    ReadyStreams& ready_streams;
    ControlChannel& channel;
    TraceSink& trace;
    EngineCounters& counters;
  };
  explicit Negotiation(Parts parts);

  // Takes new operations. True if there were any.
  bool take_submissions();
  bool drop_submissions();  // the same, and forgets them: they fail when the engine ends
  // Rank 0: begins a round of negotiation, if one may begin. True if one did.
  bool begin_round(Nanos now);
  // Rank 0: tells all ranks about stalls. Fails if one must end the job. in_plan: what waits in a learned
  // plan.
  Status report_stalls(Nanos now, std::vector<control::StalledTensor> in_plan);
  // Rank 0: what is negotiated and has waited for so long or longer.
  [[nodiscard]] std::vector<control::StalledTensor> waiting_longer_than(Nanos age, Nanos now) const;
  [[nodiscard]] control::Planner::Progress place_in_plan(Nanos now) const { return plans_.place(now); }
  // Rank 0: the learned plan that is active.
  [[nodiscard]] const control::PlanLedger& plan() const { return plans_.planner().maker().ledger(); }
  // Starts buckets of the learned plan, and departs from it if that is necessary. True if anything moved.
  bool run_plan(Nanos now);
  // What ranks say about which tensors run; on rank 0. Fails if it must refuse that.
  Status on_statement(const control::Statement& statement, Nanos now, bool accepts_requests);
  // What rank 0 says about it. Fails if this rank must refuse that.
  Status on_order(const ControlMessage& message);
  // This rank departs from the learned plan.
  void depart(const std::string& why) { carry_out(plans_.planner().depart(why)); }
  // This rank has submitted what the coordinator has not ordered yet; of process set 0.
  [[nodiscard]] bool awaits_answers() const { return plans_.planner().awaits_answers(); }
  [[nodiscard]] bool awaits_world() const { return plans_.planner().awaits_world(); }
  // Rank 0: a learned plan is active.
  [[nodiscard]] bool has_plan() const { return plans_.planner().maker().holds_back(); }

  // When something of the above is due without any other event. begins_rounds: no rank leaves.
  [[nodiscard]] Nanos next_event(Nanos now, bool begins_rounds) const;
  // Rank 0: the next round waits for its time.
  [[nodiscard]] bool has_due_times(Nanos now) const { return rounds_ && rounds_->next_round() > now; }
  // What waits for ranks, for the log when a job ends. Empty if nothing waits.
  [[nodiscard]] std::string pending_summary() const { return rounds_ ? rounds_->pending_summary() : ""; }

 private:
  [[nodiscard]] bool is_coordinator() const { return parts_.hierarchy.is_root(); }
  void negotiate(std::span<const control::Request> requests);
  void send_requests(std::span<const control::Request> requests);
  void broadcast(std::span<const control::Response> responses);
  void respond(std::vector<control::Response> responses);
  Status accept(std::vector<control::Response> responses);
  void mark_cycle();  // a round or a bucket begins
  // On rank 0 to itself.
  void tell_coordinator(control::MessageType type, const control::PlanReport& news);

  // Carries out the actions in order. One may lead to further events, whose actions are carried out before
  // the rest; no decision is under way then.
  void carry_out(control::PlannerActions actions);
  void carry_out(control::TellDeparture& told);
  void carry_out(control::TellPosition& told);
  void carry_out(control::Negotiate& negotiated) { negotiate(negotiated.requests); }
  void carry_out(control::FreezeAll& frozen);
  void carry_out(control::Respond& said) { respond(std::move(said.responses)); }

  Parts parts_;
  LearnedPlans plans_;
  TuningReport tuning_report_;                         // of rank 0
  std::unique_ptr<control::Rounds> rounds_;            // rank 0 only
  control::RequestReader reader_;                      // the same
  std::vector<std::shared_ptr<Operation>> submitted_;  // scratch of take_submissions()
};

}  // namespace rueda::runtime
