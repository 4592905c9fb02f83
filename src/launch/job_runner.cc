#include "launch/job_runner.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <utility>
#include <variant>

#include "launch/job_end.h"
#include "launch/notices.h"
#include "launch/private_dir.h"
#include "launch/processes.h"
#include "rueda/base/counted.h"
#include "rueda/status/folder.h"
#include "rueda/store/ended.h"

namespace rueda::launch {
namespace {

void say_lines(RankOutput& output, const std::string& host, std::string_view lines) {
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    output.say(fmt::format("[{}] {}\n", host, line));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
  }
}

// Guardian and worker of this machine are both dead.
void clean_up_here(const HostLink& link, bool are_local_gone) {
  // Their remaining descendants are now ours.
  if (are_local_gone)
    kill_descendants(Deadline::after(2 * kSecond), link.process().started_ticks, kReachOtherHosts);
  const std::string left = link.hello() ? link.hello()->private_dir : "";
  if (is_private_dir_name(left)) remove_private_dir(left);
}

}  // namespace

JobRunner::JobRunner(RunOptions options)
    : options_(std::move(options)),
      output_(options_.output, options_.size),
      results_(options_.collect_dir),
      handlers_{.on_rank_message = [this](HostLink& link,
                                          const AgentMessage& message) { on_rank_message(link, message); },
                .on_errors =
                    [this](const HostLink& link, std::string_view lines) {
                      // Of an agent that never came, it is said when it is known to have ended.
                      const bool is_in_words = elastic_ != nullptr && !link.hello();
                      if (phase_ == Phase::kRunning && !is_in_words) say_lines(output_, link.host(), lines);
                    }},
      start_watch_(options_.start_timeout_s, output_.err().is_tty()),
      init_watch_(options_.size, output_.err().is_tty()),
      stop_plan_(nanos(options_.grace_s, kSecond)) {}

int JobRunner::run() {
  const Status ready = prepare();
  if (!ready.is_ok()) fail_start(ready);
  while (!agents_.are_over()) step();
  return finish();
}

TryEnd JobRunner::end() const {
  if (stop_plan_.interrupt() != 0) return TryEnd::kInterrupted;
  return phase_ == Phase::kRunning ? judge_end(deciding()) : TryEnd::kNotStarted;
}

Status JobRunner::prepare() {
  began_ = monotonic_now();
  Result<JobIdentity> identity = make_identity(options_.elastic.secret_file);
  if (!identity.is_ok()) return identity.status();
  identity_ = std::move(identity.value());
  if (Status opened = open_door(); !opened.is_ok()) return opened;
  Result<std::vector<Placement>> placements = place_ranks(options_.hosts, options_.size);
  if (!placements.is_ok()) return placements.status();
  ranks_ = JobRanks(std::move(placements.value()), options_.hosts);
  if (Status files = output_.open_files(); !files.is_ok()) return files;
  if (!options_.output.log_url.empty()) {
    const Deadline deadline = Deadline::after(nanos(options_.start_timeout_s, kSecond));
    const Status started =
        collector_.start(options_.output.log_dir, options_.output.log_url, options_.command, deadline);
    if (!started.is_ok()) return started;
  }
  for (Rank rank = 0; rank < options_.size; ++rank) output_.name_host(rank, ranks_.host_of(rank));
  if (options_.is_elastic())
    elastic_ =
        std::make_unique<ElasticHands>(JobParts{options_, agents_, ranks_, output_, start_, store_, door_});
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  signals_.block();
  return start_agents();
}

Status JobRunner::start_agents() {
  options_.ssh.connect_timeout_s = std::max(1, static_cast<int>(std::ceil(options_.start_timeout_s)));
  const size_t hosts = elastic_ ? options_.hosts.size() : static_cast<size_t>(ranks_.host_count());
  return agents_.start_all(std::span(options_.hosts).first(hosts), options_,
                           [this](const std::string& text) { say(text); });
}

