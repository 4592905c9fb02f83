#include "launch/host_link.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "launch/ending.h"
#include "launch/processes.h"
#include "rueda/base/limits.h"
#include "rueda/base/process.h"

namespace rueda::launch {
namespace {

constexpr size_t kMaxErrorTail = 1024;
constexpr Nanos kReapLimit = 5 * kSecond;  // from an agent's last word to its end
constexpr int kMaxReads = 16;              // per turn, so that one chatty host does not starve the others

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  std::ranges::replace(text, '\n', ' ');
  std::erase(text, '\r');
  return text;
}

// signal: to its ssh; 0: that gets end of file.
void end_branch(const BranchWay& branch, int signal) {
  ByteWriter writer;
  writer.put(static_cast<int32_t>(signal));
  branch.tell(MessageType::kEndBranch, writer.bytes());
}

std::string unreachable(const std::string& host, Nanos silence) {
  return fmt::format("{} cannot be reached: nothing was heard from its agent for {} s", host,
                     silence / kSecond);
}

}  // namespace

HostLink::HostLink(std::string host, StartWay way)
    : host_(std::move(host)), way_(way), queue_(kMaxMessageBytes) {}

void HostLink::attach(AgentProcess process) {
  process_ = std::move(process);
  is_attached_ = true;
  if (process_.pid > 0) process_.started_ticks = start_ticks(process_.pid);
  last_heard_ = monotonic_now();
}

void HostLink::attach(BranchWay way) {
  branch_ = std::move(way);
  is_attached_ = is_branch_open_ = true;
  last_heard_ = monotonic_now();
}

void HostLink::send(MessageType type, std::span<const std::byte> payload) {
  if (is_branch_open_) return branch_->tell(MessageType::kToBranch, encode_message(type, payload));
  if (!process_.in.is_open()) return;
  queue_.push(encode_message(type, payload));
  flush();
}

void HostLink::flush() {
  if (process_.in.is_open() && !queue_.flush(process_.in.get())) process_.in.reset();
}

void HostLink::read_messages(const std::function<void(const AgentMessage&)>& on_rank_message) {
  std::array<std::byte, 64 << 10> chunk;
  for (int reads = 0; reads < kMaxReads && process_.out.is_open(); ++reads) {
    const ssize_t size = ::read(process_.out.get(), chunk.data(), chunk.size());
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size <= 0) return close("");
    feed(std::span(chunk).first(static_cast<size_t>(size)), on_rank_message);
  }
}

void HostLink::feed(std::span<const std::byte> bytes,
                    const std::function<void(const AgentMessage&)>& on_rank_message) {
  last_heard_ = monotonic_now();
  reader_.feed(bytes);
  while (true) {
    Result<std::optional<AgentMessage>> message = reader_.next();
    if (!message.is_ok()) return close(message.status().why);
    if (!message.value()) return;
    on_message(*message.value(), on_rank_message);
  }
}

void HostLink::on_message(const AgentMessage& message,
                          const std::function<void(const AgentMessage&)>& on_rank_message) {
  switch (message.type) {
    case MessageType::kHello: {
      Result<Hello> hello = decode_hello(message.payload);
      if (!hello.is_ok()) return close(hello.status().why);
      hello_ = std::move(hello.value());
      return;
    }
    case MessageType::kPong:
      return clock_.note(ByteReader(message.payload).get<Nanos>(), monotonic_now());
    case MessageType::kBye:
      has_said_bye_ = true;
      return;
    case MessageType::kStarted:
    case MessageType::kOutput:
    case MessageType::kFile:
    case MessageType::kMetrics:
    case MessageType::kExit:
    case MessageType::kAnswer:
    case MessageType::kSignalled:
    case MessageType::kHeld:
    case MessageType::kBoard:
    case MessageType::kLeave:
    case MessageType::kFromBranch:
    case MessageType::kBranchEnded:
      return on_rank_message(message);
    default:
      return;
  }
}

std::string HostLink::read_errors() {
  std::array<char, 4096> chunk;
  const ssize_t size = ::read(process_.err.get(), chunk.data(), chunk.size());
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return {};
  if (size <= 0) {
    process_.err.reset();
    return error_partial_.empty() ? "" : std::exchange(error_partial_, {}) + "\n";
  }
  return take_errors({chunk.data(), static_cast<size_t>(size)});
}

