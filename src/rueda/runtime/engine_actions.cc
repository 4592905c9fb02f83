#include "rueda/runtime/engine_actions.h"

#include <utility>
#include <variant>

#include "rueda/base/log.h"
#include "rueda/status/stop_file.h"

namespace rueda::runtime {
namespace {

// How long sending may take: the news of a failure, and that of an orderly end.
constexpr Nanos kNewsWait = 300 * kMillisecond;
constexpr Nanos kReleaseWait = kSecond;

}  // namespace

// The text is Horovod's; the name of the first rank to leave is ours.
Status EngineActions::shut_down_status() const {
  std::string text =
      "Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt to run "
      "a collective after one of the ranks finished execution. If the shutdown was caused by an exception, "
      "you should see it in the log before the first shutdown message.";
  const Rank leaver = parts_.shutdown.first_leaver();
  if (leaver >= 0 && leaver < parts_.session.size()) {
    const std::string who = describe(leaver, (*parts_.session.all)[static_cast<size_t>(leaver)]);
    text += " The first to leave was " + who + ".";
  }
  return {Code::kShutDown, std::move(text)};
}

void EngineActions::carry_out(const FailureDetector::Actions& actions) {
  for (const FailureDetector::Action& action : actions)
    std::visit([this](const auto& one) { carry_out(one); }, action);
}

void EngineActions::carry_out(const FailureDetector::Ping& ping) {
  const control::Heartbeat heartbeat{
      .sent = monotonic_now(), .echo_sent = 0, .echo_received = 0, .clock = ping.clock};
  parts_.channel.send_below(control::MessageType::kHeartbeat, control::encode(heartbeat));
  // The others say in their answers how long they have taken part until now.
  if (parts_.hierarchy.is_root())
    parts_.observer.on_participation(parts_.session.me, parts_.participation.at(heartbeat.sent),
                                     heartbeat.sent);
}

void EngineActions::carry_out(const FailureDetector::Probe& probe) {
  parts_.channel.send_routed(probe.of, control::MessageType::kProbe, control::encode_time(monotonic_now()));
}

void EngineActions::carry_out(const FailureDetector::Answer& answer) {
  const control::Heartbeat heartbeat{.sent = monotonic_now(),
                                     .echo_sent = answer.sent,
                                     .echo_received = answer.received,
                                     .clock = answer.clock};
  parts_.channel.send(answer.to, control::MessageType::kHeartbeat, control::encode(heartbeat));
  if (answer.to == parts_.hierarchy.parent()) send_facts(monotonic_now());
}

void EngineActions::send_facts(Nanos now) {
  control::Facts facts = parts_.observer.facts(parts_.negotiation.place_in_plan(now), now);
  facts.participation = parts_.participation.at(now);
  parts_.channel.send_up(control::MessageType::kFacts, control::encode(facts));
}

void EngineActions::carry_out(const FailureDetector::Clock& clock) {
  const trace::ClockSample& sample = clock.sample;
  parts_.recording.timeline().record(TraceSpan{
      .kind = SpanKind::kClock, .begin = sample.at, .end = sample.round_trip, .value = sample.offset});
}

void EngineActions::carry_out(const FailureDetector::Report& report) {
  parts_.channel.send_up(control::MessageType::kAbort, control::encode(report.abort));
}

void EngineActions::carry_out(const FailureDetector::End& end) {
  if (parts_.shutdown.is_closed()) return;
  parts_.shutdown.close();
  lost_rank_ = end.lost;
  cut_from_ = end.cut_from;
  // All ranks were told to end. They need not do it at the same time.
  if (end.why.code == Code::kPeerLost && status::is_being_ended(parts_.session.stop_file)) {
    RUEDA_LOG(kInfo, "The job is being ended: " + end.why.why);
  } else {
    parts_.recording.failed(end.why);
    parts_.observer.lost(end.lost, end.loss, end.why.why);
  }
  const std::string waiting = parts_.negotiation.pending_summary();
  if (!waiting.empty()) RUEDA_LOG(kInfo, "When the job ended, " + waiting + ".");
  if (parts_.session.links) {
    tell_end(end);
    parts_.session.links->abort(end.why);
    parts_.session.links->progress(parts_.session.on_data);
  }
  parts_.session.backends->abort(end.why);
  parts_.dispatcher.abort();
  parts_.operations.close(end.why);
}

void EngineActions::tell_end(const FailureDetector::End& end) {
  control::Abort news{.lost = end.lost, .code = end.why.code, .why = end.why.why};
  parts_.channel.send_below(control::MessageType::kAbort, control::encode(news));
  if (!parts_.hierarchy.is_root() && end.tells_above) {
    // To the coordinator an abort that names a lost rank would be a report. A rank 0 that was stopped reads
    // it when it goes on, before it finds the others gone.
    news.lost = -1;
    parts_.channel.send_up(control::MessageType::kAbort, control::encode(news));
  }
  parts_.channel.flush(kNewsWait, parts_.session.on_data);
}

EngineState EngineActions::state_for_shutdown() const {
  // What was launched on a device must end there while the ranks still watch one another.
  const bool is_idle = parts_.dispatcher.is_idle() && parts_.session.backends->is_idle();
  return {.has_plan = parts_.negotiation.has_plan(), .is_idle = is_idle};
}

void EngineActions::carry_out(const ShutdownActions& actions) {
  for (const ShutdownAction action : actions) carry_out(action);
}

void EngineActions::carry_out(ShutdownAction action) {
  using control::MessageType;
  switch (action) {
    case ShutdownAction::kAskToLeave:
      return parts_.channel.send_up(MessageType::kShutdown, {});
    case ShutdownAction::kEndPlan:
      return parts_.negotiation.depart("a rank leaves");
    case ShutdownAction::kTellOthers:
      return parts_.channel.send_below(MessageType::kShutdown,
                                       control::encode_rank(parts_.shutdown.first_leaver()));
    case ShutdownAction::kStop:
      return stop();
    case ShutdownAction::kReleaseAll:
      if (parts_.hierarchy.children().empty()) return;
      parts_.channel.send_below(MessageType::kDone, {});
      return parts_.channel.flush(kReleaseWait, parts_.session.on_data);
  }
}

void EngineActions::stop() {
  parts_.operations.close(shut_down_status());
  if (parts_.session.links)
    parts_.recording.look_at_links(*parts_.session.links, monotonic_now(), *parts_.counters.meters, true);
  if (parts_.hierarchy.is_root()) return;
  parts_.recording.stop();  // rank 0 draws what is recorded when it hears kDone of all ranks
  parts_.channel.send_up(control::MessageType::kDone, {});
}

}  // namespace rueda::runtime
