#include "launch/agent_loop.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "launch/agent_hello.h"
#include "launch/poll_set.h"
#include "launch/processes.h"
#include "launch/rank_files.h"
#include "launch/warning.h"

namespace rueda::launch {
namespace {

constexpr size_t kMaxQueuedBytes = 4 << 20;  // then the pipes of the ranks are not read, so the ranks wait
constexpr Nanos kPongInterval = kSecond;
constexpr Nanos kLostLauncherGrace = kSecond;  // for a rank's own clean-up; everything is gone within 5 s

}  // namespace

AgentLoop::AgentLoop(Self self, pid_t guardian, UniqueFd signals)
    : release_(std::move(self.release)),
      private_dir_(std::move(self.private_dir)),
      joining_(std::move(self.joining)),
      guardian_(guardian),
      signals_(std::move(signals)),
      out_(kMaxQueuedBytes),
      branches_(sender()),
      ranks_(private_dir_, sender()) {}

SendMessage AgentLoop::sender() {
  return [this](MessageType type, std::span<const std::byte> payload) { send(type, payload); };
}

int AgentLoop::run() {
  set_nonblocking(STDIN_FILENO);
  set_nonblocking(STDOUT_FILENO);
  last_heard_ = monotonic_now();
  say_hello();
  while (!is_finished()) step();
  return is_launcher_lost_ ? 1 : 0;
}

bool AgentLoop::is_finished() const {
  if (is_launcher_lost_) return ranks_.are_swept();
  return is_bye_sent_ && branches_.are_over() && out_.is_empty();
}

void AgentLoop::say_hello() {
  out_.push(as_bytes(kAgentMagic));
  send(MessageType::kHello, encode(hello_of(release_, private_dir_, joining_)));
}

void AgentLoop::step() {
  PollSet set;
  set.watch(signals_.get(), POLLIN, [this] { read_signals(); });
  if (!is_launcher_lost_) {
    set.watch(STDIN_FILENO, POLLIN, [this] { read_launcher(); });
    if (!out_.is_empty())
      set.watch(STDOUT_FILENO, POLLOUT, [this] {
        if (!out_.flush(STDOUT_FILENO)) lose_launcher("the launcher no longer reads what this agent sends");
      });
  }
  if (!out_.is_full() || is_launcher_lost_) ranks_.watch(set);
  branches_.watch(set, !out_.is_full());
  if (query_) query_->watch(set);
  Nanos wake = std::max<Nanos>(next_pong_, 1);
  if (query_) wake = std::min(wake, query_->until());
  if (const auto at = ranks_.wake(monotonic_now())) wake = std::min(wake, *at);
  if (ranks_.are_starting() && !is_held_) wake = 1;
  set.wait(Deadline::at(wake));
  tick(monotonic_now());
}

void AgentLoop::tick(Nanos now) {
  if (now >= next_pong_) {
    ByteWriter writer;
    writer.put(now);
    if (!out_.is_full()) send(MessageType::kPong, writer.bytes());
    ranks_.look_at_processes();
    next_pong_ = now + kPongInterval;
  }
  if (is_held_) last_heard_ = now;
  const std::optional<Job>& job = ranks_.job();
  if (job && job->ping_timeout_ms > 0 && now - last_heard_ > job->ping_timeout_ms * kMillisecond)
    lose_launcher("the launcher has been silent for too long");
  if (getppid() != guardian_) lose_launcher("the guardian of this agent was killed");
  if (query_ && query_->is_done(now)) {
    send(MessageType::kAnswer, query_->answer());
    query_.reset();
  }
  ranks_.tick(now, !out_.is_full());
  if (!is_held_) ranks_.start_some();
  if (job ? ranks_.have_all_ended() : is_launcher_lost_) sweep(now);
}

// All ranks have ended.
void AgentLoop::sweep(Nanos now) {
  const std::vector<pid_t> spared = is_launcher_lost_ ? std::vector<pid_t>() : branches_.running();
  if (!ranks_.sweep(now, spared) || is_launcher_lost_) return;
  send(MessageType::kBye, {});
  is_bye_sent_ = true;
}

void AgentLoop::send(MessageType type, std::span<const std::byte> payload) {
  if (is_launcher_lost_) return;
  out_.push(encode_message(type, payload));
}

void AgentLoop::read_launcher() {
  std::array<std::byte, 64 << 10> chunk;
  const ssize_t size = read(STDIN_FILENO, chunk.data(), chunk.size());
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) return lose_launcher("the connection to the launcher was closed");
  last_heard_ = monotonic_now();
  reader_.feed(std::span(chunk).first(static_cast<size_t>(size)));
  while (!is_launcher_lost_) {
    Result<std::optional<AgentMessage>> message = reader_.next();
    if (!message.is_ok()) return lose_launcher(message.status().why);
    if (!message.value()) return;
    on_message(*message.value());
  }
}

