// The part of JobRunner for elastic jobs.
#include <fmt/format.h>

#include <utility>

#include "launch/first_agents.h"
#include "launch/job_runner.h"

namespace rueda::launch {

Status JobRunner::open_door() {
  if (options_.elastic.accept_agents.empty()) return Status::ok();
  Result<std::unique_ptr<AgentDoor>> opened =
      AgentDoor::open(options_.elastic.accept_agents, identity_.secret);
  if (!opened.is_ok()) return opened.status();
  door_ = std::move(opened).value();
  say(fmt::format("agents join by: rueda agent --join {} --secret-file {}", door_->url(),
                  options_.elastic.secret_file));
  return options_.hosts.empty() ? await_first_agents(*door_, options_, agents_, output_) : Status::ok();
}

// At the end of an elastic job, the processes that are left (and the agents) are told to end.
void JobRunner::tick_elastic(Nanos now) {
  if (elastic_ == nullptr || phase_ != Phase::kRunning || is_elastic_ended_) return;
  if (stop_plan_.interrupt() == 0) elastic_->tick(now);
  if (const int64_t view = elastic_->job().view(); view != shown_view_) {
    shown_view_ = view;
    open_status_server();
  }
  const bool is_over = stop_plan_.interrupt() == 0 ? elastic_->job().is_over() : ranks_.running() == 0;
  if (!is_over) return;
  is_elastic_ended_ = true;
  stop_plan_.on_failure(now);  // should the agents not end
  agents_.abandon_idle();
  perform(StopPlan::Step::kStop, now);
}

// The endings that decide how the job has ended.
std::vector<Ending> JobRunner::deciding() const {
  return elastic_ ? elastic_->job().deciding(ranks_.endings()) : ranks_.endings();
}

std::string JobRunner::verdict() const {
  return elastic_ && stop_plan_.interrupt() == 0 ? elastic_->job().verdict() : "";
}

}  // namespace rueda::launch
