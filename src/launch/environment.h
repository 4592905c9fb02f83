// The environment of a rank. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/hosts.h"

namespace rueda::launch {

using Variables = std::vector<std::pair<std::string, std::string>>;  // a later entry wins

// Flags that become environment variables of the ranks, and those that a file may set. Unset: the flag was
// not given, so the user's own variable applies.
struct Tuning {
  std::optional<double> fusion_threshold_mb, cycle_time_ms;
  std::optional<int64_t> cache_capacity;
  std::optional<bool> hierarchical_allreduce, hierarchical_allgather, torus_allreduce;
  std::optional<bool> autotune;
  std::optional<std::string> autotune_log_file;
  std::optional<int64_t> autotune_warmup_samples, autotune_steps_per_sample, autotune_bayes_opt_max_samples;
  std::optional<double> autotune_gaussian_process_noise;
  std::optional<std::string> timeline_filename;
  std::optional<bool> timeline_mark_cycles;
  std::optional<bool> stall_check;
  std::optional<double> stall_warning_s, stall_shutdown_s;
  std::optional<std::string> log_level, wire;
  std::optional<bool> log_with_timestamp;
  std::optional<std::string> thread_affinity, network_interface;
  std::optional<int64_t> num_nccl_streams, gloo_timeout_s;
  std::optional<double> start_timeout_s;
  std::optional<int64_t> metrics_port;
  // Of the launcher; no variables.
  std::optional<int64_t> max_restarts;
  std::optional<double> restart_pause_s, grace_s, agent_timeout_s;
  std::optional<bool> bind_cores;
};
inline constexpr double kLeastAgentTimeoutS = 2;  // agents are heard of once a second

// Refuses a value that is out of range, and names its flag.
Status validate(const Tuning& tuning);
// Each flag is given under its RUEDA_ and its HOROVOD_ name, so that a variable of the user's cannot override
// it under the other name. Options of autotuning and of the timeline are given only if those are on.
Variables tuning_variables(const Tuning& tuning);

// Where the ranks find one another.
struct RendezvousSettings {
  std::string job;          // public id
  std::string store_url;    // "" = none (the store could not be served)
  std::string master_addr;  // for scripts written for torchrun
  int master_port = 0;
};
Variables rank_variables(const Placement& place, int size, std::string_view host,
                         const RendezvousSettings& rendezvous);

// Whether a variable of the launcher's environment is passed on to the ranks. Variables of the machine or the
// login are not passed to remote ranks. Variables of another launcher, which would contradict the placement,
// are passed to no rank.
bool is_forwarded(std::string_view name, bool is_remote);
// Whether an agent passes on a variable of its own environment. srun tells it about a step of one task, which
// would mislead the ranks. One that has joined keeps what describes its surroundings, and no place among
// ranks.
bool is_kept_by_agent(std::string_view name, bool has_joined = false);
Variables forwarded_environment(const char* const* environment, bool is_remote);

}  // namespace rueda::launch
