// Decides what happens to an epoch in which something broke: whether a rank was lost, which one, and what all
// ranks are told. Combines when ranks were last heard of (liveness.h) with what broken connections mean
// (suspicions.h). Pure: events in (time included), actions out; the caller carries them out in order before
// the next event.
//
// The verdict of the coordinator counts. Another rank that lost a connection reports it and waits for the
// verdict. It judges by itself only if no verdict comes, and if it has lost its parent: then none can come. A
// parent that has lost the control channel to a child reports that as certain.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/control/facts.h"
#include "rueda/control/message_types.h"
#include "rueda/control/verdict.h"
#include "rueda/runtime/hierarchy.h"
#include "rueda/runtime/liveness.h"
#include "rueda/runtime/peer_info.h"
#include "rueda/runtime/suspicions.h"

namespace rueda::runtime {

class FailureDetector {
 public:
  struct Ping {  // asks all children for a sign of life
    std::optional<control::ClockOffset> clock;
  };
  struct Probe {  // the coordinator asks one rank for a sign of life
    Rank of = 0;
  };
  struct Answer {  // to a heartbeat: a child to its parent, and the parent to that answer
    Rank to = 0;
    Nanos sent = 0, received = 0;
    std::optional<control::ClockOffset> clock = {};
  };
  struct Clock {  // a rank of another host than the coordinator has compared clocks
    trace::ClockSample sample;
  };
  struct Report {  // to the coordinator
    control::Abort abort;
  };
  struct End {  // of the epoch
    Status why;
    Rank lost = -1;           // the culprit, if it is one rank
    bool tells_above = true;  // the coordinator; the ranks below are told in any case
    // What became of it: "dead", "unreachable", "silent", "stopped", "in a debugger" or "broken connection".
    // Empty: nothing was lost, or another rank has said it.
    std::string_view loss = {};
    // The rank whose host acknowledges nothing to this one, as it has seen itself; -1: none.
    Rank cut_from = -1;
  };
  using Action = std::variant<Ping, Probe, Answer, Clock, Report, End>;
  using Actions = std::vector<Action>;

  // all: the peer info of every rank; outlives this object.
  FailureDetector(const Hierarchy& hierarchy, const std::vector<PeerInfo>& all, Nanos timeout, Nanos now);

  void heard(Rank from, Nanos now);
  // The process of the rank is stopped or in a debugger: known if it was said in the last 3 s.
  void held(const control::PeerProcess& peer, Nanos now) {
    held_[peer.of] = {.state = peer.state, .seen = now};
  }
  // For so long the host of the rank has acknowledged nothing; empty: nothing tells that. While it
  // acknowledges nothing, the transport judges the host, and the silence of the process means nothing.
  void host_silence(Rank of, std::optional<Nanos> silence, Nanos now);
  // How the agent of a rank's host is.
  void agents(std::function<control::Agent(Rank)> agent_of) { agent_of_ = std::move(agent_of); }
  Actions on_heartbeat(Rank from, const control::Heartbeat& heartbeat, Nanos now);
  // The rank has answered a probe that was sent then.
  void on_probe(Rank from, Nanos sent) { suspicions_.answered(from, sent); }
  // A channel broke. carries_control: it is a control channel.
  Actions on_loss(Rank peer, bool carries_control, const std::string& why, Nanos now);
  Actions on_abort(Rank from, const control::Abort& abort, Nanos now);
  // A call has failed on this rank alone. To be called at every turn from then on.
  Actions on_failure(const Status& why, Nanos now);
  // At every turn.
  Actions tick(Nanos now);
  // A control message was refused.
  [[nodiscard]] End refused(Rank from, const std::string& why) const;

  // When tick() must be called at the latest.
  [[nodiscard]] Nanos next_event() const;
  // Something broke, and the end is only a matter of time.
  [[nodiscard]] bool is_undecided() const {
    return suspect_ >= 0 || !suspicions_.is_empty() || failure_deadline_ != 0;
  }

 private:
  [[nodiscard]] bool is_coordinator() const { return hierarchy_.is_root(); }
  void excuse(Rank of, Nanos now);  // and all ranks below it
  Actions on_ping(Rank from, const control::Heartbeat& ping, Nanos now);
  [[nodiscard]] std::string describe(Rank rank) const;
  [[nodiscard]] End lost(Rank rank, const std::string& why) const;
  [[nodiscard]] End silent(Rank rank, Nanos now) const;
  [[nodiscard]] End judged(const Suspicions::Finding& verdict) const;
  Actions suspect(Rank reporter, Rank whom, const std::string& why, Nanos now);

  const Hierarchy& hierarchy_;
  const std::vector<PeerInfo>& all_;
  Rank me_;
  Liveness liveness_;
  std::optional<control::ClockOffset> clock_;  // of this rank; empty: not known yet
  struct Held {
    ProcessState state = ProcessState::kUnknown;
    Nanos seen = 0;
  };
  std::map<Rank, Held> held_;
  std::function<control::Agent(Rank)> agent_of_ = [](Rank) { return control::Agent::kUnknown; };
  std::map<Rank, bool> does_host_answer_;  // by rank, where a transport or an agent can tell
  Suspicions suspicions_;                  // coordinator
  Rank suspect_ = -1;                      // other ranks: whom this rank has reported; it awaits the verdict
  Nanos suspect_deadline_ = 0;
  std::string suspect_reason_;
  Nanos failure_deadline_ = 0;  // of a call that failed here, 0 = none
};

}  // namespace rueda::runtime
