// The loop of a job and its ending; job_start.cc has the beginning.
#include "launch/job_runner.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "launch/private_dir.h"
#include "launch/processes.h"

namespace rueda::launch {
namespace {

constexpr Nanos kOthersGrace =
    2 * kSecond;  // after the first failure: time for tracebacks that name the dead rank
constexpr Nanos kPingInterval = kSecond;
constexpr Nanos kSilence = 2 * kPingInterval;  // a host that answers is heard more often
constexpr Nanos kReapLimit = 5 * kSecond;      // from an agent's last word to its end
constexpr Nanos kForceAfter =
    5 * kSecond;  // from SIGKILL to the ranks to SIGKILL to the agents, and to giving up

Nanos from_seconds(double seconds) { return static_cast<Nanos>(seconds * kSecond); }

}  // namespace

int JobRunner::run() {
  const Status ready = prepare();
  if (!ready.is_ok()) fail_start(ready);
  while (!is_over()) step();
  return finish();
}

void JobRunner::step() {
  std::vector<pollfd> fds;
  std::vector<std::function<void()>> actions;
  const auto watch = [&](int fd, short events, std::function<void()> action) {
    fds.push_back({.fd = fd, .events = events, .revents = 0});
    actions.push_back(std::move(action));
  };
  watch(signals_.get(), POLLIN, [this] { read_signals(); });
  if (options_.is_stdin_watched) watch(STDIN_FILENO, POLLIN, [this] { read_stdin(); });
  // While nobody takes our output the agents keep theirs, until we are killing: then it may grow by what they
  // hold.
  const bool is_held = output_.is_full() && force_at_ == 0;
  for (HostLink& link : links_) {
    if (is_held) link.set_last_heard(monotonic_now());
    if (link.is_open() && !is_held)
      watch(link.out(), POLLIN,
            [&] { link.read_frames([&](const Frame& frame) { on_frame(link, frame); }); });
    if (link.err() >= 0)
      watch(link.err(), POLLIN, [&] {
        const std::string lines = link.read_errors();
        if (has_started_ && !has_failed_to_start_) say_lines(link.host(), lines);
      });
    if (link.wants_to_write()) watch(link.in(), POLLOUT, [&] { link.flush(); });
  }
  for (Console* console : {&output_.out(), &output_.err()})
    if (!console->is_empty()) watch(console->fd(), POLLOUT, [=] { console->flush(); });
  if (poll(fds.data(), fds.size(), Deadline::at(next_wake(monotonic_now())).timeout_ms()) > 0)
    for (size_t i = 0; i < fds.size(); ++i)
      if (fds[i].revents != 0) actions[i]();
  tick(monotonic_now());
}

void JobRunner::say_lines(const std::string& host, std::string_view lines) {
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    output_.say(fmt::format("[{}] {}\n", host, line));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
  }
}

Nanos JobRunner::next_wake(Nanos now) const {
  Nanos wake = now + kPingInterval;
  for (const Nanos at : {stop_at_, kill_at_, force_at_, give_up_at_, next_ping_})
    if (at != 0) wake = std::min(wake, at);
  return wake;
}

void JobRunner::tick(Nanos now) {
  if (!has_started_) start_when_ready();
  check_links(now);
  if (now >= next_ping_) {
    broadcast(FrameType::kPing);
    next_ping_ = now + kPingInterval;
  }
  if (stop_at_ != 0 && now >= stop_at_) {
    stop_at_ = 0;
    ByteWriter writer;
    writer.put(from_seconds(options_.grace_s) / kMillisecond);
    broadcast(FrameType::kStop, writer.bytes());
    kill_at_ = now + from_seconds(options_.grace_s) + kSecond;  // the agents do it themselves a second before
  }
  if (kill_at_ != 0 && now >= kill_at_) kill_all(now);
  if (force_at_ != 0 && now >= force_at_) force_end(now);
  if (give_up_at_ != 0 && now >= give_up_at_)
    for (HostLink& link : links_) link.close("it could not be ended");
}

