#include "launch/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "rueda/base/limits.h"

namespace rueda::launch {
namespace {

// What Slurm tells about one node and the job's devices there.
bool is_of_slurm_node(std::string_view name) {
  constexpr std::array<std::string_view, 11> kNode = {
      "SLURM_NODEID",        "SLURM_CPUS_ON_NODE",  "SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS",
      "SLURM_STEP_GPUS",     "SLURM_TOPOLOGY_ADDR", "SLURMD_NODENAME",    "ROCR_VISIBLE_DEVICES",
      "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL",  "ZE_AFFINITY_MASK"};
  return std::ranges::find(kNode, name) != kNode.end();
}

// What Slurm tells a task about itself.
bool is_of_slurm_task(std::string_view name) {
  constexpr std::array<std::string_view, 4> kTask = {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_GTIDS",
                                                     "SLURM_TASK_PID"};
  return name.starts_with("SLURM_STEP") || std::ranges::find(kTask, name) != kTask.end();
}

// What a launcher tells a rank about itself. `rueda run` may be such a rank, but its own ranks have another
// place.
bool is_place_in_other_job(std::string_view name) {
  constexpr std::array<std::string_view, 6> kPrefixes = {
      "OMPI_COMM_WORLD_", "PMIX_SERVER_", "MV2_COMM_WORLD_", "TORCHELASTIC_", "JSM_NAMESPACE_", "FLUX_TASK_"};
  constexpr std::array<std::string_view, 14> kNames = {
      "PMI_RANK",       "PMI_SIZE",       "PMI_FD",          "PMI_PORT",       "PMI_ID",
      "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE", "PMIX_RANK",       "PMIX_NAMESPACE", "HYDI_CONTROL_FD",
      "PALS_RANKID",    "GROUP_RANK",     "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
  return std::ranges::find(kNames, name) != kNames.end() ||
         std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return name.starts_with(prefix); }) ||
         is_of_slurm_task(name);
}

std::string to_text(bool value) { return value ? "1" : "0"; }
std::string to_text(int64_t value) { return std::to_string(value); }
// The shortest text that reads back as the same number, always with a decimal point, as Python
// writes it: "2.0".
std::string to_text(double value) {
  std::string text = fmt::format("{}", value);
  return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
}
std::string to_text(const std::string& value) { return value; }

class Writer {
 public:
  template <class T>
  void put(std::string_view suffix, const std::optional<T>& value) {
    put_rueda(suffix, value);
    put_horovod(suffix, value);
  }
  // Horovod has no such setting.
  template <class T>
  void put_rueda(std::string_view suffix, const std::optional<T>& value) {
    if (value) variables_.emplace_back(fmt::format("RUEDA_{}", suffix), to_text(*value));
  }
  // Options that have no effect of their own in rueda: they serve as a hint, or the log says why
  // they are ignored.
  template <class T>
  void put_horovod(std::string_view suffix, const std::optional<T>& value) {
    if (value) variables_.emplace_back(fmt::format("HOROVOD_{}", suffix), to_text(*value));
  }
  Variables take() { return std::move(variables_); }

 private:
  Variables variables_;
};

constexpr int64_t kMaxFusionMb = kMaxFusionBytes >> 20;

template <class T>
Status at_least_zero(std::string_view flag, const std::optional<T>& value) {
  if (!value || *value >= T{0}) return Status::ok();
  return {Code::kInvalidArgument, fmt::format("{}={} must be >= 0", flag, *value)};
}

Status seconds_from(double least, std::string_view flag, const std::optional<double>& value) {
  constexpr double kDay = 86400;
  if (!value || (*value >= least && *value <= kDay)) return Status::ok();  // and not NaN
  return {Code::kInvalidArgument,
          fmt::format("--{}: {} is not a number of seconds from {} to {}", flag, *value, least, kDay)};
}

std::optional<bool> negated(const std::optional<bool>& value) {
  if (!value) return std::nullopt;
  return !*value;
}

}  // namespace

