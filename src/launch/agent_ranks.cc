#include "launch/agent_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "launch/outside_signals.h"
#include "launch/processes.h"
#include "launch/rank_files.h"
#include "launch/rank_metrics.h"
#include "launch/warning.h"
#include "rueda/base/counted.h"
#include "rueda/status/folder.h"
#include "rueda/status/job_news.h"
#include "rueda/status/stop_file.h"

extern char** environ;

namespace rueda::launch {
namespace {

constexpr Nanos kMetricsInterval = 30 * kSecond;
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

// What a rank of an elastic job has left in its process group would use the memory and the devices that its
// successor needs.
void end_group(pid_t rank) {
  for (const pid_t pid : descendants_of(getpid()))
    if (getpgid(pid) == rank) kill(pid, SIGKILL);
}

}  // namespace

AgentRanks::AgentRanks(std::string folder, SendMessage send)
    : folder_(std::move(folder)), send_(std::move(send)) {}

void AgentRanks::begin(Job job, bool has_joined) {
  job_ = std::move(job);
  oom_kills_ = oom_kills();
  for (RankJob& rank : job_->ranks) ranks_.push_back({.job = std::move(rank)});
  if (const Status files = write_private_files(folder_, *job_); !files.is_ok())
    return leave_unstarted(
        {.exit_code = exit_code_of(files), .trouble = "could not be started: " + files.why});
  common_ = common_variables(*job_, folder_, has_joined);
  common_.emplace_back(status::kStopFileVariable, stop_file());
  const std::vector<int> cpus = usable_cpus();
  const size_t count = std::max<size_t>(1, ranks_.size());
  if (value_of(common_, "OMP_NUM_THREADS").empty())
    common_.emplace_back("OMP_NUM_THREADS", std::to_string(std::max<size_t>(1, cpus.size() / count)));
  if (job_->binds_cores) cores_ = physical_cores(cpus);
  if (job_->binds_cores && cpus.size() < count)
    warn("agent",
         fmt::format("this host has {} for {}, too few for one each, so no rank is bound to cores",
                     counted(std::ssize(cpus), "CPU"), counted(static_cast<int64_t>(count), "rank")));
}

void AgentRanks::add(RankJob rank) {
  ranks_.push_back({.job = std::move(rank)});
  if (is_stopping_) leave_unstarted({.was_stopped = 1, .trouble = "stopped by rueda before its start"});
}

void AgentRanks::end(int32_t rank) {
  for (const RankProcess& one : ranks_)
    if (one.job.rank == rank && !one.has_ended && one.pid > 0) ::kill(-one.pid, SIGKILL);
}

void AgentRanks::write(const ViewChangeFor& change) {
  if (const auto report = boards_.write(change)) send_(MessageType::kBoard, encode(*report));
}

std::unique_ptr<RankStatusQuery> AgentRanks::ask(Question question) const {
  std::vector<RankHere> ranks;
  const bool is_elastic = job_ && job_->is_elastic;
  for (const RankProcess& one : ranks_)
    if (!is_elastic || !one.has_ended)  // the others belong to no view
      ranks.push_back({.rank = one.job.rank, .pid = one.pid, .has_ended = one.has_ended});
  const std::string folder = status::folder_path(value_of(common_, "XDG_RUNTIME_DIR"));
  return std::make_unique<RankStatusQuery>(std::move(question), folder, ranks, monotonic_now());
}

void AgentRanks::start_some() {
  const Deadline turn = Deadline::after(kStartTurn);
  while (are_starting() && !turn.is_past()) start(next_start_++);
}

void AgentRanks::start(size_t index) {
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
  send_(MessageType::kStarted, writer.bytes());
}

void AgentRanks::report_unstarted(RankProcess& rank, Exit why) {
  rank.has_ended = true;
  why.rank = rank.job.rank;
  why.at = monotonic_now();
  send_(MessageType::kExit, encode(why));
}

void AgentRanks::leave_unstarted(const Exit& why) {
  while (next_start_ < ranks_.size()) report_unstarted(ranks_[next_start_++], why);
}

Result<pid_t> AgentRanks::spawn_rank(RankProcess& rank, std::vector<int> cores) {
  Variables variables = common_;
  variables.insert(variables.end(), rank.job.env.begin(), rank.job.env.end());
  if (job_->collects_metrics && value_of(variables, kMetricsVariable).empty())
    variables.emplace_back(kMetricsVariable, metrics_path(folder_, rank.job.rank));
  if (job_->is_elastic) {  // without a board the process takes no part in changes, and joiners wait
    Result<Variables> board = boards_.make(rank.job.rank, folder_);
    if (board.is_ok())
      variables.insert(variables.end(), board.value().begin(), board.value().end());
    else
      warn("agent", board.status().why);
  }
  return spawn_with_pipes(*job_, variables, std::move(cores), rank.out, rank.err);
}

void AgentRanks::watch(PollSet& set) {
  for (RankProcess& rank : ranks_)
    for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
      UniqueFd& fd = stream == Stream::kStdout ? rank.out : rank.err;
      if (fd.is_open())
        set.watch(fd.get(), POLLIN, [this, &rank, &fd, stream] {
          if (!pass_output(rank, stream, send_)) fd.reset();
        });
    }
}

