// How an epoch ends: what the engine does when the failure detector and the shutdown have decided.

#include <utility>
#include <variant>

#include "rueda/base/log.h"
#include "rueda/runtime/engine.h"
#include "rueda/status/stop_file.h"

namespace rueda::runtime {
namespace {

// How long sending may take: the news of a failure, and that of an orderly end.
constexpr Nanos kNewsWait = 300 * kMillisecond;
constexpr Nanos kReleaseWait = kSecond;

}  // namespace

// The text is Horovod's; the name of the first rank to leave is ours.
Status Engine::shut_down_status() const {
  std::string text =
      "Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt to run "
      "a collective after one of the ranks finished execution. If the shutdown was caused by an exception, "
      "you should see it in the log before the first shutdown message.";
  const Rank leaver = shutdown_.first_leaver();
  if (leaver >= 0 && leaver < session_.size()) {
    const std::string who = describe(leaver, (*session_.all)[static_cast<size_t>(leaver)]);
    text += " The first to leave was " + who + ".";
  }
  return {Code::kShutDown, std::move(text)};
}

void Engine::carry_out(const FailureDetector::Actions& actions) {
  for (const FailureDetector::Action& action : actions)
    std::visit([this](const auto& one) { carry_out(one); }, action);
}

void Engine::carry_out(const FailureDetector::Ping& ping) {
  const control::Heartbeat heartbeat{.sent = monotonic_now(), .echo_sent = 0, .echo_received = 0};
  const Bytes payload = control::encode(heartbeat);
  for (const Rank peer : ping.to) channel_.send(peer, control::MessageType::kHeartbeat, payload);
  // The others say in their answers how long they have taken part until now.
  const bool asks_all = std::cmp_equal(ping.to.size() + 1, session_.size());
  if (is_coordinator() && asks_all)
    observer_.on_participation(session_.me, participation_.at(heartbeat.sent), heartbeat.sent);
}

void Engine::carry_out(const FailureDetector::Answer& answer) {
  const control::Heartbeat heartbeat{
      .sent = monotonic_now(), .echo_sent = answer.sent, .echo_received = answer.received};
  channel_.send(answer.to, control::MessageType::kHeartbeat, control::encode(heartbeat));
  if (!is_coordinator()) send_facts(monotonic_now());
}

void Engine::carry_out(const FailureDetector::Clock& clock) {
  const trace::ClockSample& sample = clock.sample;
  recording_.timeline().record(TraceSpan{
      .kind = SpanKind::kClock, .begin = sample.at, .end = sample.round_trip, .value = sample.offset});
}

void Engine::carry_out(const FailureDetector::Report& report) {
  channel_.send(kCoordinator, control::MessageType::kAbort, control::encode(report.abort));
}

void Engine::carry_out(const FailureDetector::End& end) {
  if (shutdown_.is_closed()) return;
  shutdown_.close();
  lost_rank_ = end.lost;
  cut_from_ = end.cut_from;
  // All ranks were told to end. They need not do it at the same time.
  if (end.why.code == Code::kPeerLost && status::is_being_ended(session_.stop_file)) {
    RUEDA_LOG(kInfo, "The job is being ended: " + end.why.why);
  } else {
    recording_.failed(end.why);
    observer_.lost(end.lost, end.loss, end.why.why);
  }
  const std::string waiting = negotiation_.pending_summary();
  if (!waiting.empty()) RUEDA_LOG(kInfo, "When the job ended, " + waiting + ".");
  if (session_.links) {
    if (end.tells_others) tell_end(end);
    session_.links->abort(end.why);
    session_.links->progress(session_.on_data);
  }
  session_.backends->abort(end.why);
  dispatcher_.abort();
  operations_.close(end.why);
}

void Engine::tell_end(const FailureDetector::End& end) {
  // From a rank other than the coordinator, an abort that names a lost rank would be a report.
  const Rank named = is_coordinator() ? end.lost : -1;
  Bytes news = control::encode(control::Abort{.lost = named, .code = end.why.code, .why = end.why.why});
  if (is_coordinator())
    channel_.broadcast(control::MessageType::kAbort, std::move(news));
  else  // a rank 0 that was stopped reads it when it goes on, before it finds the others gone
    channel_.send(kCoordinator, control::MessageType::kAbort, std::move(news));
  channel_.flush(kNewsWait, session_.on_data);
}

EngineState Engine::state_for_shutdown() const {
  // What was launched on a device must end there while the ranks still watch one another.
  const bool is_idle = dispatcher_.is_idle() && session_.backends->is_idle();
  return {.has_plan = negotiation_.has_plan(), .is_idle = is_idle};
}

void Engine::carry_out(const ShutdownActions& actions) {
  for (const ShutdownAction action : actions) carry_out(action);
}

void Engine::carry_out(ShutdownAction action) {
  using control::MessageType;
  switch (action) {
    case ShutdownAction::kAskToLeave:
      return channel_.send(kCoordinator, MessageType::kShutdown, {});
    case ShutdownAction::kEndPlan:
      return negotiation_.depart("a rank leaves");
    case ShutdownAction::kTellOthers:
      return channel_.broadcast(MessageType::kShutdown, control::encode_rank(shutdown_.first_leaver()));
    case ShutdownAction::kStop:
      return stop();
    case ShutdownAction::kReleaseAll:
      channel_.broadcast(MessageType::kDone, {});
      return channel_.flush(kReleaseWait, session_.on_data);
  }
}

void Engine::stop() {
  operations_.close(shut_down_status());
  if (session_.links) recording_.look_at_links(*session_.links, monotonic_now(), *counters_.meters, true);
  if (is_coordinator()) return;
  recording_.stop();  // rank 0 draws what is recorded when it hears kDone of all ranks
  channel_.send(kCoordinator, control::MessageType::kDone, {});
}

}  // namespace rueda::runtime
