#include "launch/agent_loop.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "launch/agent_hello.h"
#include "launch/poll_set.h"
#include "launch/processes.h"
#include "launch/rank_files.h"
#include "launch/rank_metrics.h"
#include "rueda/base/counted.h"
#include "rueda/status/folder.h"
#include "rueda/status/stop_file.h"

extern char** environ;

namespace rueda::launch {
namespace {

constexpr size_t kMaxQueuedBytes = 4 << 20;  // then the pipes of the ranks are not read, so the ranks wait
constexpr Nanos kPongInterval = kSecond;
constexpr Nanos kMetricsInterval = 30 * kSecond;
constexpr Nanos kLostLauncherGrace = kSecond;  // for a rank's own clean-up; everything is gone within 5 s
constexpr Nanos kBoardTick = 2 * kMillisecond;
constexpr Nanos kSweepTick = 20 * kMillisecond;
constexpr Nanos kStartTurn = 50 * kMillisecond;  // time for starting ranks before the launcher is heard again

std::string value_of(const Variables& variables, std::string_view name) {
  for (auto entry = variables.rbegin(); entry != variables.rend(); ++entry)
    if (entry->first == name) return entry->second;
  return {};
}

Status write_file(const std::string& path, std::string_view text) {
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.is_open() || write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return {Code::kUnavailable, fmt::format("cannot write {}: {}{}", path, std::strerror(errno),
                                            errno == EFBIG ? "; raise ulimit -f" : "")};
  return Status::ok();
}

void warn_launcher(const std::string& what) {
  const std::string text = fmt::format("rueda agent: {}\n", what);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

Status write_private_files(const std::string& folder, const Job& job) {
  if (Status status = write_file(folder + "/secret", job.secret); !status.is_ok()) return status;
  return job.stage.empty() ? Status::ok() : write_file(folder + "/stage", job.stage);
}

// What the environments of all ranks have in common.
Variables common_variables(const Job& job, const std::string& folder, bool has_joined) {
  Variables common;
  for (const char* const* entry = environ; *entry != nullptr; ++entry)
    if (const char* equals = std::strchr(*entry, '=')) {
      const std::string name(static_cast<const char*>(*entry), equals);
      if (is_kept_by_agent(name, has_joined)) common.emplace_back(name, equals + 1);
    }
  common.insert(common.end(), job.env.begin(), job.env.end());
  common.emplace_back("RUEDA_SECRET_FILE", folder + "/secret");
  common.emplace_back(status::kNewsVariable, folder + "/news");
  if (!job.stage.empty()) common.emplace_back("RUEDA_STAGE_DIR", folder);
  return common;
}

// out, err: where the output of the rank can be read.
Result<pid_t> spawn_with_pipes(const Job& job, const Variables& variables, std::vector<int> cores,
                               UniqueFd& out, UniqueFd& err) {
  Result<std::string> path = find_program(job.argv.front(), value_of(variables, "PATH"), job.cwd);
  if (!path.is_ok()) return path.status();
  Result<Pipe> output = make_pipe();
  Result<Pipe> errors = make_pipe();
  const UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!output.is_ok()) return output.status();
  if (!errors.is_ok()) return errors.status();
  Result<pid_t> pid = spawn({.path = path.value(),
                             .argv = job.argv,
                             .env = to_environment(variables),
                             .cwd = job.cwd,
                             .in = null.get(),
                             .out = output.value().write.get(),
                             .err = errors.value().write.get(),
                             .death_signal = SIGKILL,
                             .cores = std::move(cores)});
  if (!pid.is_ok()) return pid;
  out = std::move(output.value().read);
  err = std::move(errors.value().read);
  set_nonblocking(out.get());
  set_nonblocking(err.get());
  return pid;
}

}  // namespace

AgentLoop::AgentLoop(Self self, pid_t guardian, UniqueFd signals)
    : release_(std::move(self.release)),
      private_dir_(std::move(self.private_dir)),
      joining_(std::move(self.joining)),
      guardian_(guardian),
      signals_(std::move(signals)),
      out_(kMaxQueuedBytes),
      branches_([this](MessageType type, std::span<const std::byte> payload) { send(type, payload); }) {}

int AgentLoop::run() {
  set_nonblocking(STDIN_FILENO);
  set_nonblocking(STDOUT_FILENO);
  last_heard_ = monotonic_now();
  say_hello();
  while (!is_finished()) step();
  return is_launcher_lost_ ? 1 : 0;
}

bool AgentLoop::is_finished() const {
  if (is_launcher_lost_) return leftovers_.are_over();
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
  const auto pass = [this](MessageType type, std::span<const std::byte> payload) { send(type, payload); };
  if (!out_.is_full() || is_launcher_lost_)
    for (RankProcess& rank : ranks_)
      for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
        UniqueFd& fd = stream == Stream::kStdout ? rank.out : rank.err;
        if (fd.is_open())
          set.watch(fd.get(), POLLIN, [&rank, &fd, stream, &pass] {
            if (!pass_output(rank, stream, pass)) fd.reset();
          });
      }
  branches_.watch(set, !out_.is_full());
  if (query_) query_->watch(set);
  Nanos wake = std::max<Nanos>(next_pong_, 1);
  if (query_) wake = std::min(wake, query_->until());
  if (kill_at_ != 0) wake = std::min(wake, kill_at_);
  if (leftovers_.are_ending()) wake = monotonic_now() + kSweepTick;
  if (boards_.are_awaited()) wake = std::min(wake, monotonic_now() + kBoardTick);
  if (is_starting()) wake = 1;
  set.wait(Deadline::at(wake));
  tick(monotonic_now());
}

