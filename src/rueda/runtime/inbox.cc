#include "rueda/runtime/inbox.h"

#include <string>
#include <utility>
#include <vector>

#include "rueda/base/log.h"

namespace rueda::runtime {
namespace {

using control::MessageType;
using control::Statement;

// Those that a leader passes on as they are, before it takes them itself.
bool is_for_all_below(MessageType type) {
  return type == MessageType::kResponses || type == MessageType::kPlanFreeze ||
         type == MessageType::kShutdown || type == MessageType::kStallReport;
}

Status misdirected() { return {Code::kInternal, "this message is for another rank."}; }

}  // namespace

bool Inbox::handle_messages() {
  std::vector<ControlMessage> messages = parts_.session.links->take_control();
  const Nanos now = monotonic_now();
  for (ControlMessage& message : messages) {
    if (parts_.shutdown.is_closed()) break;
    parts_.failure_detector.heard(message.from, now);
    parts_.observer.heard(message.from, now);
    const Rank from = message.from;
    const Status handled = handle(message, now);
    if (!handled.is_ok()) parts_.actions.carry_out(parts_.failure_detector.refused(from, handled.why));
  }
  return !messages.empty();
}

Status Inbox::handle(ControlMessage& message, Nanos now) {
  if (message.type == MessageType::kHeartbeat) return on_heartbeat(message, now);
  return parts_.hierarchy.is_child(message.from) ? handle_from_below(message, now)
                                                 : handle_from_above(message);
}

Status Inbox::on_heartbeat(const ControlMessage& message, Nanos now) {
  const Result<control::Heartbeat> heartbeat = control::decode_heartbeat(message.payload);
  if (!heartbeat.is_ok()) return heartbeat.status();
  parts_.actions.carry_out(parts_.failure_detector.on_heartbeat(message.from, heartbeat.value(), now));
  return Status::ok();
}

Status Inbox::on_abort(Rank from, std::span<const std::byte> payload) {
  const Result<control::Abort> abort = control::decode_abort(payload);
  if (!abort.is_ok()) return abort.status();
  parts_.actions.carry_out(parts_.failure_detector.on_abort(from, abort.value(), monotonic_now()));
  return Status::ok();
}

// ---- to the coordinator ----

Status Inbox::handle_from_below(ControlMessage& message, Nanos now) {
  const Rank child = message.from;
  if (message.type != MessageType::kStatements) {
    if (!control::rises(message.type)) return {Code::kInternal, "only rank 0 sends such messages."};
    return handle_statement(
        child, {.from = child, .type = message.type, .payload = std::move(message.payload)}, now);
  }
  Result<std::vector<Statement>> statements = control::decode_statements(message.payload);
  if (!statements.is_ok()) return statements.status();
  for (Statement& statement : statements.value()) {
    if (parts_.shutdown.is_closed()) break;
    if (!parts_.hierarchy.below(child).includes(statement.from))
      return {Code::kInternal, "it speaks for ranks that are not below it."};
    if (Status handled = handle_statement(child, std::move(statement), now); !handled.is_ok()) return handled;
  }
  return Status::ok();
}

Status Inbox::handle_statement(Rank child, Statement statement, Nanos now) {
  return parts_.hierarchy.is_root() ? on_statement(statement, now)
                                    : parts_.channel.pass_up(child, std::move(statement), now);
}

Status Inbox::on_facts(const Statement& statement, Nanos now) {
  const Result<control::Facts> facts = control::decode_facts(statement.payload);
  if (!facts.is_ok()) return facts.status();
  for (const Rank from : statement.from.ranks()) {
    parts_.failure_detector.heard(from, now);
    parts_.observer.heard(from, now);
    parts_.observer.on_facts(from, facts.value(), now);
  }
  return Status::ok();
}

Status Inbox::on_statement(const Statement& statement, Nanos now) {
  switch (statement.type) {
    case MessageType::kFacts:
      return on_facts(statement, now);
    case MessageType::kAbort:
      return on_abort(statement.from.first(), statement.payload);
    case MessageType::kShutdown:
      parts_.actions.carry_out(
          parts_.shutdown.on_shutdown(statement.from.first(), parts_.actions.state_for_shutdown()));
      return Status::ok();
    case MessageType::kDone:
      for (const Rank from : statement.from.ranks()) parts_.actions.carry_out(parts_.shutdown.on_done(from));
      return Status::ok();
    case MessageType::kProbe: {
      const Result<Nanos> sent = control::decode_time(statement.payload);
      if (sent.is_ok()) parts_.failure_detector.on_probe(statement.from.first(), sent.value());
      return sent.is_ok() ? Status::ok() : sent.status();
    }
    default:
      return parts_.negotiation.on_statement(statement, now, parts_.shutdown.is_running());
  }
}

// ---- from the coordinator ----

Status Inbox::handle_from_above(ControlMessage& message) {
  if (is_for_all_below(message.type)) parts_.channel.send_below(message.type, message.payload);
  switch (message.type) {
    case MessageType::kResponses:
    case MessageType::kPlanFreeze:
      return parts_.negotiation.on_order(message);
    case MessageType::kAbort:
      return on_abort(message.from, message.payload);
    case MessageType::kShutdown:
      parts_.actions.carry_out(parts_.shutdown.on_shutdown(control::decode_rank(message.payload),
                                                           parts_.actions.state_for_shutdown()));
      return Status::ok();
    case MessageType::kDone:
      parts_.actions.carry_out(parts_.shutdown.on_done(message.from));
      return Status::ok();
    case MessageType::kStallReport:
      on_stall_report(message);
      return Status::ok();
    case MessageType::kRouted:
      return handle_routed(message);
    case MessageType::kShowStacks:
      if (parts_.session.show_stacks) parts_.session.show_stacks();
      return Status::ok();
    case MessageType::kProbe:  // goes back as it is
      parts_.channel.send_up(MessageType::kProbe, std::move(message.payload));
      return Status::ok();
    case MessageType::kConnect:  // links take it
    case MessageType::kCosts:    // start-up only
      return Status::ok();
    default:
      return misdirected();
  }
}

void Inbox::on_stall_report(const ControlMessage& message) {
  const std::string text(reinterpret_cast<const char*>(message.payload.data()), message.payload.size());
  RUEDA_LOG(kWarning, text);
  parts_.recording.timeline().record(instant_span(SpanKind::kStall, text));
}

Status Inbox::handle_routed(const ControlMessage& message) {
  Result<control::RoutedMessage> routed = control::decode_routed(message.payload, parts_.session.size());
  if (!routed.is_ok()) return routed.status();
  if (!parts_.hierarchy.is_below(routed.value().to, parts_.session.me)) return misdirected();
  parts_.channel.send_routed(routed.value().to, routed.value().type, std::move(routed.value().payload));
  return Status::ok();
}

// ---- losses ----

void Inbox::handle_losses() {
  for (const transport::Loss& loss : parts_.session.links->take_losses()) {
    if (parts_.shutdown.is_closed()) return;
    if (loss.peer < 0) continue;
    const bool carries_control = loss.channel == kControlChannel;
    RUEDA_LOG(kDebug, "channel " + std::to_string(loss.channel) + ": " + loss.status.why);
    if (parts_.shutdown.phase() != Shutdown::Phase::kStopped)
      parts_.actions.carry_out(
          parts_.failure_detector.on_loss(loss.peer, carries_control, loss.status.why, monotonic_now()));
    else if (carries_control)
      on_late_loss(loss.peer);
  }
}

// This rank has stopped. A child that has gone, and those below it, have nothing more to say.
void Inbox::on_late_loss(Rank peer) {
  if (!parts_.hierarchy.is_child(peer)) return parts_.actions.carry_out(parts_.shutdown.on_loss(peer));
  const control::RankSet& gone = parts_.hierarchy.below(peer);
  if (parts_.hierarchy.is_root()) {
    gone.for_each([this](Rank rank) { parts_.actions.carry_out(parts_.shutdown.on_loss(rank)); });
    return;
  }
  const Status passed = parts_.channel.pass_up(
      peer, {.from = gone, .type = MessageType::kDone, .payload = {}}, monotonic_now());
  RUEDA_LOG(kDebug, "rank " + std::to_string(peer) + " has gone" + (passed.is_ok() ? "" : ": " + passed.why));
}

}  // namespace rueda::runtime
