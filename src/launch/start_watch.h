// Whether the ranks can be started: every agent must have answered, in time and with our release. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "launch/agent_messages.h"
#include "launch/start_progress.h"
#include "launch/starters/starter.h"
#include "rueda/base/clock.h"
#include "rueda/base/status.h"

namespace rueda::launch {

struct AgentState {  // texts and hello are borrowed
  std::string_view host;
  const Hello* hello = nullptr;               // null = it has not answered
  std::optional<std::string> lost_because{};  // set = it has ended
  StartWay way = StartWay::kSsh;
  bool is_begun = true;                      // otherwise the agent that is to start it has not answered
  std::string_view started_by{};             // the host whose agent starts it; "" = we do
  std::string_view tried_by{}, tried_why{};  // a host that could not start it before us, and why
};

class StartWatch {
 public:
  explicit StartWatch(double timeout_s, bool is_terminal = false)
      : timeout_s_(timeout_s), pace_(is_terminal) {}

  struct Decision {
    enum class Next { kWait, kStart, kFail } next = Next::kWait;
    Status why{};          // of kFail
    std::string notice{};  // for the user; "" = none
  };
  // waited: since the agents were started. Call it at least every few seconds.
  Decision decide(std::span<const AgentState> agents, Nanos waited);

 private:
  double timeout_s_;
  std::optional<Nanos> refused_;  // when the first host could not take part
  NoticePace pace_;
};

}  // namespace rueda::launch