void AgentLoop::on_message(const AgentMessage& message) {
  ByteReader reader(message.payload);
  switch (message.type) {
    case MessageType::kJob:
      return on_job(message);
    case MessageType::kStartRank:
    case MessageType::kEndRank:
    case MessageType::kViewChange:
      return on_elastic_message(message);
    case MessageType::kSignal:
      return on_launcher_signal(reader.get<int32_t>());
    case MessageType::kSignalled:
      return on_signal_elsewhere(reader.get<int32_t>());
    case MessageType::kStop:
      return ranks_.stop(reader.get<int64_t>() * kMillisecond, SIGTERM);
    case MessageType::kKill:
      return ranks_.kill();
    case MessageType::kHold:
      is_held_ = reader.get<uint8_t>() != 0;
      return;
    case MessageType::kAsk:
      return begin_query(message);
    case MessageType::kNews:
      return keep_news(private_dir_, message.payload);
    case MessageType::kRefused:
      return on_refused(as_text(message.payload));
    case MessageType::kBranch:
    case MessageType::kToBranch:
    case MessageType::kEndBranch:
    case MessageType::kForAll:
      return on_branch_message(message);
    default:
      return;  // a ping only has to arrive
  }
}

void AgentLoop::on_branch_message(const AgentMessage& message) {
  if (message.type != MessageType::kForAll) {
    const Status done = branches_.on_message(message);
    return done.is_ok() ? void() : lose_launcher(done.why);
  }
  const Result<AgentMessage> inside = branches_.pass_on(message);
  return inside.is_ok() ? on_message(inside.value()) : lose_launcher(inside.status().why);
}

void AgentLoop::on_job(const AgentMessage& message) {
  Result<Job> job = decode_job(message.payload);
  if (!job.is_ok() || ranks_.job()) return lose_launcher("the launcher sent a malformed or a second job");
  if (joining_) job.value().secret = to_hex(joining_->secret);
  ranks_.begin(std::move(job).value(), joining_.has_value());
}

void AgentLoop::on_elastic_message(const AgentMessage& message) {
  if (message.type == MessageType::kEndRank) return ranks_.end(ByteReader(message.payload).get<int32_t>());
  if (message.type == MessageType::kViewChange) {
    const Result<ViewChangeFor> change = decode_view_change(message.payload);
    return change.is_ok() ? ranks_.write(change.value()) : lose_launcher(change.status().why);
  }
  Result<RankJob> rank = decode_rank_job(message.payload);
  if (!rank.is_ok() || !ranks_.job()) return lose_launcher("the launcher sent a malformed start of a rank");
  ranks_.add(std::move(rank).value());
}

void AgentLoop::on_refused(std::string_view why) {
  warn("agent", why);
  lose_launcher("the launcher has refused this agent");
}

void AgentLoop::begin_query(const AgentMessage& message) {
  Result<Question> question = decode_question(message.payload);
  if (!question.is_ok()) return lose_launcher(question.status().why);
  query_ = ranks_.ask(std::move(question).value());
}

// From now on nothing is reported, and all ranks are ended.
void AgentLoop::lose_launcher(const std::string& why) {
  if (is_launcher_lost_) return;
  is_launcher_lost_ = true;
  out_.clear();
  branches_.close();
  if (!ranks_.have_all_ended()) warn("agent", why + "; the ranks of this host are being ended");
  // The scheduler has told how long the ranks have.
  if (!keeps_grace_ || getppid() != guardian_) return ranks_.stop(kLostLauncherGrace, SIGTERM);
  if (!ranks_.are_stopping()) ranks_.stop(ranks_.job()->grace_ms * kMillisecond, end_signal_);
}

}  // namespace rueda::launch