void JobRunner::start_when_ready(Nanos now) {
  const StartWatch::Decision decision = start_watch_.decide(agents_.states(), now - began_);
  if (!decision.notice.empty()) output_.show_progress(decision.notice);
  if (decision.next == StartWatch::Decision::Next::kFail) return fail_start(decision.why);
  if (decision.next == StartWatch::Decision::Next::kWait) return;
  output_.end_progress();
  if (const Status started = start_ranks(); !started.is_ok()) fail_start(started);
}

Status JobRunner::start_ranks() {
  std::vector<HostLink>& links = agents_.links();
  Result<JobStart> start = prepare_ranks(options_, identity_, links, door_ ? door_->address() : "");
  if (!start.is_ok()) return start.status();
  start_ = std::move(start).value();
  store_ = std::move(start_->store);
  watch_arrivals();
  if (Status opened = elastic_ ? elastic_->open(*start_) : Status::ok(); !opened.is_ok()) return opened;
  for (size_t host = 0; host < links.size(); ++host) {
    const Result<Bytes> message =
        job_message(options_, *start_, ranks_.placements(), links[host], static_cast<int>(host));
    if (!message.is_ok()) return message.status();
    links[host].send(MessageType::kJob, message.value());
    links[host].note_job();
  }
  open_status_server();
  phase_ = Phase::kRunning;
  started_ = monotonic_now();
  if (options_.is_verbose)
    say(fmt::format("{}: {} on {}, store {}", identity_.id, counted(options_.size, "rank"),
                    counted(std::ssize(links), "host"), store_->url()));
  return Status::ok();
}

// Without a server the job runs all the same.
void JobRunner::open_status_server() {
  if (!options_.answers_status) return;
  std::vector<status::HostAnswer> hosts;
  for (int host = 0; host < ranks_.host_count(); ++host)
    if (const HostLink& link = agents_.links()[static_cast<size_t>(host)]; link.is_remote()) {
      const std::vector<Rank> ranks = ranks_.ranks_on(host);
      hosts.push_back({.host = link.host(), .ranks = elastic_ ? elastic_->members_of(ranks) : ranks});
    }
  std::erase_if(hosts, [](const status::HostAnswer& host) { return host.ranks.empty(); });
  const Status opened = status_server_.offer(status::folder_path(), std::move(hosts));
  if (!opened.is_ok() && options_.is_verbose) say("rueda status will not see other hosts: " + opened.why);
}

// The store's thread only notes who has come. The loop tells the user, once a second at most.
void JobRunner::watch_arrivals() {
  store_->on_set([this](std::string_view key, std::string_view value) {
    if (elastic_) elastic_->job().inbox().on_set(key, value);
    arrivals_.on_set(key, value);
  });
}

void JobRunner::show_missing_ranks(Nanos now) {
  if (init_watch_.is_over()) return;
  for (const Rank rank : arrivals_.take()) init_watch_.on_arrival(rank, now);
  if (init_watch_.is_over()) return output_.end_progress();
  const std::string notice =
      init_watch_.notice([this](Rank rank) -> std::string_view { return ranks_.host_of(rank); }, now);
  if (!notice.empty()) output_.show_progress(notice);
}

void JobRunner::fail_start(const Status& why) {
  if (phase_ == Phase::kNotStarted) return;
  phase_ = Phase::kNotStarted;
  say(why.why);
  results_.write_verdict(why.why);
  agents_.abandon();
  stop_plan_.on_failed_start(monotonic_now());
}