Status validate(const Tuning& tuning) {
  const std::array checks = {
      at_least_zero("fusion-threshold-mb", tuning.fusion_threshold_mb),
      at_least_zero("cycle-time-ms", tuning.cycle_time_ms),
      at_least_zero("cache-capacity", tuning.cache_capacity),
      at_least_zero("autotune-warmup-samples", tuning.autotune_warmup_samples),
      at_least_zero("autotune-steps-per-sample", tuning.autotune_steps_per_sample),
      at_least_zero("autotune-bayes-opt-max-samples", tuning.autotune_bayes_opt_max_samples),
      at_least_zero("autotune-gaussian-process-noise", tuning.autotune_gaussian_process_noise),
      at_least_zero("stall-check-warning-time-seconds", tuning.stall_warning_s),
      at_least_zero("stall-check-shutdown-time-seconds", tuning.stall_shutdown_s),
      at_least_zero("num-nccl-streams", tuning.num_nccl_streams),
      at_least_zero("gloo-timeout-seconds", tuning.gloo_timeout_s),
      at_least_zero("start-timeout", tuning.start_timeout_s),
      at_least_zero("max-restarts", tuning.max_restarts),
      seconds_from(0, "restart-pause", tuning.restart_pause_s),
      seconds_from(0, "grace", tuning.grace_s),
      seconds_from(kLeastAgentTimeoutS, "agent-timeout", tuning.agent_timeout_s),
  };
  for (const Status& check : checks)
    if (!check.is_ok()) return check;
  if (tuning.fusion_threshold_mb.value_or(0) > static_cast<double>(kMaxFusionMb))
    return {Code::kInvalidArgument,
            fmt::format("fusion-threshold-mb={} must be <= {}", *tuning.fusion_threshold_mb, kMaxFusionMb)};
  if (tuning.autotune_gaussian_process_noise && *tuning.autotune_gaussian_process_noise > 1)
    return {Code::kInvalidArgument, fmt::format("autotune-gaussian-process-noise={} must be in [0, 1]",
                                                *tuning.autotune_gaussian_process_noise)};
  return Status::ok();
}

Variables tuning_variables(const Tuning& tuning) {
  Writer writer;
  if (tuning.fusion_threshold_mb)
    writer.put("FUSION_THRESHOLD",
               std::optional<int64_t>(std::llround(*tuning.fusion_threshold_mb * 1024 * 1024)));
  writer.put("CYCLE_TIME", tuning.cycle_time_ms);
  writer.put_horovod("CACHE_CAPACITY", tuning.cache_capacity);
  writer.put_horovod("HIERARCHICAL_ALLREDUCE", tuning.hierarchical_allreduce);
  writer.put_horovod("HIERARCHICAL_ALLGATHER", tuning.hierarchical_allgather);
  writer.put_horovod("TORUS_ALLREDUCE", tuning.torus_allreduce);
  writer.put_horovod("AUTOTUNE", tuning.autotune);
  writer.put_horovod("AUTOTUNE_LOG", tuning.autotune_log_file);  // rueda tunes without being asked
  if (tuning.autotune.value_or(false)) {
    writer.put_horovod("AUTOTUNE_WARMUP_SAMPLES", tuning.autotune_warmup_samples);
    writer.put_horovod("AUTOTUNE_STEPS_PER_SAMPLE", tuning.autotune_steps_per_sample);
    writer.put_horovod("AUTOTUNE_BAYES_OPT_MAX_SAMPLES", tuning.autotune_bayes_opt_max_samples);
    writer.put_horovod("AUTOTUNE_GAUSSIAN_PROCESS_NOISE", tuning.autotune_gaussian_process_noise);
  }
  if (tuning.timeline_filename) {
    writer.put("TIMELINE", tuning.timeline_filename);
    writer.put("TIMELINE_MARK_CYCLES", tuning.timeline_mark_cycles);
  }
  writer.put("STALL_CHECK_DISABLE", negated(tuning.stall_check));
  writer.put("STALL_CHECK_TIME_SECONDS", tuning.stall_warning_s);
  writer.put("STALL_SHUTDOWN_TIME_SECONDS", tuning.stall_shutdown_s);
  writer.put("LOG_LEVEL", tuning.log_level);
  writer.put_rueda("WIRE", tuning.wire);
  writer.put("LOG_HIDE_TIME", negated(tuning.log_with_timestamp));
  writer.put("THREAD_AFFINITY", tuning.thread_affinity);
  writer.put_horovod("NUM_NCCL_STREAMS", tuning.num_nccl_streams);
  writer.put_horovod("GLOO_TIMEOUT_SECONDS", tuning.gloo_timeout_s);
  writer.put("START_TIMEOUT", tuning.start_timeout_s);
  Variables variables = writer.take();
  if (tuning.gloo_timeout_s)
    variables.emplace_back("RUEDA_PEER_TIMEOUT_SECONDS", std::to_string(*tuning.gloo_timeout_s));
  if (tuning.metrics_port) variables.emplace_back("RUEDA_METRICS_PORT", std::to_string(*tuning.metrics_port));
  if (tuning.network_interface)
    for (const char* name : {"RUEDA_INTERFACE", "HOROVOD_GLOO_IFACE", "NCCL_SOCKET_IFNAME"})
      variables.emplace_back(name, *tuning.network_interface);
  return variables;
}

