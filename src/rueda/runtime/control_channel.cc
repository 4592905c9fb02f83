#include "rueda/runtime/control_channel.h"

#include <algorithm>
#include <utility>

namespace rueda::runtime {

void ControlChannel::send(Rank peer, control::MessageType type, Bytes payload) {
  if (links_ == nullptr) return;
  links_->send_control(peer, type, std::move(payload));
  count(counters_.control_messages);
}

void ControlChannel::broadcast(control::MessageType type, Bytes payload) {
  if (links_ == nullptr) return;
  links_->broadcast_control(type, std::move(payload));
  count(counters_.control_messages, size_ - 1);
}

void ControlChannel::send_negotiation(control::MessageType type, Bytes payload) {
  send(kCoordinator, type, std::move(payload));
  count(counters_.negotiation_messages);
}

void ControlChannel::broadcast_negotiation(control::MessageType type, Bytes payload) {
  broadcast(type, std::move(payload));
  count(counters_.negotiation_messages, size_ - 1);
}

void ControlChannel::flush(Nanos at_most, const std::function<void(const transport::Completion&)>& on_data) {
  const Deadline deadline = Deadline::after(at_most);
  while (has_unsent() && !deadline.is_past()) {
    if (!links_->progress(on_data))
      links_->sleep(Deadline::at(std::min(deadline.when(), monotonic_now() + kMillisecond)));
  }
}

}  // namespace rueda::runtime