void JobRunner::step() {
  PollSet set;
  set.watch(signals_.fd(), POLLIN, [this] {
    for (const int signal : signals_.read()) on_signal(signal);
    agents_.reap();
  });
  if (options_.is_stdin_watched) set.watch(STDIN_FILENO, POLLIN, [this] { read_stdin(); });
  const Nanos now = monotonic_now();
  // While our own output cannot be written, the output of the agents is not read. Once the ranks are being
  // killed it is read all the same, because the agents hold a bounded amount.
  agents_.watch(set, handlers_, output_.is_full() && !stop_plan_.is_killing(), now);
  status_server_.watch(set, agents_.links());
  if (elastic_) elastic_->job().watch(set);
  if (door_) door_->watch(set);
  for (Console* console : {&output_.out(), &output_.err()})
    if (!console->is_empty()) set.watch(console->fd(), POLLOUT, [=] { console->flush(); });
  Nanos wake = now + kPingInterval;
  const Nanos change = elastic_ && !is_elastic_ended_ ? elastic_->job().next(now) : 0;
  for (const Nanos at : {next_ping_, stop_plan_.next(), reported_signals_.next(), change})
    if (at != 0) wake = std::min(wake, at);
  set.wait(Deadline::at(wake));
  tick(monotonic_now());
}

void JobRunner::tick(Nanos now) {
  if (phase_ == Phase::kStarting) start_when_ready(now);
  agents_.check_silence(now, phase_ == Phase::kStarting ? 0 : nanos(options_.agent_timeout_s, kSecond));
  if (phase_ == Phase::kRunning)
    for (size_t host = 0; host < agents_.links().size(); ++host)
      if (agents_.links()[host].is_lost()) lose_host(static_cast<int>(host), now);
  if (now >= next_ping_) {
    agents_.broadcast(MessageType::kPing);
    agents_.reap();  // one may have been started aside
    if (phase_ == Phase::kRunning) tell_news(now);
    next_ping_ = now + kPingInterval;
  }
  if (phase_ == Phase::kRunning) show_missing_ranks(now);
  tick_elastic(now);
  output_.tick(now);
  pass_on_reported(now);
  for (const StopPlan::Step step : stop_plan_.due(now)) perform(step, now);
}

void JobRunner::perform(StopPlan::Step step, Nanos now) {
  switch (step) {
    case StopPlan::Step::kStop: {
      ByteWriter grace;
      grace.put(nanos(options_.grace_s, kSecond) / kMillisecond);
      return agents_.broadcast(MessageType::kStop, grace.bytes());
    }
    case StopPlan::Step::kKill:
      return agents_.broadcast(MessageType::kKill);
    case StopPlan::Step::kForce:
      return agents_.force_end(now);
    case StopPlan::Step::kGiveUp:
      return agents_.close("it could not be ended");
  }
}

void JobRunner::lose_host(int host, Nanos now) {
  const HostLink& link = agents_.links()[static_cast<size_t>(host)];
  const StopPlan::HostLoss loss = stop_plan_.judge_loss(link.is_silent(now), link.last_heard(), now);
  Ending ending;
  ending.at = loss.at - started_;
  ending.was_stopped = loss.was_stopped;
  ending.trouble = fmt::format("was lost with its host: {}", link.lost_because());
  if (!ranks_.on_host_lost(host, ending)) return;
  if (!elastic_) tell_ended();
  if (!link.is_remote()) clean_up_here(link, agents_.are_local_gone());
  if (elastic_) return elastic_->on_host_lost(link.host(), now);
  on_failure(now);
}

void JobRunner::on_rank_message(HostLink& link, const AgentMessage& message) {
  if (message.type == MessageType::kAnswer) return status_server_.on_answer(link.host(), message.payload);
  if (message.type == MessageType::kBoard || message.type == MessageType::kLeave) {
    const Status read = elastic_ ? elastic_->on_message(message) : Status::ok();
    if (!read.is_ok()) link.close(read.why);
    return;
  }
  if (message.type == MessageType::kSignalled) return on_reported(link, message.payload);
  if (message.type == MessageType::kHeld) {
    const auto host = static_cast<int>(&link - agents_.links().data());
    const Status noted = news_.on_held(link.host(), ranks_.ranks_on(host), message.payload);
    if (elastic_ && noted.is_ok()) elastic_->on_held(link.host(), message.payload);
    return noted.is_ok() ? tell_news(monotonic_now()) : link.close(noted.why);
  }
  const Result<RankNews> news = decode_rank_news(message, ranks_.size());
  if (!news.is_ok()) return link.close(news.status().why);
  std::visit([&](const auto& one) { on_news(link, one); }, news.value());
}