void JobRunner::force_end(Nanos now) {
  force_at_ = now + kForceAfter;
  for (HostLink& link : links_) {
    const bool is_silent = link.is_remote() && now - link.last_heard() > kSilence;
    link.kill_agent(is_silent ? unreachable(link, now) : "it could not be ended");
  }
}

std::string JobRunner::unreachable(const HostLink& link, Nanos now) const {
  return fmt::format("{} cannot be reached: nothing was heard from its agent for {} s", link.host(),
                     (now - link.last_heard()) / kSecond);
}

void JobRunner::check_links(Nanos now) {
  for (HostLink& link : links_) {
    if (link.pid() == 0 || (link.is_reaped() && !link.is_open())) continue;
    const Nanos silence = now - link.last_heard();
    if (link.has_said_bye) {
      if (silence > kReapLimit) link.signal(SIGKILL);
    } else if (link.is_remote() && has_started_ && silence > from_seconds(options_.agent_timeout_s)) {
      link.close(unreachable(link, now));
      link.signal(SIGKILL);
    }
  }
  for (HostLink& link : links_)
    if (link.is_lost() && has_started_ && !has_failed_to_start_) lose_host(link, now);
}

// A host that fell silent was lost when it was last heard. Where nothing came from it since the first failure
// was learnt, it is no victim of the stop but what the others failed of.
void JobRunner::lose_host(HostLink& link, Nanos now) {
  const bool was_silent = now - link.last_heard() > kSilence;
  const bool is_stopping = kill_at_ != 0 || force_at_ != 0;
  const bool was_cut_off = was_silent && is_stopping && link.last_heard() < stop_began_;
  bool is_news = false;
  for (const Placement& place : placements_) {
    std::optional<Ending>& ending = endings_[static_cast<size_t>(place.rank)];
    if (&links_[static_cast<size_t>(place.host)] != &link || ending) continue;
    ending = Ending{.rank = place.rank,
                    .host = link.host(),
                    .pid = pids_[static_cast<size_t>(place.rank)],
                    .at = (was_silent ? link.last_heard() : now) - started_,
                    .was_stopped = interrupt_ != 0 || (is_stopping && !was_cut_off),
                    .trouble = fmt::format("was lost with its host: {}", link.lost_because())};
    is_news = true;
  }
  if (!is_news) return;
  if (!link.is_remote()) {
    // Guardian and worker are both dead: what they left behind became ours.
    const bool is_last =
        std::ranges::all_of(links_, [](const HostLink& l) { return l.is_remote() || l.is_reaped(); });
    std::error_code ignored;
    const std::string left = link.hello ? link.hello->private_dir : "";
    if (is_private_dir_name(left)) std::filesystem::remove_all(left, ignored);
    if (is_last) kill_descendants(Deadline::after(2 * kSecond), link.started_ticks, "ssh");
  }
  schedule_stop(now);
}

void JobRunner::reap() {
  int status = 0;
  for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto link = std::ranges::find(links_, pid, &HostLink::pid);
    if (link != links_.end()) link->on_reaped(status);
  }
}

void JobRunner::on_frame(HostLink& link, const Frame& frame) {
  ByteReader reader(frame.payload);
  switch (frame.type) {
    case FrameType::kHello: {
      Result<Hello> hello = decode_hello(frame.payload);
      if (!hello.is_ok()) return link.close(hello.status().why);
      link.hello = std::move(hello.value());
      return;
    }
    case FrameType::kPong:
      return link.note_clock(reader.get<Nanos>(), monotonic_now());
    case FrameType::kBye:
      link.has_said_bye = true;
      return;
    case FrameType::kExit: {
      Result<Exit> exit = decode_exit(frame.payload);
      if (!exit.is_ok()) return link.close(exit.status().why);
      return on_exit(link, std::move(exit.value()));
    }
    default:
      break;
  }
  const auto rank = reader.get<int32_t>();
  if (!reader.is_ok() || rank < 0 || rank >= options_.size)
    return link.close("its agent sent a malformed frame");
  if (frame.type == FrameType::kStarted) {
    pids_[static_cast<size_t>(rank)] = reader.get<int32_t>();
    if (options_.is_verbose)
      say(fmt::format("rank {} started on {} as pid {}", rank, link.host(),
                      pids_[static_cast<size_t>(rank)]));
  } else if (frame.type == FrameType::kOutput) {
    const auto stream = reader.get<Stream>();
    output_.feed(rank, stream == Stream::kStdout ? Stream::kStdout : Stream::kStderr,
                 as_text(std::span(frame.payload).subspan(sizeof rank + sizeof stream)));
  } else if (frame.type == FrameType::kFile) {
    collect(rank, std::span(frame.payload).subspan(sizeof rank));
  }
}