std::string HostLink::take_errors(std::string_view text) {
  error_tail_ += text;
  if (error_tail_.size() > kMaxErrorTail) error_tail_.erase(0, error_tail_.size() - kMaxErrorTail);
  error_partial_ += text;
  const size_t end = error_partial_.rfind('\n');
  if (end == std::string::npos && error_partial_.size() < kMaxErrorTail) return {};
  std::string lines = error_partial_.substr(0, end == std::string::npos ? end : end + 1);
  error_partial_.erase(0, lines.size());
  return lines;
}

void HostLink::on_reaped(int wait_status) { wait_status_ = wait_status; }

void HostLink::look_for_end() {
  if (process_.pid == 0 || process_.is_child || is_reaped()) return;
  const ProcessState state =
      look_at_process(process_.pid, static_cast<int64_t>(process_.started_ticks)).state;
  if (state == ProcessState::kEnded || state == ProcessState::kUnknown) on_reaped(0);
}

void HostLink::close(const std::string& why) {
  if (closed_because_.empty()) closed_because_ = why;
  process_.out.reset();
  process_.in.reset();
  if (std::exchange(is_branch_open_, false)) end_branch(*branch_, 0);
}

void HostLink::signal(int number) const {
  if (branch_ && !is_reaped()) return end_branch(*branch_, number);
  if (process_.pid > 0 && !is_reaped()) kill(process_.pid, number);  // 0 would be our own process group
}

void HostLink::check_silence(Nanos now, Nanos timeout) {
  if (!is_attached_ || (is_reaped() && !is_open())) return;
  const Nanos silence = now - last_heard_;
  if (has_said_bye_) {
    if (silence > kReapLimit && has_joined()) close("");
    if (silence > kReapLimit) signal(SIGKILL);
  } else if (timeout != 0 && silence > timeout) {
    close(unreachable(host_, silence));
    signal(SIGKILL);
  }
}

void HostLink::force_end(Nanos now) {
  const bool is_unreachable = is_remote() && is_silent(now);
  if (closed_because_.empty() && !has_said_bye_ && !is_reaped())
    closed_because_ = is_unreachable ? unreachable(host_, now - last_heard_) : "it could not be ended";
  if (has_joined())
    close("");
  else if (is_remote())
    signal(SIGKILL);
  else if (hello_ && !has_said_bye_)
    kill(hello_->pid, SIGKILL);  // its guardian then kills what is left and ends
}

Nanos HostLink::to_our_clock(Nanos agent_clock) const {
  // All processes of one machine share a clock.
  return is_remote() ? clock_.to_ours(agent_clock) : agent_clock;
}

bool HostLink::is_lost() const { return is_attached_ && !has_said_bye_ && !is_open() && is_reaped(); }

bool HostLink::is_over() const { return !is_attached_ || (is_reaped() && (has_said_bye_ || !is_open())); }

std::string HostLink::lost_because() const {
  const std::string words = trimmed(error_tail_);
  const std::string quoted = words.empty() ? "" : fmt::format(": {}", words);
  if (!closed_because_.empty()) return closed_because_ + quoted;  // the exit status only follows from that
  const std::string from = branch_ ? " from " + branch_->parent_host : "";
  if (wait_status_ && WIFSIGNALED(*wait_status_))
    return fmt::format("{}{} was killed by {}", program_of(way_), from, signal_name(WTERMSIG(*wait_status_)));
  const int code = wait_status_ ? WEXITSTATUS(*wait_status_) : 0;
  if (way_ == StartWay::kSsh && code == 255)
    return fmt::format("ssh{} could not connect or lost its connection{}", from, quoted);
  if (!hello_ && (code == 127 || code == 126))
    return fmt::format("rueda is not installed there: it is neither at the same path as here nor in PATH{}",
                       quoted);
  if ((way_ == StartWay::kSrun || way_ == StartWay::kBlaunch) && !hello_)
    return fmt::format("{} could not start it{}", program_of(way_), quoted);
  if (code > 128) return fmt::format("its agent was killed by {}", signal_name(code - 128));
  if (code != 0) return fmt::format("its agent exited with code {}{}", code, quoted);
  return "its connection was closed" + quoted;
}

}  // namespace rueda::launch