Variables rank_variables(const Placement& place, int size, std::string_view host,
                         const RendezvousSettings& rendezvous) {
  Variables variables;
  const auto number = [&](std::initializer_list<const char*> names, int value) {
    for (const char* name : names) variables.emplace_back(name, std::to_string(value));
  };
  number({"RUEDA_RANK", "HOROVOD_RANK", "RANK"}, place.rank);
  number({"RUEDA_SIZE", "HOROVOD_SIZE", "WORLD_SIZE"}, size);
  number({"RUEDA_LOCAL_RANK", "HOROVOD_LOCAL_RANK", "LOCAL_RANK"}, place.local_rank);
  number({"RUEDA_LOCAL_SIZE", "HOROVOD_LOCAL_SIZE", "LOCAL_WORLD_SIZE"}, place.local_size);
  number({"RUEDA_CROSS_RANK", "HOROVOD_CROSS_RANK"}, place.cross_rank);
  number({"RUEDA_CROSS_SIZE", "HOROVOD_CROSS_SIZE"}, place.cross_size);
  variables.emplace_back("RUEDA_HOSTNAME", host);
  variables.emplace_back("HOROVOD_HOSTNAME", host);
  variables.emplace_back("RUEDA_JOB", rendezvous.job);
  if (!rendezvous.store_url.empty()) {
    variables.emplace_back("RUEDA_STORE", rendezvous.store_url);
    variables.emplace_back("RUEDA_STORE_SERVED", "1");
  }
  if (rendezvous.master_port != 0) {
    variables.emplace_back("MASTER_ADDR", rendezvous.master_addr);
    variables.emplace_back("MASTER_PORT", std::to_string(rendezvous.master_port));
  }
  variables.emplace_back("PYTHONUNBUFFERED", "1");
  return variables;
}

bool is_forwarded(std::string_view name, bool is_remote) {
  // A job that is started by a rank of another job must not inherit the place of that rank.
  constexpr std::array<std::string_view, 22> kPlace = {"RUEDA_RANK",
                                                       "RUEDA_SIZE",
                                                       "RUEDA_LOCAL_RANK",
                                                       "RUEDA_LOCAL_SIZE",
                                                       "RUEDA_CROSS_RANK",
                                                       "RUEDA_CROSS_SIZE",
                                                       "RUEDA_JOB",
                                                       "RUEDA_STORE",
                                                       "RUEDA_STORE_SERVED",
                                                       "RUEDA_SECRET_FILE",
                                                       "RUEDA_STAGE_DIR",
                                                       "RUEDA_STOP_FILE",
                                                       "RUEDA_NEWS_FILE",
                                                       "RUEDA_RESTART_COUNT",
                                                       "OLDPWD",
                                                       "_HOROVOD_SECRET_KEY",
                                                       "RUEDA_ELASTIC_UID",
                                                       "RUEDA_ELASTIC_VIEW",
                                                       "RUEDA_ELASTIC_TIMEOUT",
                                                       "HOROVOD_ELASTIC",
                                                       "RUEDA_ELASTIC_BOARD",
                                                       "RUEDA_JOINER"};
  if (std::ranges::find(kPlace, name) != kPlace.end()) return false;
  if (name.empty() || name.starts_with("BASH_FUNC_") || is_place_in_other_job(name)) return false;
  if (!is_remote) return true;
  constexpr std::array<std::string_view, 16> kMachine = {"HOME",
                                                         "USER",
                                                         "LOGNAME",
                                                         "SHELL",
                                                         "HOSTNAME",
                                                         "MAIL",
                                                         "SSH_AUTH_SOCK",
                                                         "SSH_CLIENT",
                                                         "SSH_TTY",
                                                         "SSH_CONNECTION",
                                                         "DISPLAY",
                                                         "XAUTHORITY",
                                                         "XDG_RUNTIME_DIR",
                                                         "XDG_SESSION_ID",
                                                         "TMPDIR",
                                                         "DBUS_SESSION_BUS_ADDRESS"};
  return std::ranges::find(kMachine, name) == kMachine.end() && !is_of_slurm_node(name) &&
         !name.ends_with("CUDA_VISIBLE_DEVICES");
}

bool is_kept_by_agent(std::string_view name, bool has_joined) {
  return (has_joined || !name.starts_with("SLURM_") || is_of_slurm_node(name)) &&
         !is_place_in_other_job(name);
}

Variables forwarded_environment(const char* const* environment, bool is_remote) {
  Variables variables;
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos || !is_forwarded(entry.substr(0, equals), is_remote)) continue;
    variables.emplace_back(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return variables;
}

}  // namespace rueda::launch
