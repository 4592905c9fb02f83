#include "rueda/runtime/control_channel.h"

#include <algorithm>
#include <utility>

#include "rueda/base/check.h"
#include "rueda/base/limits.h"

namespace rueda::runtime {

using control::MessageType;
using control::Statement;

ControlChannel::ControlChannel(Links* links, const Hierarchy& hierarchy, control::SetMembers sets,
                               EngineCounters& counters)
    : links_(links), hierarchy_(hierarchy), counters_(counters) {
  if (!hierarchy.is_root() && !hierarchy.children().empty())
    relay_.emplace(control::Relay::Options{.below = hierarchy.below(), .sets = std::move(sets)});
}

void ControlChannel::send(Rank neighbour, MessageType type, Bytes payload) {
  if (links_ == nullptr) return;
  links_->send_control(neighbour, type, std::move(payload));
  count(counters_.control_messages);
}

void ControlChannel::send_below(MessageType type, Bytes payload) {
  if (links_ == nullptr || hierarchy_.children().empty()) return;
  links_->send_control_below(type, std::move(payload));
  count(counters_.control_messages, std::ssize(hierarchy_.children()));
}

void ControlChannel::send_up(MessageType type, Bytes payload) {
  if (!relay_) return send(hierarchy_.parent(), type, std::move(payload));
  const Rank me = hierarchy_.me();
  const Status taken =
      relay_->take(me, {.from = me, .type = type, .payload = std::move(payload)}, monotonic_now());
  RUEDA_CHECK(taken.is_ok(), "this rank can read its own messages");
}

void ControlChannel::send_routed(Rank to, MessageType type, Bytes payload) {
  if (hierarchy_.is_neighbour(to)) return send(to, type, std::move(payload));
  send(hierarchy_.way_to(to), MessageType::kRouted,
       control::encode(control::RoutedMessage{.to = to, .type = type, .payload = std::move(payload)}));
}

void ControlChannel::send_negotiation_up(MessageType type, Bytes payload) {
  if (!relay_) count(counters_.negotiation_messages);  // others count when they send
  send_up(type, std::move(payload));
}

void ControlChannel::send_negotiation_below(MessageType type, Bytes payload) {
  send_below(type, std::move(payload));
  count(counters_.negotiation_messages, std::ssize(hierarchy_.children()));
}

Status ControlChannel::pass_up(Rank child, Statement statement, Nanos now) {
  RUEDA_CHECK(relay_.has_value(), "the root has nobody above it, and only inner ranks have children");
  return relay_->take(child, std::move(statement), now);
}

void ControlChannel::send_due(Nanos now) {
  if (!relay_) return;
  const std::vector<Statement> statements = relay_->due(now);
  const auto is_negotiation = [](const Statement& statement) {
    return statement.type == MessageType::kRequests || statement.type == MessageType::kPlanPosition ||
           statement.type == MessageType::kPlanDepart;
  };
  // Each of them fits into a message.
  for (auto first = statements.begin(); first != statements.end();) {
    size_t bytes = 0;
    auto end = first;
    while (end != statements.end() && (end == first || bytes + end->payload.size() < kMaxMessageBytes / 2))
      bytes += (end++)->payload.size();
    if (std::any_of(first, end, is_negotiation)) count(counters_.negotiation_messages);
    send(hierarchy_.parent(), MessageType::kStatements, control::encode(std::span(first, end)));
    first = end;
  }
}

void ControlChannel::flush(Nanos at_most, const std::function<void(const transport::Completion&)>& on_data) {
  send_due(monotonic_now());
  const Deadline deadline = Deadline::after(at_most);
  while (has_unsent() && !deadline.is_past()) {
    if (!links_->progress(on_data))
      links_->sleep(Deadline::at(std::min(deadline.when(), monotonic_now() + kMillisecond)));
  }
}

}  // namespace rueda::runtime
