#include "launch/start_watch.h"

#include <fmt/format.h>

#include "rueda/base/release.h"

namespace rueda::launch {
namespace {

// Why the job cannot start with this agent; ok if it can, or if the agent has not answered yet.
Status refusal(const AgentState& agent) {
  if (agent.lost_because)
    return {Code::kUnavailable, fmt::format("cannot start the job: the agent of {} has ended: {}", agent.host,
                                            *agent.lost_because)};
  if (agent.hello && (agent.hello->release != kRelease || agent.hello->protocol != kProtocol))
    return {Code::kPermissionDenied,
            fmt::format(
                "{} runs release {} of rueda, but this is release {}; install the same release on all hosts",
                agent.host, agent.hello->release, kRelease)};
  return Status::ok();
}

std::string how_to_check(const AgentState& agent) {
  if (agent.way == StartWay::kSrun)
    return fmt::format("that `srun --overlap -n 1 -w {} true` works", agent.host);
  if (agent.way == StartWay::kBlaunch) return fmt::format("that `blaunch {} true` works", agent.host);
  return fmt::format("that `ssh {} true` works without asking anything", agent.host);
}

}  // namespace

StartWatch::Decision StartWatch::decide(std::span<const AgentState> agents, Nanos waited) {
  using enum Decision::Next;
  std::vector<std::string> missing;
  std::string check;
  for (const AgentState& agent : agents) {
    if (Status why = refusal(agent); !why.is_ok()) return {.next = kFail, .why = std::move(why)};
    if (agent.hello) continue;
    if (missing.empty()) check = how_to_check(agent);
    missing.emplace_back(agent.host);
  }
  if (missing.empty()) return {.next = kStart};
  Decision decision;
  if (pace_.is_due(waited))
    decision.notice = fmt::format("still waiting for {} of {} hosts after {} s: {}", missing.size(),
                                  agents.size(), waited / kSecond, shortened(missing));
  if (waited >= nanos(timeout_s_, kSecond)) {
    decision.next = kFail;
    decision.why = {
        Code::kTimeout,
        fmt::format("no answer within {} s from the agent of {}; check {}, or raise --start-timeout",
                    timeout_s_, shortened(missing), check)};
  }
  return decision;
}

}  // namespace rueda::launch
