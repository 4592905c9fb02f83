// Carries out what the failure detector and the shutdown have decided: signs of life, and how an epoch ends.
// Engine thread only, but for lost_rank().
#pragma once

#include <atomic>

#include "rueda/runtime/control_channel.h"
#include "rueda/runtime/dispatcher.h"
#include "rueda/runtime/failure_detector.h"
#include "rueda/runtime/hierarchy.h"
#include "rueda/runtime/negotiation.h"
#include "rueda/runtime/observer.h"
#include "rueda/runtime/operations.h"
#include "rueda/runtime/participation_clock.h"
#include "rueda/runtime/recording.h"
#include "rueda/runtime/session.h"
#include "rueda/runtime/shutdown.h"

namespace rueda::runtime {

class EngineActions {
 public:
  struct Parts {  // each outlives this object
    Session& session;
    const Hierarchy& hierarchy;
    const EngineCounters& counters;
    Operations& operations;
    Recording& recording;
    ControlChannel& channel;
    Dispatcher& dispatcher;
    Negotiation& negotiation;
    Observer& observer;
    const ParticipationClock& participation;
    Shutdown& shutdown;
  };
  explicit EngineActions(Parts parts) : parts_(parts) {}

  void carry_out(const FailureDetector::Actions& actions);
  void carry_out(const FailureDetector::End& end);
  void carry_out(const ShutdownActions& actions);
  void send_facts(Nanos now);  // what rank 0 knows of this rank only by being told
  [[nodiscard]] EngineState state_for_shutdown() const;
  [[nodiscard]] Status shut_down_status() const;
  // The rank whose loss ended this epoch, or -1. Any thread.
  [[nodiscard]] Rank lost_rank() const { return lost_rank_; }
  [[nodiscard]] Rank cut_from() const { return cut_from_; }  // FailureDetector::End; any thread

 private:
  void carry_out(const FailureDetector::Ping& ping);
  void carry_out(const FailureDetector::Probe& probe);
  void carry_out(const FailureDetector::Answer& answer);
  void carry_out(const FailureDetector::Clock& clock);
  void carry_out(const FailureDetector::Report& report);
  void carry_out(ShutdownAction action);
  void stop();
  void tell_end(const FailureDetector::End& end);

  Parts parts_;
  std::atomic<Rank> lost_rank_{-1}, cut_from_{-1};
};

}  // namespace rueda::runtime
