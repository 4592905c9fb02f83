// What a rank finds in its environment. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/hosts.h"

namespace rueda::launch {

using Variables = std::vector<std::pair<std::string, std::string>>;  // a later entry wins

// Flags that become variables of the ranks; unset = not given, and then the user's own variable stands.
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
  std::optional<std::string> log_level;
  std::optional<bool> log_with_timestamp;
  std::optional<std::string> thread_affinity, network_interface;
  std::optional<int64_t> num_nccl_streams, gloo_timeout_s;
  std::optional<double> start_timeout_s;
};

// Refuses values out of range by the name of their flag.
Status validate(const Tuning& tuning);
// Under both the RUEDA_ and the HOROVOD_ name, so that a variable of the user's under one name cannot win
// over a flag; sub-options of autotuning and the timeline only when those are on.
Variables tuning_variables(const Tuning& tuning);

struct Meeting {
  std::string job;          // public id
  std::string store_url;    // "" = none (the store could not be served)
  std::string master_addr;  // for scripts written for torchrun
  int master_port = 0;
};
Variables rank_variables(const Placement& place, int size, std::string_view host, const Meeting& meeting);

// Whether a variable of the launcher's environment is passed on. What belongs to the machine or the login
// stays out of remote ranks; what would contradict the placement (another launcher's variables) out of all.
bool is_forwarded(std::string_view name, bool is_remote);
Variables forwarded_environment(const char* const* environment, bool is_remote);

}  // namespace rueda::launch
