#include "launch/agents.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>

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
  for (HostLink& link : links_) {
    if (is_held) link.excuse_silence(now);
    if (link.is_open() && !is_held)
      set.watch(link.out(), POLLIN, [&] {
        link.read_messages([&](const AgentMessage& message) { handlers.on_rank_message(link, message); });
      });
    if (link.err() >= 0) set.watch(link.err(), POLLIN, [&] { handlers.on_errors(link, link.read_errors()); });
    if (link.wants_to_write()) set.watch(link.in(), POLLOUT, [&] { link.flush(); });
  }
}

void Agents::read_the_rest(const Handlers& handlers) {
  for (HostLink& link : links_)
    if (link.is_open())
      link.read_messages([&](const AgentMessage& message) { handlers.on_rank_message(link, message); });
}

void Agents::broadcast(MessageType type, std::span<const std::byte> payload) {
  for (HostLink& link : links_)
    if (!link.has_said_bye()) link.send(type, payload);
}

void Agents::check_silence(Nanos now, Nanos timeout) {
  for (HostLink& link : links_) {
    // One that was started again, in an elastic job, may have to wait for its host.
    const Nanos allowed = link.hello() || timeout == 0 ? timeout : std::max(timeout, kFirstWord);
    link.check_silence(now, link.is_remote() ? allowed : 0);
  }
}

void Agents::excuse_silence(Nanos now) {
  for (HostLink& link : links_) link.excuse_silence(now);
}

void Agents::reap() {
  int status = 0;
  for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto link = std::ranges::find(links_, pid, &HostLink::pid);
    if (link != links_.end()) link->on_reaped(status);
  }
  for (HostLink& link : links_) link.look_for_end();
}

void Agents::abandon() {
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
  }
  return states;
}

}  // namespace rueda::launch
