// One job from the first agent to the last report: the launcher's poll loop, on one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/environment.h"
#include "launch/host_link.h"
#include "launch/hosts.h"
#include "launch/rank_output.h"
#include "launch/report.h"
#include "launch/starters/starter.h"
#include "rueda/store/store.h"

namespace rueda::launch {

struct RunOptions {
  int size = 1;
  std::vector<HostSlots> hosts;
  std::vector<std::string> command;
  Tuning tuning;
  SshOptions ssh;
  OutputOptions output;
  double start_timeout_s = 30;
  double grace_s = 5;             // SIGTERM to SIGKILL
  double agent_timeout_s = 20;    // silence of a host behind ssh after which it is lost
  bool is_stdin_watched = false;  // end of file there is a SIGTERM: our user is a program that may be killed
  bool is_verbose = false;
  bool binds_cores = false;  // each rank keeps to its own share of its host's cores
  std::string stage_file;    // given to every host; see Job::stage
  std::string collect_dir;   // where the ranks' result files are gathered
  std::string binary;        // absolute path of this program
};

class JobRunner {
 public:
  explicit JobRunner(RunOptions options);
  // Returns the exit status of the launcher.
  int run();

 private:
  // starting
  Status prepare();
  Status start_agents();
  Result<AgentProcess> start_agent(const HostLink& link);
  void start_when_ready();
  Status start_ranks();
  Result<std::string> choose_store_address() const;
  Result<std::string> read_stage_file() const;
  void fail_start(const Status& why);
  // the loop
  void step();
  void tick(Nanos now);
  void reap();
  void read_signals();
  void read_stdin();
  void on_signal(int signal);
  void on_frame(HostLink& link, const Frame& frame);
  void on_exit(HostLink& link, Exit exit);
  void lose_host(HostLink& link, Nanos now);
  void check_links(Nanos now);
  void force_end(Nanos now);
  [[nodiscard]] std::string unreachable(const HostLink& link, Nanos now) const;
  void collect(Rank rank, std::span<const std::byte> bytes);
  void suspend();
  // ending
  void schedule_stop(Nanos now);
  void broadcast(FrameType type, std::span<const std::byte> payload = {});
  void kill_all(Nanos now);
  [[nodiscard]] bool is_over() const;
  int finish();
  void say(const std::string& text) { output_.say("rueda: " + text + "\n"); }
  void say_lines(const std::string& host, std::string_view lines);
  [[nodiscard]] Nanos next_wake(Nanos now) const;

  RunOptions options_;
  bool is_orphaned_ = false;  // the program that started this one is gone
  std::vector<Placement> placements_;
  RankOutput output_;
  std::vector<HostLink> links_;  // one per host that has ranks, as in options_.hosts
  std::string job_id_;
  Secret secret_;
  std::unique_ptr<store::StoreServer> store_;
  UniqueFd signals_;
  std::vector<std::optional<Ending>> endings_;  // [size]
  std::vector<int> pids_;                       // [size], 0 = not started
  bool has_started_ = false, has_failed_to_start_ = false;
  int interrupt_ = 0;  // the signal by which the user stopped the job
  Nanos began_ = 0, started_ = 0;
  Nanos stop_at_ = 0, kill_at_ = 0, force_at_ = 0, give_up_at_ = 0;  // 0 = not scheduled
  Nanos stop_began_ = 0;                                             // the first failure was learnt
  Nanos next_ping_ = 0;
  Nanos next_notice_ = 5 * kSecond;  // since began_
};

}  // namespace rueda::launch
