// The beginning of a job: agents, store, ranks.
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "launch/job_runner.h"
#include "launch/processes.h"
#include "rueda/base/limits.h"
#include "rueda/base/release.h"
#include "rueda/store/world.h"

extern char** environ;

namespace rueda::launch {
namespace {

constexpr Nanos kNoticeInterval = 5 * kSecond;  // between lines that name the hosts still waited for

std::string to_hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
}

// Public: it appears in messages and in names of shared memory.
std::string make_job_id() {
  std::array<std::byte, 8> random{};
  const ssize_t size = getrandom(random.data(), random.size(), 0);
  RUEDA_CHECK(size == std::ssize(random), "the kernel gives eight random bytes");
  return "job-" + to_hex(random);
}

// Field of "client port server port".
std::string ssh_field(const std::optional<Hello>& hello, int index) {
  if (!hello) return {};
  std::string_view text = hello->ssh_connection;
  for (; index > 0 && !text.empty(); --index) text.remove_prefix(std::min(text.size(), text.find(' ') + 1));
  return std::string(text.substr(0, text.find(' ')));
}

UniqueFd watch_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP}) {
    struct sigaction current {};
    sigaction(signal, nullptr, &current);
    const bool is_ignored = current.sa_handler == SIG_IGN;  // nohup and background jobs of plain shells
    if (signal == SIGCHLD || !is_ignored) sigaddset(&signals, signal);
  }
  signal(SIGCHLD, SIG_DFL);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // beyond ulimit -f, write() says so in an errno
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  return UniqueFd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

}  // namespace

JobRunner::JobRunner(RunOptions options)
    : options_(std::move(options)),
      output_(options_.output, options_.size),
      endings_(static_cast<size_t>(options_.size)),
      pids_(static_cast<size_t>(options_.size), 0) {}

Status JobRunner::prepare() {
  began_ = monotonic_now();
  Result<std::vector<Placement>> placements = place_ranks(options_.hosts, options_.size);
  if (!placements.is_ok()) return placements.status();
  placements_ = std::move(placements.value());
  Result<Secret> secret = make_secret();
  if (!secret.is_ok()) return secret.status();
  secret_ = std::move(secret.value());
  job_id_ = make_job_id();
  if (Status files = output_.open_files(); !files.is_ok()) return files;
  for (const Placement& place : placements_)
    output_.name_host(place.rank, options_.hosts[static_cast<size_t>(place.host)].name);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  signals_ = watch_signals();
  return start_agents();
}

Status JobRunner::start_agents() {
  const int hosts_used = placements_.back().host + 1;  // filled in order, so those with ranks come first
  for (int host = 0; host < hosts_used; ++host) {
    const std::string& name = options_.hosts[static_cast<size_t>(host)].name;
    links_.emplace_back(name, !is_this_machine(name));
  }
  for (HostLink& link : links_) {
    Result<AgentProcess> agent = start_agent(link);
    if (!agent.is_ok())
      return {agent.status().code,
              fmt::format("cannot start the agent of {}: {}", link.host(), agent.status().why)};
    link.started_ticks = start_ticks(agent.value().pid);
    link.attach(std::move(agent.value()));
    if (options_.is_verbose)
      say(fmt::format("starting the agent of {} {}", link.host(), link.is_remote() ? "through ssh" : "here"));
  }
  return Status::ok();
}

Result<AgentProcess> JobRunner::start_agent(const HostLink& link) {
  if (!link.is_remote()) return start_local_agent();
  SshOptions ssh = options_.ssh;
  ssh.connect_timeout_s = std::max(1, static_cast<int>(std::ceil(options_.start_timeout_s)));
  return start_ssh_agent(ssh, link.host(), options_.binary);
}

void JobRunner::start_when_ready() {
  if (has_failed_to_start_) return;
  for (const HostLink& link : links_) {
    if (link.is_lost())
      return fail_start(
          {Code::kUnavailable, fmt::format("cannot start the job: the agent of {} is missing: {}",
                                           link.host(), link.lost_because())});
    if (link.hello && (link.hello->release != kRelease || link.hello->protocol != kProtocol))
      return fail_start(
          {Code::kPermissionDenied,
           fmt::format("{} runs release {} of rueda but this is {}; install the same on all hosts",
                       link.host(), link.hello->release, kRelease)});
  }
  if (!std::ranges::all_of(links_, [](const HostLink& link) { return link.hello.has_value(); })) {
    const Nanos waited = monotonic_now() - began_;
    std::string missing;
    for (const HostLink& link : links_)
      if (!link.hello) missing += (missing.empty() ? "" : ", ") + link.host();
    if (waited >= next_notice_) {
      say(fmt::format("still waiting for {} after {} s", missing, waited / kSecond));
      next_notice_ = waited + kNoticeInterval;
    }
    if (waited < static_cast<Nanos>(options_.start_timeout_s * kSecond)) return;
    return fail_start(
        {Code::kTimeout,
         fmt::format("no answer within {} s from the agent of {}; check that `ssh {} true` works without "
                     "a question, or raise --start-timeout",
                     options_.start_timeout_s, missing, missing.substr(0, missing.find(',')))});
  }
  if (Status started = start_ranks(); !started.is_ok()) fail_start(started);
}