void JobRunner::on_exit(HostLink& link, Exit exit) {
  if (exit.rank < 0 || exit.rank >= options_.size) return link.close("its agent sent a malformed frame");
  Ending ending{.rank = exit.rank,
                .host = link.host(),
                .pid = exit.pid,
                .exit_code = exit.exit_code,
                .signal = exit.signal,
                .at = link.to_our_clock(exit.at) - started_,
                .was_stopped = exit.was_stopped != 0 || interrupt_ != 0,
                .trouble = std::move(exit.trouble)};
  if (exit.was_out_of_memory >= 0) ending.was_out_of_memory = exit.was_out_of_memory != 0;
  const bool is_failure = ending.is_failure();
  if (options_.output.style.kind == PrefixStyle::Kind::kHorovod && is_failure)
    output_.say(fmt::format("Process {} exit with status code {}.\n", exit.rank, exit_status(ending)));
  endings_[static_cast<size_t>(exit.rank)] = std::move(ending);
  if (is_failure) schedule_stop(monotonic_now());
}

void JobRunner::schedule_stop(Nanos now) {
  if (interrupt_ != 0 || stop_at_ != 0 || kill_at_ != 0 || force_at_ != 0) return;
  stop_began_ = now;
  stop_at_ = now + kOthersGrace;
  const auto running = std::ranges::count_if(endings_, [](const auto& ending) { return !ending; });
  if (running == 0) return;
  const auto failed = std::ranges::find_if(endings_, [](const auto& e) { return e && e->is_failure(); });
  const Rank rank = (*failed)->rank;
  if (options_.output.style.kind == PrefixStyle::Kind::kHorovod)
    output_.say(fmt::format("Terminating remaining workers after failure of Process {}.\n", rank));
  else
    say(fmt::format("rank {} failed; the other {} running have {} s to end by themselves", rank, running,
                    kOthersGrace / kSecond));
}

