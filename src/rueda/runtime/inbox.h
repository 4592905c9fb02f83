// What this rank does with the messages of other ranks and with the losses of connections: those from below
// go to the coordinator, those from above are for this rank and for the ranks below it. Part of the engine,
// on its thread only.
#pragma once

#include <span>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/runtime/control_channel.h"
#include "rueda/runtime/engine_actions.h"
#include "rueda/runtime/failure_detector.h"
#include "rueda/runtime/hierarchy.h"
#include "rueda/runtime/negotiation.h"
#include "rueda/runtime/observer.h"
#include "rueda/runtime/recording.h"
#include "rueda/runtime/session.h"
#include "rueda/runtime/shutdown.h"

namespace rueda::runtime {

class Inbox {
 public:
  // All outlive this object.
  struct Parts {
    const Session& session;
    const Hierarchy& hierarchy;
    ControlChannel& channel;
    Negotiation& negotiation;
    FailureDetector& failure_detector;
    Observer& observer;
    Shutdown& shutdown;
    Recording& recording;
    EngineActions& actions;
  };
  explicit Inbox(Parts parts) : parts_(parts) {}

  // True if there were any.
  bool handle_messages();
  void handle_losses();

 private:
  Status handle(ControlMessage& message, Nanos now);
  Status handle_from_below(ControlMessage& message, Nanos now);
  Status handle_statement(Rank child, control::Statement statement, Nanos now);
  Status on_statement(const control::Statement& statement, Nanos now);  // on the coordinator
  Status on_facts(const control::Statement& statement, Nanos now);
  Status handle_from_above(ControlMessage& message);
  Status handle_routed(const ControlMessage& message);
  Status on_heartbeat(const ControlMessage& message, Nanos now);
  Status on_abort(Rank from, std::span<const std::byte> payload);
  void on_stall_report(const ControlMessage& message);
  void on_late_loss(Rank peer);

  Parts parts_;
};

}  // namespace rueda::runtime
