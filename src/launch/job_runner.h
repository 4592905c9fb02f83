// One job from the first agent to the last report: the launcher's poll loop, on one thread. It performs the
// effects. StartWatch, StopPlan, JobRanks and the report decide what to do.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/agents.h"
#include "launch/arrivals.h"
#include "launch/elastic_hands.h"
#include "launch/host_news.h"
#include "launch/job_options.h"
#include "launch/job_ranks.h"
#include "launch/job_start.h"
#include "launch/log_collector.h"
#include "launch/outside_signals.h"
#include "launch/rank_news.h"
#include "launch/rank_output.h"
#include "launch/restarts.h"
#include "launch/result_files.h"
#include "launch/signals.h"
#include "launch/start_progress.h"
#include "launch/start_watch.h"
#include "launch/status_server.h"
#include "launch/stop_plan.h"

namespace rueda::launch {

class JobRunner {
 public:
  explicit JobRunner(RunOptions options);
  // Returns the exit status of the launcher.
  int run();
  // After that.
  [[nodiscard]] TryEnd end() const;

 private:
  enum class Phase {
    kStarting,
    kRunning,
    kNotStarted
  };  // kNotStarted: the start failed, the agents are ended
  // beginning
  Status prepare();
  Status start_agents();
  void start_when_ready(Nanos now);
  Status start_ranks();
  void open_status_server();
  void fail_start(const Status& why);
  // the loop
  void step();
  void tick(Nanos now);
  void read_stdin();
  void on_signal(int signal);
  void suspend();
  void on_reported(const HostLink& link, std::span<const std::byte> payload);
  void pass_on_reported(Nanos now);
  void on_rank_message(HostLink& link, const AgentMessage& message);
  void on_news(HostLink& link, const RankStarted& started);
  void on_news(HostLink& link, const OutputPart& part);
  void on_news(HostLink& link, const ResultPart& part);
  void on_news(HostLink& link, const MetricsText& metrics);
  void on_news(HostLink& link, const Exit& exit);
  // failures
  void lose_host(int host, Nanos now);
  void on_failure(Nanos now);
  void watch_arrivals();
  void show_missing_ranks(Nanos now);
  void tell_ended();
  void tell_news(Nanos now);
  void perform(StopPlan::Step step, Nanos now);
  // elastic jobs
  Status open_door();
  void tick_elastic(Nanos now);
  [[nodiscard]] std::vector<Ending> deciding() const;
  // Why rueda has ended an elastic job; empty: its ranks decide.
  [[nodiscard]] std::string verdict() const;
  // ending
  int finish();
  void say(const std::string& text) { output_.say_sentence(text); }

  RunOptions options_;
  RankOutput output_;
  LogCollector collector_;
  ResultFiles results_;
  Signals signals_;
  Agents agents_;
  Agents::Handlers handlers_;
  StatusServer status_server_;
  HostNews news_;
  StartWatch start_watch_;
  InitWatch init_watch_;
  Arrivals arrivals_;  // of which init_watch_ does not know yet
  StopPlan stop_plan_;
  ReportedSignals reported_signals_;
  JobRanks ranks_;
  JobIdentity identity_;
  std::optional<JobStart> start_;  // once the agents have said hello
  std::unique_ptr<store::StoreServer> store_;
  std::unique_ptr<AgentDoor> door_;        // null: no agents join by themselves
  std::unique_ptr<ElasticHands> elastic_;  // null: the ranks are those that were started first
  Phase phase_ = Phase::kStarting;
  int64_t shown_view_ = 1;  // to `rueda status`
  bool is_ended_told_ = false, is_elastic_ended_ = false;
  bool is_orphaned_ = false;       // the program that started this one is gone
  Nanos began_ = 0, started_ = 0;  // the agents, the ranks
  Nanos next_ping_ = 0;
};

}  // namespace rueda::launch
