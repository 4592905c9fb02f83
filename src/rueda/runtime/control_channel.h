// Sends the control messages of this rank and passes on those of others, as the hierarchy says, and counts
// them. In a single-process job it sends nothing. Engine thread only.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "rueda/base/bytes.h"
#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/control/message_types.h"
#include "rueda/control/relay.h"
#include "rueda/runtime/counters.h"
#include "rueda/runtime/hierarchy.h"
#include "rueda/runtime/links.h"

namespace rueda::runtime {

class ControlChannel {
 public:
  // links: null in a single-process job. sets: without the world. All outlive this object.
  ControlChannel(Links* links, const Hierarchy& hierarchy, control::SetMembers sets,
                 EngineCounters& counters);

  [[nodiscard]] bool is_open() const { return links_ != nullptr; }
  void send(Rank neighbour, control::MessageType type, Bytes payload);
  // To every child. A type for all ranks reaches all below, because leaders pass it on.
  void send_below(control::MessageType type, Bytes payload);
  // To the coordinator, which is another rank; perhaps together with equal messages, at the next send_due().
  void send_up(control::MessageType type, Bytes payload);
  // From the coordinator to one rank, which need not be its neighbour.
  void send_routed(Rank to, control::MessageType type, Bytes payload);
  // The same for messages about which tensors run, which are also counted separately.
  void send_negotiation_up(control::MessageType type, Bytes payload);
  void send_negotiation_below(control::MessageType type, Bytes payload);

  // ---- of a leader ----
  // What a child says to the coordinator. Fails if it is malformed.
  Status pass_up(Rank child, control::Statement statement, Nanos now);
  // Answers on their way to the ranks below.
  void saw(std::span<const control::Response> responses) {
    if (relay_) relay_->saw(responses);
  }
  // Sends what is ready to go up; at every turn.
  void send_due(Nanos now);
  [[nodiscard]] Nanos next_event() const { return relay_ ? relay_->next_event() : kLongestTime; }

  [[nodiscard]] bool has_unsent() const { return links_ != nullptr && links_->has_unsent_control(); }
  // Returns when everything is sent, or when the time is over. on_data: as in Links::progress().
  void flush(Nanos at_most, const std::function<void(const transport::Completion&)>& on_data);

 private:
  Links* links_;
  const Hierarchy& hierarchy_;
  EngineCounters& counters_;
  std::optional<control::Relay> relay_;  // of a rank between the root and others
};

}  // namespace rueda::runtime