void JobRunner::on_news(HostLink& link, const RankStarted& started) {
  ranks_.on_started(started.rank, started.pid);
  if (options_.is_verbose)
    say(fmt::format("rank {} started on {} as pid {}", started.rank, link.host(), started.pid));
}

void JobRunner::on_news(HostLink& /*link*/, const OutputPart& part) {
  output_.feed(part.rank, part.stream, part.text);
}

void JobRunner::on_news(HostLink& /*link*/, const ResultPart& part) {
  if (const Status written = results_.append(part.rank, part.bytes); !written.is_ok()) say(written.why);
}

void JobRunner::on_news(HostLink& /*link*/, const MetricsText& metrics) {
  output_.write_metrics(metrics.rank, metrics.text);
}

void JobRunner::on_news(HostLink& link, const Exit& exit) {
  const Ending& ending =
      ranks_.on_exit(exit, link.to_our_clock(exit.at) - started_, stop_plan_.interrupt() != 0);
  output_.say(exit_notice(options_.output.style.kind, ending));
  if (elastic_) {
    init_watch_.end();
    output_.end_progress();
    output_.rest(exit.rank);
    return elastic_->job().on_ended(ending, monotonic_now());
  }
  tell_ended();
  if (ending.is_failure()) on_failure(monotonic_now());
}

// Ranks that wait in init for this one learn that it will not come. The first one is enough.
void JobRunner::tell_ended() {
  if (store_ == nullptr || std::exchange(is_ended_told_, true)) return;
  init_watch_.end();
  output_.end_progress();
  const Ending ending = ranks_.endings().front();
  store_->put(std::string(store::kEndedKey),
              store::format_ended(
                  {.size = options_.size, .rank = ending.rank, .how = describe(ending), .pid = ending.pid}));
}

// Ranks of one host see one another, and need nobody to tell them.
void JobRunner::tell_news(Nanos now) {
  if (ranks_.host_count() < 2 || (elastic_ && !elastic_->job().is_in_first_view())) return;
  std::vector<HostNews::Host> hosts;
  for (int host = 0; host < ranks_.host_count(); ++host) {
    const HostLink& link = agents_.links()[static_cast<size_t>(host)];
    hosts.push_back({.name = link.host(), .ranks = ranks_.ranks_on(host), .is_silent = link.is_silent(now)});
  }
  agents_.broadcast(MessageType::kNews, status::encode(news_.news(hosts)));
}

void JobRunner::on_failure(Nanos now) {
  if (!stop_plan_.on_failure(now)) return;
  output_.say(
      stop_notice(options_.output.style.kind, ranks_.any_failed().value(), ranks_.running(), kOthersGrace));
}

int JobRunner::finish() {
  agents_.read_the_rest(handlers_);
  store_.reset();
  int status = 1;
  if (phase_ == Phase::kRunning) {
    for (Rank rank = 0; rank < ranks_.size(); ++rank) output_.finish(rank);
    status = report({.endings = deciding(), .verdict = verdict(), .interrupt = stop_plan_.interrupt()},
                    options_.output.style.kind, output_, results_);
  } else if (stop_plan_.interrupt() != 0) {
    status = 128 + stop_plan_.interrupt();
  }
  if (is_orphaned_) results_.remove();
  Signals::unblock();  // so that Ctrl-C ends the launcher while a stopped pager blocks its output
  return finish_output(status, output_, collector_);
}

}  // namespace rueda::launch
