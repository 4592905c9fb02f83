// Sends the control messages of this rank, and counts them. In a single-process job it sends nothing.
// Engine thread only.
#pragma once

#include <functional>

#include "rueda/base/bytes.h"
#include "rueda/base/clock.h"
#include "rueda/base/types.h"
#include "rueda/control/message_types.h"
#include "rueda/runtime/counters.h"
#include "rueda/runtime/links.h"

namespace rueda::runtime {

class ControlChannel {
 public:
  // links: null in a single-process job; outlives this object.
  ControlChannel(Links* links, Rank size, EngineCounters& counters)
      : links_(links), size_(size), counters_(counters) {}

  [[nodiscard]] bool is_open() const { return links_ != nullptr; }
  void send(Rank peer, control::MessageType type, Bytes payload);
  // To every other rank; coordinator only.
  void broadcast(control::MessageType type, Bytes payload);
  // The same for messages about which tensors run, which are also counted separately.
  void send_negotiation(control::MessageType type, Bytes payload);  // to the coordinator
  void broadcast_negotiation(control::MessageType type, Bytes payload);
  [[nodiscard]] bool has_unsent() const { return links_ != nullptr && links_->has_unsent_control(); }
  // Returns when everything is sent, or when the time is over. on_data: as in Links::progress().
  void flush(Nanos at_most, const std::function<void(const transport::Completion&)>& on_data);

 private:
  Links* links_;
  Rank size_;
  EngineCounters& counters_;
};

}  // namespace rueda::runtime
