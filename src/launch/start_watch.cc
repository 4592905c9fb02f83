#include "launch/start_watch.h"

#include <fmt/format.h>

#include "rueda/base/release.h"

namespace rueda::launch {
namespace {

// After the first host that cannot take part, the others have this long to show whether they can.
constexpr Nanos kOthersShow = 2 * kSecond;

// Why the job cannot start with this agent; ok if it can, or if the agent has not answered yet.
Status refusal(const AgentState& agent) {
  if (agent.lost_because)
    return {Code::kUnavailable,
            fmt::format("the agent of {} has ended: {}", agent.host, *agent.lost_because)};
  if (agent.hello && (agent.hello->release != kRelease || agent.hello->protocol != kProtocol))
    return {Code::kPermissionDenied,
            fmt::format(
                "{} runs release {} of rueda, but this is release {}; install the same release on all hosts",
                agent.host, agent.hello->release, kRelease)};
  return Status::ok();
}

std::string cannot_start(size_t hosts, const std::vector<std::string>& refusals,
                         const std::vector<std::string>& silent) {
  std::string text = "cannot start the job";
  if (refusals.size() > 1)
    text += fmt::format(", because {} of {} hosts cannot take part", refusals.size(), hosts);
  text += ": " + shortened(refusals, "; ");
  if (!silent.empty())
    text += fmt::format("; no answer yet from the {} of {}", silent.size() == 1 ? "agent" : "agents",
                        shortened(silent));
  return text;
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
  std::vector<std::string> missing, refusals;
  std::string check;
  Code code = Code::kOk;
  for (const AgentState& agent : agents) {
    if (const Status why = refusal(agent); !why.is_ok()) {
      refusals.push_back(why.why);
      code = why.code;
      continue;
    }
    if (agent.hello) continue;
    if (missing.empty()) check = how_to_check(agent);
    missing.emplace_back(agent.host);
  }
  if (!refusals.empty()) {
    if (!refused_) refused_ = waited;
    if (!missing.empty() && waited - *refused_ < kOthersShow) return {};
    return {.next = kFail, .why = {code, cannot_start(agents.size(), refusals, missing)}};
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
