#include "launch/agents.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>

#include "launch/agent_tree.h"
#include "launch/branch_messages.h"

namespace rueda::launch {

namespace {

constexpr Nanos kFirstWord = 60 * kSecond;  // from the start of an agent to its hello

StartWay way_to(const std::string& host, const RunOptions& options) {
  if (is_this_machine(host)) return StartWay::kHere;
  if (std::ranges::find(options.allocation, host, &SlurmNode::name) != options.allocation.end())
    return StartWay::kSrun;
  return options.uses_blaunch ? StartWay::kBlaunch : StartWay::kSsh;
}

}  // namespace

Status Agents::start_all(std::span<const HostSlots> hosts, const RunOptions& options, Say say) {
  options_ = &options;
  say_ = std::move(say);
  is_starting_ = true;
  const size_t there = links_.size();
  std::vector<bool> can_be_below;
  for (const HostSlots& host : hosts.subspan(std::min(there, hosts.size()))) {
    const HostLink& link = links_.emplace_back(host.name, way_to(host.name, options));
    can_be_below.push_back(link.way() == StartWay::kSsh && is_ssh(options.ssh) && !options.is_elastic());
  }
  if (!options.is_elastic())
    for (const int parent : plan_agent_tree(can_be_below, options.ssh_fan_out))
      places_.push_back({.parent = parent});
  for (size_t host = there; host < links_.size(); ++host) {
    if (host < places_.size() && places_[host].parent >= 0) continue;  // when that agent has answered
    if (Status started = begin(links_[host], options); !started.is_ok()) return started;
    announce(links_[host]);
  }
  return Status::ok();
}

void Agents::announce(const HostLink& link) const {
  if (!options_->is_verbose) return;
  const std::string by = link.branch() ? fmt::format(", by {}", link.branch()->parent_host) : "";
  const std::string how = link.is_remote() ? fmt::format("through {}{}", program_of(link.way()), by) : "here";
  say_(fmt::format("starting the agent of {} {}", link.host(), how));
}

Status Agents::start(const std::string& host, const RunOptions& options) {
  return begin(links_.emplace_back(host, way_to(host, options)), options);
}

Status Agents::start_again(HostLink& link, const RunOptions& options) {
  link = HostLink(std::string(link.host()), link.way());
  return begin(link, options);
}

Status Agents::begin(HostLink& link, const RunOptions& options) {
  const std::string& host = link.host();
  const auto node = std::ranges::find(options.allocation, host, &SlurmNode::name);
  const auto start = [&]() -> Result<AgentProcess> {
    switch (link.way()) {
      case StartWay::kHere:
        return start_local_agent();
      case StartWay::kSsh:
        return start_ssh_agent(options.ssh, host, options.binary);
      case StartWay::kSrun:
        return start_srun_agent(*node, options.binary);
      case StartWay::kBlaunch:
      case StartWay::kJoined:  // such a link is never begun
        break;
    }
    return start_blaunch_agent(host, options.binary);
  };
  Result<AgentProcess> agent = start();
  if (!agent.is_ok())
    return {agent.status().code, fmt::format("cannot start the agent of {}: {}", host, agent.status().why)};
  link.attach(std::move(agent.value()));
  return Status::ok();
}

void Agents::watch(PollSet& set, const Handlers& handlers, bool is_held, Nanos now) {
  begin_branches();
  for (HostLink& link : links_) {
    if (is_held) link.excuse_silence(now);
    if (link.branch()) continue;  // it has no descriptor
    const AgentProcess& process = link.process();
    if (link.is_open() && !is_held) set.watch(process.out.get(), POLLIN, [&] { read(link, handlers); });
    if (process.err.is_open())
      set.watch(process.err.get(), POLLIN, [&] { handlers.on_errors(link, link.read_errors()); });
    if (link.wants_to_write()) set.watch(process.in.get(), POLLOUT, [&] { link.flush(); });
  }
}

void Agents::read(HostLink& link, const Handlers& handlers) {
  link.read_messages([&](const AgentMessage& message) { on_message(link, message, handlers); });
}

void Agents::on_message(HostLink& link, const AgentMessage& message, const Handlers& handlers) {
  Status done = Status::ok();
  if (message.type == MessageType::kFromBranch)
    done = on_branch_part(link, message.payload, handlers);
  else if (message.type == MessageType::kBranchEnded)
    done = on_branch_ended(link, message.payload);
  else
    handlers.on_rank_message(link, message);
  if (!done.is_ok()) link.close(done.why);
}

void Agents::read_the_rest(const Handlers& handlers) {
  for (HostLink& link : links_)
    if (link.process().out.is_open()) read(link, handlers);
}

// Agents pass it on to their branches.
void Agents::broadcast(MessageType type, std::span<const std::byte> payload) {
  for (size_t host = 0; host < links_.size(); ++host) {
    HostLink& link = links_[host];
    if (link.branch()) continue;
    if (host < places_.size() && places_[host].has_branches)
      link.send(MessageType::kForAll, for_all(type, payload));
    else if (!link.has_said_bye())
      link.send(type, payload);
  }
}

void Agents::check_silence(Nanos now, Nanos timeout) {
  for (HostLink& link : links_) {
    // One that was started again, in an elastic job, may have to wait for its host.
    const Nanos allowed = link.hello() || timeout == 0 ? timeout : std::max(timeout, kFirstWord);
    // If the agent that carries its bytes is silent, that one is lost first, and named.
    const HostLink* const parent = parent_of(link);
    if (parent != nullptr && parent->is_silent(now)) continue;
    link.check_silence(now, link.is_remote() ? allowed : 0);
  }
}

void Agents::excuse_silence(Nanos now) {
  for (HostLink& link : links_) link.excuse_silence(now);
}

void Agents::reap() {
  int status = 0;
  for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto link = std::ranges::find(links_, pid, [](const HostLink& one) { return one.process().pid; });
    if (link != links_.end()) link->on_reaped(status);
  }
  for (HostLink& link : links_) link.look_for_end();
  end_branches_of_lost();
}

void Agents::abandon() {
  is_starting_ = false;
  for (HostLink& link : links_) {
    link.close("the job did not start");
    if (link.is_remote()) link.signal(SIGTERM);
  }
}

void Agents::abandon_idle() {
  for (HostLink& link : links_) {
    if (link.has_job() || link.is_over()) continue;
    link.close("the job has ended");
    if (link.is_remote()) link.signal(SIGTERM);
  }
}

void Agents::force_end(Nanos now) {
  for (HostLink& link : links_) link.force_end(now);
}

void Agents::close(const std::string& why) {
  for (HostLink& link : links_) link.close(why);
}

bool Agents::are_over() const { return std::ranges::all_of(links_, &HostLink::is_over); }

bool Agents::are_local_gone() const {
  return std::ranges::all_of(links_,
                             [](const HostLink& link) { return link.is_remote() || link.is_reaped(); });
}

std::vector<AgentState> Agents::states() const {
  std::vector<AgentState> states;
  for (const HostLink& link : links_) {
    AgentState& state = states.emplace_back();
    state.host = link.host();
    state.way = link.way();
    if (link.hello()) state.hello = &*link.hello();
    if (link.is_lost()) state.lost_because = link.lost_because();
    state.is_begun = link.is_attached();
    if (link.branch()) state.started_by = link.branch()->parent_host;
    const auto host = static_cast<size_t>(&link - links_.data());
    if (host < places_.size()) state.tried_by = places_[host].tried_by;
    if (host < places_.size()) state.tried_why = places_[host].tried_why;
  }
  return states;
}

}  // namespace rueda::launch
