// The part of JobRunner for elastic jobs.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "launch/job_runner.h"
#include "rueda/base/counted.h"

namespace rueda::launch {

Status JobRunner::open_door() {
  if (options_.elastic.accept_agents.empty()) return Status::ok();
  Result<std::unique_ptr<AgentDoor>> opened =
      AgentDoor::open(options_.elastic.accept_agents, identity_.secret);
  if (!opened.is_ok()) return opened.status();
  door_ = std::move(opened).value();
  say(fmt::format("agents join by: rueda agent --join {} --secret-file {}", door_->url(),
                  options_.elastic.secret_file));
  return options_.hosts.empty() ? await_first_agents() : Status::ok();
}

// Of a job for which no hosts were named: those of the first agents.
Status JobRunner::await_first_agents() {
  const Nanos began = monotonic_now(), patience = nanos(options_.elastic.timeout_s, kSecond);
  NoticePace pace(output_.err().is_tty());
  for (Nanos waited = 0; door_->waiting_slots() < options_.size; waited = monotonic_now() - began) {
    const std::string offered = fmt::format("agents offer {}, and the job starts when there are {} (-np)",
                                            counted(door_->waiting_slots(), "slot"), options_.size);
    if (waited >= patience)
      return {Code::kTimeout,
              fmt::format("{}; --elastic-timeout {} is over", offered, options_.elastic.timeout_s)};
    if (pace.is_due(waited)) output_.show_progress(offered);
    output_.err().flush();
    PollSet set;
    door_->watch(set);
    set.wait(Deadline::after(kPingInterval / 10));
    door_->tick(monotonic_now());
  }
  output_.end_progress();
  for (HostLink& link : door_->take()) {
    const bool is_known =
        std::ranges::find(options_.hosts, link.host(), &HostSlots::name) != options_.hosts.end();
    if (is_known) {
      door_->turn_away(std::move(link), "another agent of this name was there before; give --name",
                       monotonic_now());
      continue;
    }
    options_.hosts.push_back({link.host(), std::max(1, link.hello()->slots)});
    agents_.adopt(std::move(link));
  }
  return Status::ok();
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

// Of which ranks `rueda status` asks this host: those of the last view.
std::vector<Rank> JobRunner::status_ranks_on(int host) const {
  std::vector<Rank> ranks = ranks_.ranks_on(host);
  if (elastic_ == nullptr) return ranks;
  for (Rank& one : ranks) one = elastic_->job().rank_of(one);
  std::erase(ranks, -1);
  return ranks;
}

void JobRunner::on_elastic_message(HostLink& link, const AgentMessage& message) {
  if (elastic_ == nullptr) return;
  const Status read = message.type == MessageType::kBoard ? elastic_->on_board(message.payload)
                                                          : elastic_->on_leave(message.payload);
  if (!read.is_ok()) link.close(read.why);
}

// The endings that decide how the job has ended.
std::vector<Ending> JobRunner::deciding() const {
  return elastic_ ? elastic_->job().deciding(ranks_.endings()) : ranks_.endings();
}

std::string JobRunner::verdict() const {
  return elastic_ && stop_plan_.interrupt() == 0 ? elastic_->job().verdict() : "";
}

}  // namespace rueda::launch
