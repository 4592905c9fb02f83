// What the engine does with the messages of other ranks: those from below go to the coordinator, those from
// above are for this rank, and for the ranks below it.

#include <utility>

#include "rueda/base/log.h"
#include "rueda/runtime/engine.h"

namespace rueda::runtime {
namespace {

using control::MessageType;
using control::Parcel;

// Those that a leader passes on as they are, before it takes them itself.
bool is_for_all_below(MessageType type) {
  return type == MessageType::kResponses || type == MessageType::kPlanFreeze ||
         type == MessageType::kShutdown || type == MessageType::kStallReport;
}

Status misdirected() { return {Code::kInternal, "this message is for another rank."}; }

}  // namespace

bool Engine::handle_messages() {
  std::vector<ControlMessage> messages = session_.links->take_control();
  const Nanos now = monotonic_now();
  for (ControlMessage& message : messages) {
    if (shutdown_.is_closed()) break;
    failure_detector_.heard(message.from, now);
    observer_.heard(message.from, now);
    const Rank from = message.from;
    const Status handled = handle_message(message, now);
    if (!handled.is_ok()) actions_.carry_out(failure_detector_.refused(from, handled.why));
  }
  return !messages.empty();
}

Status Engine::handle_message(ControlMessage& message, Nanos now) {
  if (message.type == MessageType::kHeartbeat) return on_heartbeat(message, now);
  return hierarchy_.is_child(message.from) ? handle_from_below(message, now) : handle_from_above(message);
}

Status Engine::on_heartbeat(const ControlMessage& message, Nanos now) {
  const Result<control::Heartbeat> heartbeat = control::decode_heartbeat(message.payload);
  if (!heartbeat.is_ok()) return heartbeat.status();
  actions_.carry_out(failure_detector_.on_heartbeat(message.from, heartbeat.value(), now));
  return Status::ok();
}

Status Engine::on_abort(Rank from, std::span<const std::byte> payload) {
  const Result<control::Abort> abort = control::decode_abort(payload);
  if (!abort.is_ok()) return abort.status();
  actions_.carry_out(failure_detector_.on_abort(from, abort.value(), monotonic_now()));
  return Status::ok();
}

// ---- to the coordinator ----

Status Engine::handle_from_below(ControlMessage& message, Nanos now) {
  const Rank child = message.from;
  if (message.type != MessageType::kParcels) {
    if (!control::rises(message.type)) return {Code::kInternal, "only rank 0 sends such messages."};
    return handle_parcel(child, {.from = child, .type = message.type, .payload = std::move(message.payload)},
                         now);
  }
  Result<std::vector<Parcel>> parcels = control::decode_parcels(message.payload);
  if (!parcels.is_ok()) return parcels.status();
  for (Parcel& parcel : parcels.value()) {
    if (shutdown_.is_closed()) break;
    if (!hierarchy_.below(child).includes(parcel.from))
      return {Code::kInternal, "it speaks for ranks that are not below it."};
    if (Status handled = handle_parcel(child, std::move(parcel), now); !handled.is_ok()) return handled;
  }
  return Status::ok();
}

Status Engine::handle_parcel(Rank child, Parcel parcel, Nanos now) {
  return is_coordinator() ? on_parcel(parcel, now) : channel_.pass_up(child, std::move(parcel), now);
}

Status Engine::on_parcel(const Parcel& parcel, Nanos now) {
  switch (parcel.type) {
    case MessageType::kFacts: {
      Result<control::Facts> facts = control::decode_facts(parcel.payload);
      if (!facts.is_ok()) return facts.status();
      for (const Rank from : parcel.from.ranks()) {
        failure_detector_.heard(from, now);
        observer_.heard(from, now);
        observer_.on_facts(from, facts.value(), now);
      }
      return Status::ok();
    }
    case MessageType::kAbort:
      return on_abort(parcel.from.first(), parcel.payload);
    case MessageType::kShutdown:
      actions_.carry_out(shutdown_.on_shutdown(parcel.from.first(), actions_.state_for_shutdown()));
      return Status::ok();
    case MessageType::kDone:
      for (const Rank from : parcel.from.ranks()) actions_.carry_out(shutdown_.on_done(from));
      return Status::ok();
    case MessageType::kProbe: {
      const Result<Nanos> sent = control::decode_time(parcel.payload);
      if (sent.is_ok()) failure_detector_.on_probe(parcel.from.first(), sent.value());
      return sent.is_ok() ? Status::ok() : sent.status();
    }
    default:
      return negotiation_.on_parcel(parcel, now, shutdown_.is_running());
  }
}

// ---- from the coordinator ----

Status Engine::handle_from_above(ControlMessage& message) {
  if (is_for_all_below(message.type)) channel_.send_below(message.type, message.payload);
  switch (message.type) {
    case MessageType::kResponses:
    case MessageType::kPlanFreeze:
      return negotiation_.on_order(message);
    case MessageType::kAbort:
      return on_abort(message.from, message.payload);
    case MessageType::kShutdown:
      actions_.carry_out(
          shutdown_.on_shutdown(control::decode_rank(message.payload), actions_.state_for_shutdown()));
      return Status::ok();
    case MessageType::kDone:
      actions_.carry_out(shutdown_.on_done(message.from));
      return Status::ok();
    case MessageType::kStallReport: {
      const std::string text(reinterpret_cast<const char*>(message.payload.data()), message.payload.size());
      RUEDA_LOG(kWarning, text);
      recording_.timeline().record(instant_span(SpanKind::kStall, text));
      return Status::ok();
    }
    case MessageType::kLetter:
      return handle_letter(message);
    case MessageType::kShowStacks:
      if (session_.show_stacks) session_.show_stacks();
      return Status::ok();
    case MessageType::kProbe:  // goes back as it is
      channel_.send_up(MessageType::kProbe, std::move(message.payload));
      return Status::ok();
    case MessageType::kConnect:  // links take it
    case MessageType::kCosts:    // start-up only
      return Status::ok();
    default:
      return misdirected();
  }
}

Status Engine::handle_letter(const ControlMessage& message) {
  Result<control::Letter> letter = control::decode_letter(message.payload, session_.size());
  if (!letter.is_ok()) return letter.status();
  if (!hierarchy_.is_below(letter.value().to, session_.me)) return misdirected();
  channel_.send_letter(letter.value().to, letter.value().type, std::move(letter.value().payload));
  return Status::ok();
}

// ---- losses ----

void Engine::handle_losses() {
  for (const transport::Loss& loss : session_.links->take_losses()) {
    if (shutdown_.is_closed()) return;
    if (loss.peer < 0) continue;
    const bool carries_control = loss.channel == kControlChannel;
    RUEDA_LOG(kDebug, "channel " + std::to_string(loss.channel) + ": " + loss.status.why);
    if (shutdown_.phase() != Shutdown::Phase::kStopped)
      actions_.carry_out(
          failure_detector_.on_loss(loss.peer, carries_control, loss.status.why, monotonic_now()));
    else if (carries_control)
      on_late_loss(loss.peer);
  }
}

// This rank has stopped. A child that has gone, and those below it, have nothing more to say.
void Engine::on_late_loss(Rank peer) {
  if (!hierarchy_.is_child(peer)) return actions_.carry_out(shutdown_.on_loss(peer));
  const control::RankSet& gone = hierarchy_.below(peer);
  if (is_coordinator()) {
    gone.for_each([this](Rank rank) { actions_.carry_out(shutdown_.on_loss(rank)); });
    return;
  }
  const Status passed =
      channel_.pass_up(peer, {.from = gone, .type = MessageType::kDone, .payload = {}}, monotonic_now());
  RUEDA_LOG(kDebug, "rank " + std::to_string(peer) + " has gone" + (passed.is_ok() ? "" : ": " + passed.why));
}

}  // namespace rueda::runtime