void JobRunner::collect(Rank rank, std::span<const std::byte> bytes) {
  if (options_.collect_dir.empty()) return;
  const std::string path = fmt::format("{}/result.{}", options_.collect_dir, rank);
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const ssize_t written = write(file.get(), bytes.data(), bytes.size());
  if (written != std::ssize(bytes)) say(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
}

void JobRunner::read_signals() {
  signalfd_siginfo info{};
  while (read(signals_.get(), &info, sizeof info) == sizeof info)
    if (info.ssi_signo != SIGCHLD) on_signal(static_cast<int>(info.ssi_signo));
  reap();
}

void JobRunner::read_stdin() {
  std::array<char, 256> ignored;
  const ssize_t size = read(STDIN_FILENO, ignored.data(), ignored.size());
  if (size > 0 || (size < 0 && (errno == EAGAIN || errno == EINTR))) return;
  options_.is_stdin_watched = false;
  is_orphaned_ = true;
  if (interrupt_ == 0) on_signal(SIGTERM);
}

void JobRunner::on_signal(int signal) {
  const Nanos now = monotonic_now();
  ByteWriter writer;
  writer.put(static_cast<int32_t>(signal));
  if (signal == SIGTSTP) return suspend();
  if (signal == SIGUSR1 || signal == SIGUSR2) return broadcast(FrameType::kSignal, writer.bytes());
  if (interrupt_ != 0) {
    say("killing the ranks now");
    return kill_all(now);
  }
  interrupt_ = signal;
  if (!has_started_) return fail_start({Code::kShutDown, "interrupted before the ranks were started"});
  say(fmt::format("{}: passed on to the ranks, which have {} s to end ({} again kills them now)",
                  signal_name(signal), options_.grace_s, signal == SIGINT ? "Ctrl-C" : "the signal"));
  stop_at_ = 0;
  if (signal == SIGINT) {
    broadcast(FrameType::kSignal, writer.bytes());
    kill_at_ = now + std::max<Nanos>(from_seconds(options_.grace_s), 1);
  } else {
    stop_at_ = now;  // tick() sends it
  }
}

// Ctrl-Z: the ranks stop with us, and their agents do not take our silence for death.
void JobRunner::suspend() {
  const auto tell = [this](uint8_t is_held, int32_t signal) {
    ByteWriter hold;
    hold.put(is_held);
    ByteWriter rank_signal;
    rank_signal.put(signal);
    broadcast(FrameType::kHold, hold.bytes());
    broadcast(FrameType::kSignal, rank_signal.bytes());
  };
  tell(1, SIGSTOP);
  kill(getpid(), SIGSTOP);
  tell(0, SIGCONT);
  for (HostLink& link : links_) link.set_last_heard(monotonic_now());
}

void JobRunner::broadcast(FrameType type, std::span<const std::byte> payload) {
  for (HostLink& link : links_)
    if (!link.has_said_bye) link.send(type, payload);
}

void JobRunner::kill_all(Nanos now) {
  broadcast(FrameType::kKill);
  stop_at_ = kill_at_ = 0;
  if (force_at_ != 0) return;
  force_at_ = now + kForceAfter;
  give_up_at_ = now + 2 * kForceAfter;
}

bool JobRunner::is_over() const {
  return std::ranges::all_of(links_, [](const HostLink& link) {
    return link.pid() == 0 || (link.is_reaped() && (link.has_said_bye || !link.is_open()));
  });
}

int JobRunner::finish() {
  for (HostLink& link : links_)
    if (link.is_open()) link.read_frames([&](const Frame& frame) { on_frame(link, frame); });
  store_.reset();
  int status = 1;
  if (has_started_ && !has_failed_to_start_) {
    std::vector<Ending> endings;
    for (Rank rank = 0; rank < options_.size; ++rank) {
      output_.finish(rank);
      std::optional<Ending>& ending = endings_[static_cast<size_t>(rank)];
      if (!ending) continue;
      ending->last_lines = output_.last_lines(rank, Stream::kStderr);
      ending->log_path = output_.log(rank, Stream::kStderr);
      if (ending->last_lines.empty()) {
        ending->last_lines = output_.last_lines(rank, Stream::kStdout);
        ending->log_path = output_.log(rank, Stream::kStdout);
        ending->stream = "stdout";
      }
      endings.push_back(std::move(*ending));
    }
    output_.say(failure_report(endings, interrupt_));
    status = job_exit_status(endings, interrupt_);
    const std::optional<size_t> cause = first_cause(endings);
    if (cause && !options_.collect_dir.empty())
      std::ofstream(options_.collect_dir + "/failure")
          << endings[*cause].rank << ' ' << exit_status(endings[*cause]);
    if (cause && options_.output.style.kind == PrefixStyle::Kind::kHorovod)
      output_.say(
          fmt::format("Horovod detected that one or more processes exited with non-zero status, thus causing "
                      "the job to be terminated. The first process to do so was:\nProcess name: {}\nExit "
                      "code: {}\n",
                      endings[*cause].rank, exit_status(endings[*cause])));
  } else if (interrupt_ != 0) {
    status = 128 + interrupt_;
  }
  // Nobody is left to read the results and remove them. The name is that of rueda.run's own directories.
  const std::filesystem::path results(options_.collect_dir);
  std::error_code ignored;
  if (is_orphaned_ && results.filename().string().starts_with("rueda-run-"))
    std::filesystem::remove_all(results, ignored);
  // From here Ctrl-C has its usual meaning, so that a sleeping pager cannot hold us.
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  output_.out().finish();
  if (const int error = output_.out().error(); error != 0) {
    say(fmt::format("cannot write the ranks' output to stdout: {}", std::strerror(error)));
    if (status == 0) status = 1;
  }
  if (status == 0 && output_.has_lost_logs()) status = 1;
  output_.err().finish();
  return status;
}

}  // namespace rueda::launch
