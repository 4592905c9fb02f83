#include "launch/start_watch.h"

#include <fmt/format.h>

#include "launch/start_refusals.h"
#include "rueda/base/release.h"

namespace rueda::launch {
namespace {

// After the first host that cannot take part, the others have this long to show whether they can.
constexpr Nanos kOthersShow = 2 * kSecond;

struct Refused {
  Code code = Code::kOk;
  Refusal refusal;
};

// A host that had tried before.
std::string told_by_another(const AgentState& agent) {
  return agent.tried_by.empty()
             ? ""
             : fmt::format(" ({} could not start it either: {})", agent.tried_by, agent.tried_why);
}

// Why the job cannot start with this agent; empty if it can, or if the agent has not answered yet.
std::optional<Refused> judge(const AgentState& agent) {
  const std::string host(agent.host);
  if (agent.lost_because) {
    const std::string why = " has ended: " + *agent.lost_because;
    return Refused{Code::kUnavailable, {host, "the agent of ", why, told_by_another(agent)}};
  }
  if (agent.hello && (agent.hello->release != kRelease || agent.hello->protocol != kProtocol))
    return Refused{
        Code::kPermissionDenied,
        {host, "",
         fmt::format(
             " runs release {} of rueda (agent protocol {}), but this is release {} (agent protocol {}); "
             "install the same release on all hosts",
             agent.hello->release, agent.hello->protocol, kRelease, kProtocol)}};
  return std::nullopt;
}

std::string cannot_start(size_t hosts, const std::vector<Refusal>& refusals,
                         const std::vector<std::string>& silent) {
  std::string text = "cannot start the job";
  if (refusals.size() > 1)
    text += fmt::format(", because {} of {} hosts cannot take part", refusals.size(), hosts);
  text += ": " + list_refusals(refusals);
  if (!silent.empty())
    text += fmt::format("; no answer yet from the {} of {}", silent.size() == 1 ? "agent" : "agents",
                        shortened(silent));
  return text;
}

std::string how_to_check(const AgentState& agent) {
  if (agent.way == StartWay::kSrun)
    return fmt::format("that `srun --overlap -n 1 -w {} true` works", agent.host);
  if (agent.way == StartWay::kBlaunch) return fmt::format("that `blaunch {} true` works", agent.host);
  const std::string where = agent.started_by.empty() ? "" : fmt::format(" on {}", agent.started_by);
  return fmt::format("that `ssh {} true` works without asking anything{}", agent.host, where);
}

}  // namespace

StartWatch::Decision StartWatch::decide(std::span<const AgentState> agents, Nanos waited) {
  using enum Decision::Next;
  std::vector<std::string> missing;
  size_t unbegun = 0;  // they wait for one that is missing, or whose hello has just come
  std::vector<Refusal> refusals;
  std::string check;
  Code code = Code::kOk;
  for (const AgentState& agent : agents) {
    if (const std::optional<Refused> why = judge(agent)) {
      refusals.push_back(why->refusal);
      code = why->code;
      continue;
    }
    if (agent.hello) continue;
    if (!agent.is_begun) {
      ++unbegun;
      continue;
    }
    if (missing.empty()) check = how_to_check(agent);
    missing.emplace_back(agent.host);
  }
  if (!refusals.empty()) {
    if (!refused_) refused_ = waited;
    if (!missing.empty() && waited - *refused_ < kOthersShow) return {};
    return {.next = kFail, .why = {code, cannot_start(agents.size(), refusals, missing)}};
  }
  if (missing.empty()) return {.next = unbegun == 0 ? kStart : kWait};
  Decision decision;
  if (pace_.is_due(waited))
    decision.notice = fmt::format("still waiting for {} of {} hosts after {} s: {}", missing.size() + unbegun,
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