void AgentLoop::tick(Nanos now) {
  if (now >= next_pong_) {
    ByteWriter writer;
    writer.put(now);
    if (!out_.is_full()) send(MessageType::kPong, writer.bytes());
    look_at_ranks();
    next_pong_ = now + kPongInterval;
  }
  if (is_held_) last_heard_ = now;
  if (job_ && job_->ping_timeout_ms > 0 && now - last_heard_ > job_->ping_timeout_ms * kMillisecond)
    lose_launcher("the launcher has been silent for too long");
  if (getppid() != guardian_) lose_launcher("the guardian of this agent was killed");
  if (kill_at_ != 0 && now >= kill_at_) kill_ranks();
  if (query_ && query_->is_done(now)) {
    send(MessageType::kAnswer, query_->answer());
    query_.reset();
  }
  send_all_metrics(now);
  for (const BoardReport& report : boards_.answers(now)) send(MessageType::kBoard, encode(report));
  for (const int32_t number : boards_.leaving()) {
    ByteWriter writer;
    writer.put(number);
    send(MessageType::kLeave, writer.bytes());
  }
  start_ranks();
  if ((job_ && have_all_ended()) || (!job_ && is_launcher_lost_)) sweep(now);
}

void AgentLoop::send_all_metrics(Nanos now) {
  if (!job_ || !job_->collects_metrics || now < next_metrics_ || out_.is_full()) return;
  if (next_metrics_ != 0)
    for (const RankProcess& rank : ranks_)
      if (!rank.has_ended)
        send_metrics(private_dir_, rank.job.rank, [this](auto type, auto payload) { send(type, payload); });
  next_metrics_ = now + kMetricsInterval;
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
    case MessageType::kJob: {
      Result<Job> job = decode_job(message.payload);
      if (!job.is_ok() || job_) return lose_launcher("the launcher sent a malformed or a second job");
      return start_job(std::move(job).value());
    }
    case MessageType::kStartRank:
    case MessageType::kEndRank:
    case MessageType::kViewChange:
      return on_elastic_message(message);
    case MessageType::kSignal:
      return on_launcher_signal(reader.get<int32_t>());
    case MessageType::kSignalled:
      return on_signal_elsewhere(reader.get<int32_t>());
    case MessageType::kStop:
      return stop(reader.get<int64_t>() * kMillisecond, SIGTERM);
    case MessageType::kKill:
      return kill_ranks();
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

void AgentLoop::begin_query(const AgentMessage& message) {
  Result<Question> question = decode_question(message.payload);
  if (!question.is_ok()) return lose_launcher(question.status().why);
  std::vector<RankHere> ranks;
  const bool is_elastic = job_ && job_->is_elastic;
  for (const RankProcess& one : ranks_)
    if (!is_elastic || !one.has_ended)  // the others belong to no view
      ranks.push_back({.rank = one.job.rank, .pid = one.pid, .has_ended = one.has_ended});
  const std::string folder = status::folder_path(value_of(common_, "XDG_RUNTIME_DIR"));
  query_ = std::make_unique<RankStatusQuery>(std::move(question).value(), folder, ranks, monotonic_now());
}

// From now on nothing is reported, and all ranks are ended.
void AgentLoop::lose_launcher(const std::string& why) {
  if (is_launcher_lost_) return;
  is_launcher_lost_ = true;
  out_.clear();
  branches_.close();
  if (!have_all_ended()) warn_launcher(why + "; the ranks of this host are being ended");
  // The scheduler has told how long the ranks have.
  if (!keeps_grace_ || getppid() != guardian_) return stop(kLostLauncherGrace, SIGTERM);
  if (!is_stopping_) stop(job_->grace_ms * kMillisecond, end_signal_);
}

void AgentLoop::on_refused(std::string_view why) {
  warn_launcher(std::string(why));
  lose_launcher("the launcher has refused this agent");
}

void AgentLoop::start_job(Job job) {
  job_ = std::move(job);
  if (joining_) job_->secret = to_hex(joining_->secret);
  oom_kills_ = oom_kills();
  for (RankJob& rank : job_->ranks) ranks_.push_back({.job = std::move(rank)});
  if (const Status files = write_private_files(private_dir_, *job_); !files.is_ok())
    return leave_unstarted(
        {.exit_code = exit_code_of(files), .trouble = "could not be started: " + files.why});
  common_ = common_variables(*job_, private_dir_, joining_.has_value());
  common_.emplace_back(status::kStopFileVariable, stop_file());
  const std::vector<int> cpus = usable_cpus();
  const size_t count = std::max<size_t>(1, ranks_.size());
  if (value_of(common_, "OMP_NUM_THREADS").empty())
    common_.emplace_back("OMP_NUM_THREADS", std::to_string(std::max<size_t>(1, cpus.size() / count)));
  if (job_->binds_cores) cores_ = physical_cores(cpus);
  if (job_->binds_cores && cpus.size() < count)
    warn_launcher(fmt::format("this host has {} for {}, too few for one each, so no rank is bound to cores",
                              counted(std::ssize(cpus), "CPU"),
                              counted(static_cast<int64_t>(count), "rank")));
}

// Starts as many ranks as one turn of the loop allows. Between turns the loop hears the launcher, which may
// have stopped the job.
void AgentLoop::start_ranks() {
  const Deadline turn = Deadline::after(kStartTurn);
  while (is_starting() && !turn.is_past()) start_rank(next_start_++);
}

void AgentLoop::start_rank(size_t index) {
  RankProcess& rank = ranks_[index];
  std::vector<int> bound;
  if (job_->binds_cores) bound = share_of(cores_, ranks_.size(), index);
  const Result<pid_t> pid = spawn_rank(rank, std::move(bound));
  if (!pid.is_ok())
    return report_unstarted(rank, {.exit_code = exit_code_of(pid.status()),
                                   .trouble = "could not be started: " + pid.status().why});
  rank.pid = pid.value();
  ByteWriter writer;
  writer.put(rank.job.rank);
  writer.put(static_cast<int32_t>(rank.pid));
  send(MessageType::kStarted, writer.bytes());
}

void AgentLoop::report_unstarted(RankProcess& rank, Exit why) {
  rank.has_ended = true;
  why.rank = rank.job.rank;
  why.at = monotonic_now();
  send(MessageType::kExit, encode(why));
}

void AgentLoop::leave_unstarted(const Exit& why) {
  while (next_start_ < ranks_.size()) report_unstarted(ranks_[next_start_++], why);
}

Result<pid_t> AgentLoop::spawn_rank(RankProcess& rank, std::vector<int> cores) {
  Variables variables = common_;
  variables.insert(variables.end(), rank.job.env.begin(), rank.job.env.end());
  if (job_->collects_metrics && value_of(variables, kMetricsVariable).empty())
    variables.emplace_back(kMetricsVariable, metrics_path(private_dir_, rank.job.rank));
  if (job_->is_elastic) {  // without a board the process takes no part in changes, and joiners wait
    Result<Variables> board = boards_.make(rank.job.rank, private_dir_);
    if (board.is_ok())
      variables.insert(variables.end(), board.value().begin(), board.value().end());
    else
      warn_launcher(board.status().why);
  }
  return spawn_with_pipes(*job_, variables, std::move(cores), rank.out, rank.err);
}

}  // namespace rueda::launch