Result<std::string> JobRunner::choose_store_address() const {
  const auto remote = std::ranges::find_if(links_, &HostLink::is_remote);
  const std::string interfaces = options_.tuning.network_interface.value_or("");
  const std::string interface = interfaces.substr(0, interfaces.find(','));
  if (remote == links_.end()) {
    if (interface.empty()) return std::string("127.0.0.1");
    return store::choose_address(interface, "127.0.0.1");
  }
  // The address the host itself saw us come from is one it can reach, unless there is a translation in
  // between.
  const std::string seen = ssh_field(remote->hello, 0);
  if (interface.empty() && !seen.empty() && is_own_address(seen)) return seen;
  const std::string there = ssh_field(remote->hello, 2);
  return store::choose_address(interface, there.empty() ? remote->host() : there);
}

Result<std::string> JobRunner::read_stage_file() const {
  if (options_.stage_file.empty()) return std::string();
  std::ifstream file(options_.stage_file, std::ios::binary);
  std::string stage{std::istreambuf_iterator<char>(file), {}};
  if (file && !stage.empty() && stage.size() <= kMaxFrameBytes / 2) return stage;
  return Status(Code::kUnavailable,
                fmt::format("cannot hand {} to the ranks: it is missing, empty or above {} MiB",
                            options_.stage_file, kMaxFrameBytes / 2 >> 20));
}

Status JobRunner::start_ranks() {
  Result<std::string> address = choose_store_address();
  if (!address.is_ok()) return address.status();
  Result<std::unique_ptr<store::StoreServer>> store =
      store::serve_store(address.value(), 0, job_id_, secret_, kRelease);
  if (!store.is_ok()) return store.status();
  store_ = std::move(store.value());
  Result<std::string> stage = read_stage_file();
  if (!stage.is_ok()) return stage.status();
  std::array<char, 4096> cwd{};
  if (getcwd(cwd.data(), cwd.size()) == nullptr) return {Code::kUnavailable, "the current directory is gone"};
  const HostLink& first = links_.front();
  const std::string there = ssh_field(first.hello, 2);
  const Meeting meeting{.job = job_id_,
                        .store_url = store_->url(),
                        .master_addr = !first.is_remote() ? address.value()
                                       : there.empty()    ? first.host()
                                                          : there,
                        .master_port = first.hello->free_port};
  for (HostLink& link : links_) {
    const auto host = &link - links_.data();
    Job job{
        .argv = options_.command, .cwd = cwd.data(), .secret = to_hex(secret_.key), .stage = stage.value()};
    job.env = forwarded_environment(environ, link.is_remote());
    const Variables tuning = tuning_variables(options_.tuning);
    job.env.insert(job.env.end(), tuning.begin(), tuning.end());
    job.ping_timeout_ms = link.is_remote() ? static_cast<int32_t>(options_.agent_timeout_s * 1000) : 0;
    job.binds_cores = options_.binds_cores;
    for (const Placement& place : placements_)
      if (place.host == host)
        job.ranks.push_back({place.rank, rank_variables(place, options_.size, link.host(), meeting)});
    const Bytes payload = encode(job);
    if (payload.size() >= kMaxFrameBytes)
      return {Code::kInvalidArgument,
              "the environment and the command are too large to be handed to the ranks"};
    link.send(FrameType::kJob, payload);
  }
  has_started_ = true;
  started_ = monotonic_now();
  if (options_.is_verbose)
    say(fmt::format("{}: {} ranks on {} hosts, store {}", job_id_, options_.size, links_.size(),
                    meeting.store_url));
  return Status::ok();
}

void JobRunner::fail_start(const Status& why) {
  if (has_failed_to_start_) return;
  has_failed_to_start_ = true;
  has_started_ = true;  // nothing more is to be started
  say(why.why);
  for (HostLink& link : links_) {
    link.close("the job did not start");
    if (link.is_remote()) link.signal(SIGTERM);
  }
  force_at_ = monotonic_now() + kSecond;
  give_up_at_ = force_at_ + 2 * kSecond;
}

}  // namespace rueda::launch
