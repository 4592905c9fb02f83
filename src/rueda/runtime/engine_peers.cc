// The engine's dealings with other ranks: frames, heartbeats, losses, and the end of a broken epoch.

#include <algorithm>

#include "rueda/base/log.h"
#include "rueda/runtime/engine.h"

namespace rueda::runtime {
namespace {

// How long a rank that lost a data lane waits for the coordinator to name the culprit.
constexpr Nanos kVerdictWait = kAnswerWait + 1500 * kMillisecond;
constexpr Nanos kFarewellWait = 300 * kMillisecond;

// A transport's reason is a sentence of its own; here it becomes part of one.
std::string without_period(const std::string& sentence) {
  return sentence.ends_with('.') ? sentence.substr(0, sentence.size() - 1) : sentence;
}

}  // namespace

bool Engine::handle_frames() {
  std::vector<Frame> frames = session_.links->take_frames();
  const Nanos now = monotonic_now();
  for (Frame& frame : frames) {
    if (phase_ == Phase::kClosed) break;
    liveness_.heard(frame.from, now);
    handle_frame(std::move(frame), now);
  }
  return !frames.empty();
}

void Engine::handle_frame(Frame frame, Nanos now) {
  using control::FrameType;
  const auto refuse = [&](const Status& status) {
    fail({Code::kInternal, describe(frame.from, (*session_.all)[static_cast<size_t>(frame.from)]) +
                               " sent a control frame this rank cannot read: " + status.why},
         -1, true);
  };
  switch (frame.type) {
    case FrameType::kRequests: {
      Result<control::Submitted> submitted = control::decode_submitted(frame.payload);
      if (!submitted.is_ok()) return refuse(submitted.status());
      if (!coordinator_) return refuse({Code::kInternal, "requests belong to rank 0."});
      // Sent before the sender saw a plan begin: it has put them into the plan, or sends them again.
      if (submitted.value().plans_begun != planner_.plans_begun() || phase_ != Phase::kRunning) return;
      planner_.saw_submissions(submitted.value().requests);
      return coordinator_->submit(frame.from, std::move(submitted).value().requests, now, timeline_.get());
    }
    case FrameType::kResponses: {
      Result<std::vector<control::Response>> responses = control::decode_responses(frame.payload);
      if (!responses.is_ok()) return refuse(responses.status());
      if (coordinator_) return refuse({Code::kInternal, "responses come from rank 0 only."});
      return accept(std::move(responses).value());
    }
    case FrameType::kHeartbeat: {
      const Result<control::Heartbeat> heartbeat = control::decode_heartbeat(frame.payload);
      if (!heartbeat.is_ok()) return refuse(heartbeat.status());
      return handle_heartbeat(frame.from, heartbeat.value(), now);
    }
    case FrameType::kAbort: {
      const Result<control::Abort> abort = control::decode_abort(frame.payload);
      if (!abort.is_ok()) return refuse(abort.status());
      return handle_abort(frame.from, abort.value());
    }
    case FrameType::kShutdown:
      return begin_draining(coordinator_ ? frame.from : control::decode_rank(frame.payload));
    case FrameType::kDone:
      if (coordinator_)
        is_done_[static_cast<size_t>(frame.from)] = true;
      else
        phase_ = Phase::kClosed;
      return;
    case FrameType::kStallReport: {
      const std::string text(reinterpret_cast<const char*>(frame.payload.data()), frame.payload.size());
      RUEDA_LOG(kWarning, text);
      return;
    }
    case FrameType::kTrace: {
      const Status status = timeline_->ingest(frame.from, liveness_.offset(frame.from), frame.payload);
      if (!status.is_ok()) RUEDA_LOG(kDebug, status.why);
      return;
    }
    case FrameType::kPlanDepart:
    case FrameType::kPlanFreeze:
    case FrameType::kPlanPosition:
      return handle_plan_news(frame);
    case FrameType::kCosts:
      return;  // start-up only
  }
}

void Engine::handle_heartbeat(Rank from, const control::Heartbeat& heartbeat, Nanos now) {
  if (coordinator_) {
    // Ranks of one host share CLOCK_MONOTONIC; an estimate could only make it worse.
    if (!are_on_one_host(*session_.all, from, session_.me)) liveness_.on_answer(from, heartbeat, now);
    return suspicions_.answered(from, heartbeat.echo_sent);
  }
  send(from, control::FrameType::kHeartbeat,
       control::encode(
           control::Heartbeat{.sent = monotonic_now(), .echo_sent = heartbeat.sent, .echo_received = now}));
}

void Engine::watch_peers(Nanos now) {
  if (phase_ == Phase::kClosed) return;
  if (liveness_.take_due(now) && coordinator_) {
    const Bytes ping = control::encode(control::Heartbeat{.sent = now, .echo_sent = 0, .echo_received = 0});
    for (Rank peer = 1; peer < session_.size(); ++peer) send(peer, control::FrameType::kHeartbeat, ping);
  }
  if (const std::optional<Rank> silent = liveness_.silent(now)) {
    fail(lost_status(*silent,
                     "it has not answered for " + std::to_string(liveness_.timeout() / kSecond) +
                         " s (stopped, overloaded or cut off; RUEDA_PEER_TIMEOUT_SECONDS sets the limit)"),
         *silent, true);
  } else if (!suspicions_.is_empty()) {
    judge_suspects(now);
  } else if (suspect_ >= 0 && now >= suspect_deadline_) {
    fail(lost_status(suspect_, suspect_reason_), suspect_, true);
  }
}

void Engine::handle_losses() {
  for (const transport::Loss& loss : session_.links->take_losses()) {
    if (phase_ == Phase::kClosed) return;
    if (loss.peer < 0) continue;
    const bool is_control = loss.lane == kControlLane;
    if (phase_ == Phase::kStopped) {  // nothing of mine depends on it any more
      if (coordinator_ && is_control) is_done_[static_cast<size_t>(loss.peer)] = true;
      if (loss.peer == kCoordinator && is_control) phase_ = Phase::kClosed;
      continue;
    }
    // A data lane may break because its other end already learnt of a third rank's death: the control lane,
    // on which that news travels, decides.
    if (is_control) {
      fail(lost_status(loss.peer, loss.status.why), loss.peer, true);
    } else if (coordinator_) {
      suspect(session_.me, loss.peer, loss.status.why);
    } else if (suspect_ < 0) {
      suspect_ = loss.peer;
      suspect_reason_ = loss.status.why;
      suspect_deadline_ = monotonic_now() + kVerdictWait;
      send(kCoordinator, control::FrameType::kAbort,
           control::encode(
               control::Abort{.lost = loss.peer, .code = Code::kPeerLost, .why = loss.status.why}));
    }
  }
}

void Engine::handle_abort(Rank from, const control::Abort& abort) {
  if (phase_ == Phase::kClosed) return;
  // -1: the text names the culprit already.
  if (!coordinator_ || abort.lost < 0 || abort.lost >= session_.size()) {
    return fail({abort.code, abort.why}, abort.lost, coordinator_ != nullptr);
  }
  suspect(from, abort.lost,
          without_period(abort.why) + " (as reported by rank " + std::to_string(from) + ")");
}

// A lane between two ranks broke; only a sign of life of the other one tells which of two things it means.
void Engine::suspect(Rank reporter, Rank whom, const std::string& why) {
  const Nanos now = monotonic_now();
  suspicions_.report(reporter, whom, why, now);
  if (whom == session_.me) return suspicions_.answered(whom, now);
  send(whom, control::FrameType::kHeartbeat,
       control::encode(control::Heartbeat{.sent = now, .echo_sent = 0, .echo_received = 0}));
}

void Engine::judge_suspects(Nanos now) {
  const std::optional<Suspicions::Verdict> verdict = suspicions_.judge(now);
  if (!verdict) return;
  if (verdict->is_lost) return fail(lost_status(verdict->suspect, verdict->why), verdict->suspect, true);
  const auto [low, high] = std::minmax(verdict->reporter, verdict->suspect);
  const std::vector<Facts>& all = *session_.all;
  fail({Code::kPeerLost, "the connection between " + describe(low, all[static_cast<size_t>(low)]) + " and " +
                             describe(high, all[static_cast<size_t>(high)]) +
                             " broke while both ranks were alive: " + without_period(verdict->why) +
                             "; look at the network between them."},
       -1, true);
}

Status Engine::lost_status(Rank lost, const std::string& why) const {
  return {Code::kPeerLost, describe(lost, (*session_.all)[static_cast<size_t>(lost)]) +
                               " was lost: " + without_period(why) + "."};
}

void Engine::fail(const Status& why, Rank lost, bool tell_others) {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  lost_rank_ = lost;
  if (coordinator_) {
    const std::string waiting = coordinator_->pending_summary();
    if (!waiting.empty()) RUEDA_LOG(kInfo, "When the job ended, " + waiting + ".");
  }
  if (session_.links) {
    if (tell_others) {
      // From a rank that is not the coordinator, a lost rank would be a report and no news.
      const Rank named = coordinator_ ? lost : -1;
      const Bytes news = control::encode(control::Abort{.lost = named, .code = why.code, .why = why.why});
      if (coordinator_)
        session_.links->broadcast_frame(control::FrameType::kAbort, news);
      else if (lost != kCoordinator)
        session_.links->send_frame(kCoordinator, control::FrameType::kAbort, news);
      flush_frames(kFarewellWait);
    }
    session_.links->abort(why);
    session_.links->progress(session_.on_data);
  }
  session_.backends->abort(why);
  dispatcher_.abort();
  operations_.close(why);
}

bool Engine::has_trace_batches() {
  const std::lock_guard lock(trace_mutex_);
  return !trace_batches_.empty();
}

void Engine::send_trace_batches() {
  std::vector<Bytes> batches;
  {
    const std::lock_guard lock(trace_mutex_);
    batches = std::exchange(trace_batches_, {});
  }
  for (Bytes& batch : batches) send(kCoordinator, control::FrameType::kTrace, std::move(batch));
}

}  // namespace rueda::runtime
