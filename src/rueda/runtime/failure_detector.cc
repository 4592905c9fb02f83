#include "rueda/runtime/failure_detector.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <utility>

#include "rueda/control/verdict.h"
#include "rueda/runtime/loss_reason.h"

namespace rueda::runtime {
namespace {

// How long a rank that lost a data channel waits for the coordinator to name the culprit.
constexpr Nanos kVerdictWait = kAnswerWait + 1500 * kMillisecond;
// How long a rank waits after a call failed because of a lost channel: the verdict, which names the culprit,
// may be on its way.
constexpr Nanos kFailureWait = 2 * kSecond;
// Looks come twice a second, and news of other hosts once.
constexpr Nanos kHeldLasts = 3 * kSecond;
// A kernel acknowledges within 40 ms, and tries a lost segment again after 200 ms. A host that takes longer
// must be noticed before the silence of its ranks counts.
constexpr Nanos host_answers_in(Nanos timeout) { return std::min(kSecond, timeout / 6); }
// Over an idle connection the kernel asks the other host first after 1 s. Then it takes an eighth of the
// limit until the transport sees that, a sixth and an eighth until it counts, and half a second until the
// engine looks: 3.2 s where the limit is 4 s. With a shorter limit than this, a host that was cut off may
// still count as one that answers.
constexpr Nanos kTellsHosts = 4 * kSecond;

// The reason that a transport gives is a sentence; here it becomes part of one.
std::string without_period(const std::string& sentence) {
  return sentence.ends_with('.') ? sentence.substr(0, sentence.size() - 1) : sentence;
}

// A channel that was closed or reset did not break: its process has ended.
bool has_ended(const std::string& reason) {
  return reason.find("closed its connection") != std::string::npos ||
         reason.find(std::strerror(ECONNRESET)) != std::string::npos;
}

// The rank whose host acknowledges nothing, as a transport says it: "rank 3 has acknowledged nothing for 35 s
// …". Unlike an end of its process, that follows from the end of no third rank. -1: the failure is another
// one.
Rank unreachable_rank(const Status& why) {
  constexpr std::string_view kRank = "rank ";
  if (why.code != Code::kPeerLost || !why.why.starts_with(kRank)) return -1;
  const char* const end = why.why.data() + why.why.size();
  Rank rank = -1;
  const auto [rest, error] = std::from_chars(why.why.data() + kRank.size(), end, rank);
  const bool is_unreachable = std::string_view(rest, end).starts_with(" has acknowledged nothing");
  return error == std::errc() && is_unreachable ? rank : -1;
}

constexpr std::string_view kUnreachable = "unreachable";

std::string_view loss_of(const std::string& reason) {
  if (has_ended(reason)) return "dead";
  return reason.find("not answered") != std::string::npos ? "silent" : kUnreachable;
}

// Whether the network carries nothing to that rank. A connection that was reset shows that it carries
// something.
bool is_cut(const std::string& reason) { return reason.find("acknowledged nothing") != std::string::npos; }

// What to do about it.
std::string advice_for(const std::string& reason) {
  return has_ended(reason) ? "; its process has probably ended, so look at its output and its exit code" : "";
}

}  // namespace

FailureDetector::FailureDetector(const Hierarchy& hierarchy, const std::vector<PeerInfo>& all, Nanos timeout,
                                 Nanos now)
    : hierarchy_(hierarchy), all_(all), me_(hierarchy.me()), liveness_(hierarchy, timeout, now) {
  if (is_coordinator()) clock_.emplace();
}

// While a leader was away, nobody could hear of the ranks below it.
void FailureDetector::heard(Rank from, Nanos now) {
  if (is_coordinator() && liveness_.is_away(from, now)) excuse(from, now);
  liveness_.heard(from, now);
}

void FailureDetector::excuse(Rank of, Nanos now) {
  liveness_.excuse(of, now);
  if (!is_coordinator()) return;
  for (Rank rank = 0; std::cmp_less(rank, all_.size()); ++rank)
    if (hierarchy_.is_below(rank, of)) liveness_.excuse(rank, now);
}

std::string FailureDetector::describe(Rank rank) const {
  return runtime::describe(rank, all_[static_cast<size_t>(rank)]);
}

FailureDetector::End FailureDetector::lost(Rank rank, const std::string& why) const {
  std::string reason = without_period(loss_reason(rank, why));
  if (loss_of(reason) == kUnreachable) reason += control::what_agent_tells(agent_of_(rank));
  return {.why = {Code::kPeerLost, describe(rank) + " was lost: " + reason + advice_for(reason) + "."},
          .lost = rank,
          .loss = loss_of(reason),
          .cut_from = is_cut(reason) ? rank : -1};
}

void FailureDetector::host_silence(Rank of, std::optional<Nanos> silence, Nanos now) {
  if (!silence) return;
  const bool answers = *silence < host_answers_in(liveness_.timeout());
  does_host_answer_[of] = answers;
  if (!answers) excuse(of, now);
}

// A rank that cannot answer is known to be stopped if a rank of its host has seen that.
FailureDetector::End FailureDetector::silent(Rank rank, Nanos now) const {
  const auto found = held_.find(rank);
  const bool is_known = found != held_.end() && now - found->second.seen <= kHeldLasts;
  const ProcessState state = is_known ? found->second.state : ProcessState::kUnknown;
  const std::string unanswered =
      "has not answered for " + std::to_string(liveness_.timeout() / kSecond) + " s";
  const std::string limit = "RUEDA_PEER_TIMEOUT_SECONDS sets the limit";
  if (state == ProcessState::kStopped) {
    End end =
        lost(rank, "its process was stopped by a signal (SIGSTOP or SIGTSTP) and " + unanswered +
                       "; look for who stopped it, such as a batch system that suspends jobs; " + limit);
    end.loss = control::name_of(control::Fault::kStopped);
    return end;
  }
  if (state == ProcessState::kTraced) {
    End end = lost(rank, "a debugger holds its process, which " + unanswered + "; " + limit);
    end.loss = control::name_of(control::Fault::kDebugger);
    return end;
  }
  const auto host = does_host_answer_.find(rank);
  const bool is_host_up =
      are_on_one_host(all_, rank, me_) ||
      (liveness_.timeout() >= kTellsHosts && host != does_host_answer_.end() && host->second);
  if (!is_host_up) return lost(rank, "it " + unanswered + " (stopped, overloaded or cut off; " + limit + ")");
  return lost(rank, "it " + unanswered +
                        ", but its host does: its process was stopped, waits for a disk, or gets no core (" +
                        limit + ")");
}

FailureDetector::End FailureDetector::refused(Rank from, const std::string& why) const {
  return {.why = {Code::kInternal,
                  describe(from) + " sent a control message that this rank must refuse: " + why}};
}

FailureDetector::Actions FailureDetector::on_heartbeat(Rank from, const control::Heartbeat& heartbeat,
                                                       Nanos now) {
  if (from == hierarchy_.parent()) return on_ping(from, heartbeat, now);
  suspicions_.answered(from, heartbeat.echo_sent);
  // Ranks of one host share CLOCK_MONOTONIC; an estimate could only make it worse.
  if (are_on_one_host(all_, from, me_)) return {};
  // Each rank keeps its offset in its own records, so that they can be read without those of rank 0.
  return {Answer{.to = from, .sent = heartbeat.sent, .received = now, .clock = clock_}};
}

// A ping of the parent, or its answer to the answer of this rank.
FailureDetector::Actions FailureDetector::on_ping(Rank from, const control::Heartbeat& ping, Nanos now) {
  const bool is_echo = ping.echo_sent != 0;
  const bool is_other_clock = !are_on_one_host(all_, me_, hierarchy_.root());
  Actions actions;
  // A parent on this host says what it knows in its pings. One on another host is compared with, in echoes.
  if (is_other_clock && ping.clock && is_echo != are_on_one_host(all_, me_, from)) {
    trace::ClockSample sample{.at = now, .offset = ping.clock->offset, .round_trip = ping.clock->round_trip};
    if (is_echo) {
      sample = clock_of_asker(ping, now);
      sample.offset += ping.clock->offset;
      sample.round_trip += ping.clock->round_trip;
    }
    clock_ = {.offset = sample.offset, .round_trip = sample.round_trip};
    actions.emplace_back(Clock{.sample = sample});
  }
  if (is_echo) return actions;
  actions.emplace_back(Answer{.to = from, .sent = ping.sent, .received = now});
  if (hierarchy_.children().empty()) return actions;
  liveness_.pinged(now);
  actions.emplace_back(Ping{.clock = clock_});
  return actions;
}

FailureDetector::Actions FailureDetector::on_loss(Rank peer, bool carries_control, const std::string& why,
                                                  Nanos now) {
  // A data channel may break because its other end has already learnt that a third rank died. That news
  // travels on the control channel, so if the control channel broke, the peer itself was lost.
  if (carries_control && (is_coordinator() || peer == hierarchy_.parent())) return {lost(peer, why)};
  if (is_coordinator()) return suspect(me_, peer, why, now);
  if (suspect_ >= 0 && !carries_control) return {};
  suspect_ = peer;
  suspect_reason_ = why;
  suspect_deadline_ = now + kVerdictWait;
  return {
      Report{.abort = {.lost = peer, .code = Code::kPeerLost, .why = why, .is_certain = carries_control}}};
}

FailureDetector::Actions FailureDetector::on_abort(Rank from, const control::Abort& abort, Nanos now) {
  const bool names_a_rank = abort.lost >= 0 && std::cmp_less(abort.lost, all_.size());
  if (is_coordinator() && names_a_rank && abort.is_certain) return {this->lost(abort.lost, abort.why)};
  if (is_coordinator() && names_a_rank) {
    const std::string who = " (as reported by rank " + std::to_string(from) + ")";
    return suspect(from, abort.lost, without_period(abort.why) + who, now);
  }
  // The text names the culprit already.
  const Rank lost = names_a_rank ? abort.lost : -1;
  const Rank cut_from = suspect_ >= 0 && is_cut(suspect_reason_) ? suspect_ : -1;
  return {End{.why = {abort.code, abort.why}, .lost = lost, .tells_above = false, .cut_from = cut_from}};
}

// A channel between two ranks broke. A sign of life from the suspect tells whether it was lost or
// only the connection.
FailureDetector::Actions FailureDetector::suspect(Rank reporter, Rank whom, const std::string& why,
                                                  Nanos now) {
  suspicions_.report(reporter, whom, why, now);
  if (whom != me_) return {Probe{.of = whom}};
  suspicions_.answered(whom, now);
  return {};
}

FailureDetector::Actions FailureDetector::on_failure(const Status& why, Nanos now) {
  if (failure_deadline_ == 0) failure_deadline_ = why.code == Code::kPeerLost ? now + kFailureWait : now;
  if (now < failure_deadline_) return {};
  if (const Rank peer = unreachable_rank(why); peer >= 0 && std::cmp_less(peer, all_.size()))
    return {lost(peer, why.why)};
  return {End{.why = {why.code, describe(me_) + " failed: " + why.why}}};
}

FailureDetector::Actions FailureDetector::tick(Nanos now) {
  Actions actions;
  if (liveness_.take_due(now) && !hierarchy_.children().empty()) actions.emplace_back(Ping{.clock = clock_});
  if (const std::optional<Rank> silent = liveness_.silent(now)) {
    actions.emplace_back(this->silent(*silent, now));
  } else if (!suspicions_.is_empty()) {
    if (const std::optional<Suspicions::Finding> verdict = suspicions_.judge(now))
      actions.emplace_back(judged(*verdict));
  } else if (suspect_ >= 0 && now >= suspect_deadline_) {
    actions.emplace_back(lost(suspect_, suspect_reason_));
  }
  return actions;
}

FailureDetector::End FailureDetector::judged(const Suspicions::Finding& verdict) const {
  if (verdict.is_lost) return lost(verdict.suspect, verdict.why);
  const auto [low, high] = std::minmax(verdict.reporter, verdict.suspect);
  return {.why = {Code::kPeerLost, "the connection between " + describe(low) + " and " + describe(high) +
                                       " broke while both ranks were alive: " + without_period(verdict.why) +
                                       "; look at the network between them."},
          .loss = "broken connection"};
}

Nanos FailureDetector::next_event() const {
  Nanos next = all_.size() > 1 ? liveness_.next_event() : std::numeric_limits<Nanos>::max();
  if (suspect_ >= 0) next = std::min(next, suspect_deadline_);
  if (!suspicions_.is_empty()) next = std::min(next, suspicions_.next_event());
  if (failure_deadline_ != 0) next = std::min(next, failure_deadline_);
  return next;
}

}  // namespace rueda::runtime
