// What a job is asked to do: the ranks to start, where, and how they are watched.
#pragma once

#include <string>
#include <vector>

#include "launch/environment.h"
#include "launch/hosts.h"
#include "launch/rank_output.h"
#include "launch/slurm_allocation.h"
#include "launch/starters/starter.h"

namespace rueda::launch {

// Of a job whose processes come and go.
struct ElasticOptions {
  int least = 0;         // ranks; 0: the job is not elastic
  int most = 0;          // 0: as many as there are slots
  int spares = 0;        // processes that wait for a place
  int reset_limit = -1;  // views after the first; -1: any number
  double timeout_s = 600;
  std::string discovery_script{};  // prints the hosts; "" = the hosts given
  int default_slots = 1;           // of a host that it prints without a number
  // Where agents may join: see AgentDoor::open. "" = nowhere
  std::string accept_agents{};
  // With the secret of the job, which these agents must know; made if it is missing.
  std::string secret_file{};
};

struct RunOptions {
  int size = 1;
  std::vector<HostSlots> hosts;
  std::vector<SlurmNode> allocation;  // hosts among these nodes are reached through srun
  bool uses_blaunch = false;          // the hosts of an LSF job are reached through blaunch, not ssh
  std::vector<std::string> command;
  Tuning tuning;
  SshOptions ssh;
  // How many agents each machine starts through ssh, if agents start others; see plan_agent_tree.
  int ssh_fan_out = 0;
  OutputOptions output;
  double start_timeout_s = 30;
  double grace_s = 5;             // from SIGTERM to SIGKILL
  double agent_timeout_s = 60;    // another host that is silent for longer is lost
  bool is_stdin_watched = false;  // end of file on stdin counts as SIGTERM: the calling program has ended
  bool is_verbose = false;
  int max_restarts = 0;        // a job that has failed is started again so often
  double restart_pause_s = 1;  // before it is started again for the first time; see Restarts
  int restart_count = 0;       // it was started again so often before; the ranks find it
  bool answers_status = true;  // `rueda status` may ask the launcher about other hosts
  bool binds_cores = false;    // each rank runs on its own share of its host's cores
  std::string stage_file;      // given to every host; see Job::stage
  std::string collect_dir;     // where the ranks' result files are gathered; "" = nowhere
  std::string binary;          // absolute path of this program
  ElasticOptions elastic{};
  [[nodiscard]] bool is_elastic() const { return elastic.least > 0; }
};

}  // namespace rueda::launch