void AgentRanks::tick(Nanos now, bool can_send) {
  if (kill_at_ != 0 && now >= kill_at_) kill();
  if (can_send) send_all_metrics(now);
  for (const BoardReport& report : boards_.answers(now)) send_(MessageType::kBoard, encode(report));
  for (const int32_t number : boards_.leaving()) {
    ByteWriter writer;
    writer.put(number);
    send_(MessageType::kLeave, writer.bytes());
  }
}

std::optional<Nanos> AgentRanks::wake(Nanos now) const {
  std::optional<Nanos> at;
  const auto by = [&at](Nanos time) { at = std::min(at.value_or(time), time); };
  if (kill_at_ != 0) by(kill_at_);
  if (leftovers_.are_ending()) by(now + kSweepTick);
  if (boards_.are_awaited()) by(now + kBoardTick);
  return at;
}

void AgentRanks::send_all_metrics(Nanos now) {
  if (!job_ || !job_->collects_metrics || now < next_metrics_) return;
  if (next_metrics_ != 0)
    for (const RankProcess& rank : ranks_)
      if (!rank.has_ended) send_metrics(folder_, rank.job.rank, send_);
  next_metrics_ = now + kMetricsInterval;
}

void AgentRanks::look_at_processes() {
  std::vector<std::pair<Rank, pid_t>> running;
  for (const RankProcess& rank : ranks_)
    if (rank.pid != 0 && !rank.has_ended) running.emplace_back(rank.job.rank, rank.pid);
  if (const auto news = held_ranks_.look(running)) send_(MessageType::kHeld, status::encode(*news));
}

void AgentRanks::on_reaped(pid_t pid, int wait_status, Nanos now) {
  // The kernel may have given the pid of a rank that has ended to a rank that was started later.
  const auto rank = std::ranges::find_if(
      ranks_, [pid](const RankProcess& one) { return one.pid == pid && !one.has_ended; });
  if (rank != ranks_.end()) on_end(*rank, wait_status, now);
}

void AgentRanks::on_end(RankProcess& rank, int wait_status, Nanos now) {
  rank.has_ended = true;
  boards_.forget(rank.job.rank);
  if (job_->is_elastic) end_group(rank.pid);
  drain(rank, send_);  // its last output must be sent before its exit is reported
  if (!job_->stage.empty()) send_result_file(folder_, rank.job.rank, send_);
  if (job_->collects_metrics) send_metrics(folder_, rank.job.rank, send_);
  Exit exit;
  exit.rank = rank.job.rank;
  exit.pid = rank.pid;
  exit.at = now;
  exit.was_stopped = is_stopping_ ? 1 : 0;
  if (WIFSIGNALED(wait_status)) exit.signal = WTERMSIG(wait_status);
  if (WIFEXITED(wait_status)) exit.exit_code = WEXITSTATUS(wait_status);
  if (exit.signal == SIGKILL && !is_stopping_ && oom_kills_ >= 0)
    exit.was_out_of_memory = oom_kills() > oom_kills_ ? 1 : 0;
  send_(MessageType::kExit, encode(exit));
}

void AgentRanks::signal(int signal) {
  // Signals that end a rank go to its whole process group, as they do from a terminal, so that they reach a
  // program behind a wrapping shell. Signals that only inform go to the rank alone, because they would kill
  // its children, such as data loaders.
  if (signal == SIGINT || signal == SIGTERM || signal == SIGKILL) begin_end();
  for (const RankProcess& rank : ranks_)
    if (!rank.has_ended && rank.pid > 0) ::kill(informs_ranks(signal) ? rank.pid : -rank.pid, signal);
}

// The ranks are about to be told to end.
void AgentRanks::begin_end() {
  // Without the file, a rank that ends is taken for lost by those that end later, and they say so.
  const UniqueFd file(open(stop_file().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR));
  leave_unstarted({.was_stopped = 1, .trouble = "stopped by rueda before its start"});
}

void AgentRanks::stop(Nanos grace, int first) {
  const Nanos kill_at = monotonic_now() + std::max<Nanos>(grace, 1);
  kill_at_ = kill_at_ == 0 ? kill_at : std::min(kill_at_, kill_at);
  if (std::exchange(is_stopping_, true)) return;
  begin_end();
  if (first == 0) return;
  signal(first);
  signal(SIGCONT);  // a stopped process does not act on SIGTERM
}

void AgentRanks::kill() {
  is_stopping_ = true;
  kill_at_ = 0;
  signal(SIGKILL);
}

bool AgentRanks::have_all_ended() const {
  if (job_ && job_->is_elastic && !is_stopping_) return false;
  return std::ranges::all_of(ranks_, &RankProcess::has_ended);
}

bool AgentRanks::sweep(Nanos now, std::span<const pid_t> spared) {
  if (leftovers_.are_over() || !leftovers_.end(now, spared)) return false;
  for (RankProcess& rank : ranks_) {
    drain(rank, send_);
    rank.out.reset();
    rank.err.reset();
  }
  return true;
}

}  // namespace rueda::launch
