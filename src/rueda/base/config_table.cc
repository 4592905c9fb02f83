#include "rueda/base/config_table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "rueda/base/config_rows.h"
#include "rueda/base/config_texts.h"
#include "rueda/base/elastic_job.h"
#include "rueda/base/gpu_operations.h"
#include "rueda/base/limits.h"
#include "rueda/base/log.h"

namespace rueda {
namespace {

using GetEnv = std::function<const char*(const char*)>;

void add_scheduling(std::vector<ConfigEntry>& table) {
  table.push_back(
      integer({"fusion_bytes", "RUEDA_FUSION_THRESHOLD", "HOROVOD_FUSION_THRESHOLD", "bytes",
               "Largest transfer that is made by fusing small tensors; 0 turns fusion off. Between hosts two "
               "transfers run at once, and each is at most half as large."},
              &Config::fusion_bytes, "0..68719476736", {0, kMaxFusionBytes}));
  table.push_back(
      integer({"priority_bytes", "RUEDA_PRIORITY_BYTES", "", "bytes",
               "Largest transfer made by fusing tensors that have a priority. A more urgent tensor waits "
               "for at most two such transfers on one host, and for three between hosts."},
              &Config::priority_bytes, "0..68719476736", {0, int64_t{64} << 30}));
  table.push_back(
      number({"cycle_time_ms", "RUEDA_CYCLE_TIME", "HOROVOD_CYCLE_TIME", "milliseconds",
              "Longest wait for more tensors to fuse with; 0 starts as soon as a tensor is ready."},
             &Config::cycle_time_ms, "0..60000", {0, 60'000}));
  table.push_back(
      boolean({"group_fusion_disabled", "RUEDA_DISABLE_GROUP_FUSION", "HOROVOD_DISABLE_GROUP_FUSION", "",
               "Members of a tensor group are fused only with one another."},
              &Config::group_fusion_disabled));
  table.push_back(boolean({"plans", "RUEDA_PLANS", "", "",
                           "Allreduces that recur step after step run without negotiation (rank 0's setting "
                           "applies to all ranks)."},
                          &Config::plans));
  table.push_back(integer({"plan_bucket_bytes", "RUEDA_PLAN_BUCKET_BYTES", "", "bytes",
                           "Up to which size learned plans fuse tensors; 0 finds it for the fabric (rank 0's "
                           "setting applies to all ranks)."},
                          &Config::plan_bucket_bytes, "0..68719476736", {0, kMaxFusionBytes}));
  table.push_back(
      text({"tune", "RUEDA_TUNE", "HOROVOD_AUTOTUNE", "",
            "Whether learned plans try other buckets, chunks and algorithms while a job trains, for at most "
            "1 % of its time (rank 0's setting applies to all ranks). auto: where no sum changes a bit, so "
            "not with NCCL, MPI or RUEDA_ALGORITHM, and not where RUEDA_PLAN_BUCKET_BYTES sets a size. on: "
            "there too, beginning with that size. off: never."},
           &Config::tune, "auto|on|off"));
  table.back().parse = parse_tune;
  table.push_back(number({"tune_after_s", "RUEDA_TUNE_AFTER_SECONDS", "", "seconds",
                          "How long a job trains with learned plans before other buckets are tried."},
                         &Config::tune_after_s, "0..1000000", {0, 1'000'000}));
  table.push_back(number({"tune_percent", "RUEDA_TUNE_PERCENT", "", "percent",
                          "How much of a job's time trials may cost. More finds sooner what is better."},
                         &Config::tune_percent, "0.01..100", {0.01, 100}));
  table.push_back(text({"tune_log", "RUEDA_TUNE_LOG", "HOROVOD_AUTOTUNE_LOG", "",
                        "Path of a table (CSV) in which rank 0 writes a row for each trial, with Horovod's "
                        "columns first, and a "
                        "last row for what is in use."},
                       &Config::tune_log, "a path"));
  table.push_back(
      boolean({"dynamic_process_sets", "RUEDA_DYNAMIC_PROCESS_SETS", "HOROVOD_DYNAMIC_PROCESS_SETS", "",
               "Process sets may be added and removed after init."},
              &Config::dynamic_process_sets));
  table.push_back(text({"thread_affinity", "RUEDA_THREAD_AFFINITY", "HOROVOD_THREAD_AFFINITY", "",
                        "Comma list of core numbers; entry local_rank pins the engine thread of that rank."},
                       &Config::thread_affinity, "comma list of core numbers"));
  table.back().parse = parse_thread_affinity;
}

void add_diagnosis(std::vector<ConfigEntry>& table) {
  table.push_back(boolean({"stall_check_disabled", "RUEDA_STALL_CHECK_DISABLE", "HOROVOD_STALL_CHECK_DISABLE",
                           "", "Tensors that some ranks never submit are not reported."},
                          &Config::stall_check_disabled));
  table.push_back(
      number({"stall_warning_s", "RUEDA_STALL_CHECK_TIME_SECONDS", "HOROVOD_STALL_CHECK_TIME_SECONDS",
              "seconds", "Age at which a tensor that some ranks have not submitted is reported."},
             &Config::stall_warning_s, "0.001..100000000", {0.001, kMaxSeconds}));
  table.push_back(number(
      {"stall_shutdown_s", "RUEDA_STALL_SHUTDOWN_TIME_SECONDS", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
       "seconds",
       "Age at which a tensor that some ranks have not submitted ends the job; 0 means never, and a "
       "value below the warning time is ignored. Unset, it is twice the warning time if that is more."},
      &Config::stall_shutdown_s, "0..100000000", {0, kMaxSeconds}));
  table.push_back(
      text({"timeline", "RUEDA_TIMELINE", "HOROVOD_TIMELINE", "",
            "Path of the timeline file; DYNAMIC waits for start_timeline."},
           &Config::timeline,
           "DYNAMIC, or a path that does not end with .pftrace or .perfetto-trace (it holds Chrome's "
           "JSON; rueda timeline merge writes Perfetto's format)"));
  table.back().parse = parse_timeline;
  table.push_back(boolean({"timeline_mark_cycles", "RUEDA_TIMELINE_MARK_CYCLES",
                           "HOROVOD_TIMELINE_MARK_CYCLES", "", "The timeline also marks where rounds begin."},
                          &Config::timeline_mark_cycles));
  table.push_back(integer({"flight_record_bytes", "RUEDA_FLIGHT_RECORD_BYTES", "", "bytes",
                           "Memory for the flight record: the collectives of the last minute; 0: none."},
                          &Config::flight_record_bytes, "0..1073741824", {0, 1 << 30}));
  table.push_back(
      text({"flight_record", "RUEDA_FLIGHT_RECORD", "", "",
            "Path to which each rank writes its flight record, with .rank<N>.rec added, when a rank "
            "is lost, a collective fails, or ranks are stalled; empty: nowhere."},
           &Config::flight_record, "a path"));
  table.push_back(flight_record_signal());
  table.push_back(boolean({"status", "RUEDA_STATUS", "", "",
                           "Processes of the same user may ask this one for its status and its stacks "
                           "(`rueda status`, `rueda stacks`)."},
                          &Config::status));
  table.push_back(
      text({"metrics_textfile", "RUEDA_METRICS_TEXTFILE", "", "",
            "Path to which each rank writes its metrics every second, with .rank<N>.prom added, for the "
            "textfile collector of Prometheus; empty: nowhere."},
           &Config::metrics_textfile, "a path"));
  add_metrics_port(table);
  table.push_back(
      text({"log_level", "RUEDA_LOG_LEVEL", "HOROVOD_LOG_LEVEL", "", "Least severe record that is logged."},
           &Config::log_level, "trace|debug|info|warning|error|fatal"));
  table.back().parse = parse_log_level;
  table.push_back(boolean({"log_hide_time", "RUEDA_LOG_HIDE_TIME", "HOROVOD_LOG_HIDE_TIME", "",
                           "Log records carry no time stamp."},
                          &Config::log_hide_time));
}

void add_gpus(std::vector<ConfigEntry>& table) {
  static const std::string gpu_range = all_gpu_operations("|");
  table.push_back(
      text({"gpu_operations", "RUEDA_GPU_OPERATIONS", "HOROVOD_GPU_OPERATIONS", "",
            "How collectives on tensors in GPU memory run; give all ranks the same. "
            "nccl: with NVIDIA's library. staged: through host memory. mpi: given to MPI if it "
            "is CUDA-aware, else staged; needs RUEDA_CPU_OPERATIONS=mpi. Empty: the best way that all "
            "ranks have."},
           &Config::gpu_operations, gpu_range));
  table.back().parse = parse_gpu_operations;
  table.push_back(
      boolean({"hierarchical_allreduce", "RUEDA_HIERARCHICAL_ALLREDUCE", "HOROVOD_HIERARCHICAL_ALLREDUCE", "",
               "Allreduces of GPU tensors by NCCL reduce inside each host, add each rank's share "
               "between hosts over rueda's connections, and gather inside each host (rank 0's "
               "setting applies). Without NCCL the cost model chooses."},
              &Config::hierarchical_allreduce));
  table.push_back(
      integer({"staging_bytes", "RUEDA_STAGING_BYTES", "", "bytes",
               "Section of a call on GPU tensors that passes through pinned host memory while others "
               "are copied; each rank pins up to eight of them (rank 0's setting applies)."},
              &Config::staging_bytes, "4096..1073741824", {4096, 1 << 30}));
  table.push_back(text(
      {"cuda_ipc", "RUEDA_CUDA_IPC", "", "",
       "Whether ranks of one host that stage GPU tensors exchange sums and broadcasts from GPU to GPU, "
       "in memory that they map of one another (rank 0's setting applies). auto: calls of 4 MiB and more "
       "(of RUEDA_STAGING_BYTES, if that is less), where mapping works. on: all of them, and a call "
       "fails where mapping does not work. off: none."},
      &Config::cuda_ipc, "auto|on|off"));
  table.back().parse = parse_cuda_ipc;
}

void add_wires(std::vector<ConfigEntry>& table) {
  static const std::string range = "comma list of " + all_transports(", ");
  table.push_back(text({"transports", "RUEDA_TRANSPORTS", "", "",
                        "Transports that may be used; ucx (InfiniBand, RoCE) needs libucp.so.0."},
                       &Config::transports, range));
  table.back().parse = parse_transports;
  table.push_back(
      text({"algorithm", "RUEDA_ALGORITHM", "", "",
            "Forces one collective algorithm by name (docs/costs.md lists them); empty leaves the choice to "
            "the cost model."},
           &Config::algorithm, "name of an algorithm"));
  table.push_back(
      text({"determinism", "RUEDA_DETERMINISM", "", "",
            "hosts: equal bits on every run with the same ranks on each host; bitwise: sums in rank "
            "order, equal bits wherever the ranks run, with more bytes between hosts of several ranks."},
           &Config::determinism, "hosts|bitwise"));
  table.back().parse = parse_determinism;
  table.push_back({.name = "wire",
                   .env = "RUEDA_WIRE",
                   .alias = "",
                   .type = "text",
                   .unit = "",
                   .range = "float32|bf16|fp16|int8",
                   .sentence = "How sums and averages of float32 travel between hosts where the program "
                               "does not say it; inside a host they are exact. See wire_types.md. Give all "
                               "ranks the same.",
                   .parse = parse_wire,
                   .print = [](const Config& config) { return std::string(name_of(config.wire)); }});
  add_gpus(table);
  table.push_back(
      text({"interface", "RUEDA_INTERFACE", "HOROVOD_GLOO_IFACE", "",
            "Network interfaces or addresses to listen on, separated by commas; a host uses the first that "
            "it has. Empty lets rueda choose."},
           &Config::interface, "interface names or IP addresses"));
  table.push_back(number({"start_timeout_s", "RUEDA_START_TIMEOUT", "HOROVOD_START_TIMEOUT", "seconds",
                          "Time that init allows until all ranks are connected."},
                         &Config::start_timeout_s, "0.1..100000000", {0.1, kMaxSeconds}));
  table.push_back(
      number({"peer_timeout_s", "RUEDA_PEER_TIMEOUT_SECONDS", "HOROVOD_GLOO_TIMEOUT_SECONDS", "seconds",
              "A rank that does not answer for longer, or whose host acknowledges nothing for longer, is "
              "lost; a shorter outage of the network is survived. It holds for heartbeats, for TCP, and, "
              "doubled, for the hosts of rueda run (--agent-timeout). The default in an elastic job, which "
              "goes on without that rank, is 10."},
             &Config::peer_timeout_s, "0.1..100000000", {0.1, kMaxSeconds}));
  table.push_back(integer({"shm_ring_bytes", "RUEDA_SHM_RING_BYTES", "", "bytes",
                           "Shared-memory ring per directed pair of ranks on one host."},
                          &Config::shm_ring_bytes, "4096..1073741824", {4096, 1 << 30}));
  table.push_back(integer({"arena_bytes", "RUEDA_ARENA_BYTES", "", "bytes",
                           "Address space for shared buffers; a page takes memory once it is touched. 0: as "
                           "much as the machine's memory, or less if limits of the process require it."},
                          &Config::arena_bytes, "0..70368744177664", {0, int64_t{1} << 46}));
  table.push_back(boolean({"torch_arena", "RUEDA_TORCH_ARENA", "", "",
                           "PyTorch gradients are allocated in shared buffers, if this torch allows it."},
                          &Config::torch_arena));
  table.push_back(boolean({"torch_c_hook", "RUEDA_TORCH_C_HOOK", "", "",
                           "PyTorch calls a hook in C for each gradient, from torch 2.10 on; 0: the one in "
                           "Python, as with older torch."},
                          &Config::torch_c_hook));
  table.push_back(
      integer({"chunk_bytes", "RUEDA_CHUNK_BYTES", "", "bytes",
               "Chunk of a transfer that is received, reduced and sent on while the next one arrives."},
              &Config::chunk_bytes, "1024..1073741824", {kLeastChunkBytes, kMostChunkBytes}));
}

void add_mpi(std::vector<ConfigEntry>& table) {
  table.push_back(
      text({"cpu_operations", "RUEDA_CPU_OPERATIONS", "HOROVOD_CPU_OPERATIONS", "",
            "What runs collectives in host memory: rueda itself, or the MPI of the site (docs/mpi.md)."},
           &Config::cpu_operations, "native|mpi"));
  table.back().parse = parse_cpu_operations;
  table.push_back(
      text({"mpi_library", "RUEDA_MPI_LIBRARY", "", "",
            "File of the MPI library; empty uses the one that the program has loaded, or else that "
            "of the launcher."},
           &Config::mpi_library, "path of a libmpi.so"));
  table.push_back(integer({"mpi_chunk_bytes", "RUEDA_MPI_CHUNK_BYTES", "", "bytes",
                           "Most bytes of one operation of MPI; longer collectives are cut into several."},
                          &Config::mpi_chunk_bytes, "64..1073741824", {64, 1 << 30}));
}

void add_libraries(std::vector<ConfigEntry>& table) {
  table.push_back(text({"cuda_library", "RUEDA_CUDA_LIBRARY", "", "",
                        "Path of the CUDA driver library; empty: libcuda.so.1 as the loader finds it."},
                       &Config::cuda_library, "a path"));
  table.push_back(text({"nccl_library", "RUEDA_NCCL_LIBRARY", "", "",
                        "Path of libnccl.so.2. Empty: the copy that the process has loaded, else that of the "
                        "nvidia-nccl wheel, else that of the system."},
                       &Config::nccl_library, "a path"));
}

const std::vector<ConfigEntry>& table_of_all() {
  static const std::vector<ConfigEntry> table = [] {
    std::vector<ConfigEntry> entries;
    add_scheduling(entries);
    add_diagnosis(entries);
    add_verdicts(entries);
    add_wires(entries);
    add_mpi(entries);
    add_libraries(entries);
    return entries;
  }();
  return table;
}

struct Found {
  std::string_view variable;
  std::string_view text;
  bool is_alias = false;
};

// An empty variable counts as unset, because the two are hard to tell apart in a shell.
std::optional<Found> find(const GetEnv& get_env, std::string_view variable, bool is_alias) {
  if (variable.empty()) return std::nullopt;
  const char* raw = get_env(std::string(variable).c_str());
  if (raw == nullptr || trimmed(raw).empty()) return std::nullopt;
  return Found{variable, trimmed(raw), is_alias};
}

// Whether rueda has what HOROVOD_GPU_ALLREDUCE names. Horovod knows others.
bool names_gpu_allreduce(std::string_view text) {
  const std::string name = lower(trimmed(text));
  return name == "nccl" || name == "mpi";
}

std::optional<Found> find(const GetEnv& get_env, const ConfigEntry& entry) {
  if (auto found = find(get_env, entry.env, false)) return found;
  if (auto found = find(get_env, entry.alias, true)) return found;
  if (entry.name != "gpu_operations") return std::nullopt;
  // Of Horovod's build, where it stands for the operations that most scripts mean.
  const auto found = find(get_env, "HOROVOD_GPU_ALLREDUCE", true);
  return found && names_gpu_allreduce(found->text) ? found : std::nullopt;
}

// The variable that gives the setting; what rueda calls it if none does.
std::string variable_of(const GetEnv& get_env, std::string_view name) {
  const auto entry = std::ranges::find(table_of_all(), name, &ConfigEntry::name);
  const auto found = find(get_env, *entry);
  return std::string(found ? found->variable : entry->env);
}

// Under the names of Horovod, its looser rules apply, because scripts rely on them: any positive integer is
// true (for process sets any except 0), and an unknown log level means "warning".
std::string_view translate_alias(const ConfigEntry& entry, std::string_view text) {
  if (entry.type == "boolean") {
    const auto value = number_in<int64_t>(text);
    if (!value) return text;
    return *value > 0 || (*value < 0 && entry.name == "dynamic_process_sets") ? "1" : "0";
  }
  if (entry.name == "log_level" && std::ranges::find(kLogLevelNames, lower(text)) == kLogLevelNames.end())
    return "warning";
  if (entry.name == "cpu_operations" && lower(text) != "mpi") return "native";
  return text;
}

bool is_shutdown_too_early(const Config& config) {
  return config.stall_shutdown_s > 0 && config.stall_shutdown_s < config.stall_warning_s;
}

// Reads one setting from the environment.
Status take(const GetEnv& get_env, const ConfigEntry& entry, Config& config) {
  const std::optional<Found> found = find(get_env, entry);
  if (!found) return Status::ok();
  const Status status =
      entry.parse(config, found->is_alias ? translate_alias(entry, found->text) : found->text);
  if (status.is_ok()) return status;
  const std::string unit = entry.unit.empty() ? std::string() : " " + std::string(entry.unit);
  return {Code::kInvalidArgument, std::string(found->variable) + "='" + std::string(found->text) +
                                      "' is refused; allowed: " + std::string(entry.range) + unit +
                                      "; correct or unset it"};
}

constexpr double kElasticPeerTimeoutS = 10;  // the others go on without a rank that is lost

// Parses without the rule that ignores a stall shutdown time below the warning time. Who allows ranks to be
// late for long, and says nothing about the end, is warned before it.
Result<Config> parse_as_written(const GetEnv& get_env) {
  Config config;
  if (is_in_elastic_job(get_env)) config.peer_timeout_s = kElasticPeerTimeoutS;
  bool is_shutdown_given = false;
  for (const ConfigEntry& entry : table_of_all()) {
    if (Status status = take(get_env, entry, config); !status.is_ok()) return status;
    is_shutdown_given |= entry.name == "stall_shutdown_s" && find(get_env, entry).has_value();
  }
  if (!is_shutdown_given)
    config.stall_shutdown_s = std::max(config.stall_shutdown_s, 2 * config.stall_warning_s);
  return config;
}

bool is_set_to_false(const char* text) {
  const Result<bool> value = parse_boolean(trimmed(text));
  return value.is_ok() && !value.value();
}

std::string ignored(std::string_view variable, std::string_view value, std::string_view why) {
  return std::string(variable) + "=" + std::string(value) + " is ignored: " + std::string(why);
}

}  // namespace

std::span<const ConfigEntry> config_table() { return table_of_all(); }

Result<Config> parse_config(const GetEnv& get_env) {
  Result<Config> config = parse_as_written(get_env);
  if (config.is_ok() && is_shutdown_too_early(config.value())) config.value().stall_shutdown_s = 0;
  return config;
}

std::vector<std::string> refused_settings(const GetEnv& get_env) {
  std::vector<std::string> sentences;
  Config config;
  for (const ConfigEntry& entry : table_of_all())
    if (const Status status = take(get_env, entry, config); !status.is_ok()) sentences.push_back(status.why);
  return sentences;
}

std::vector<std::string> ignored_settings(const GetEnv& get_env) {
  struct Rule {
    const char* variable;
    bool (*is_ignored)(const char* text);
    const char* why;
  };
  const auto always = [](const char*) { return true; };
  const auto neither = [](const char* text) {
    return lower(trimmed(text)) != "gloo" && lower(trimmed(text)) != "mpi";
  };
  const auto unless_gloo = [](const char* text) { return lower(trimmed(text)) != "gloo"; };
  const auto unless_known = [](const char* text) { return !names_gpu_allreduce(text); };
  const auto when_on = [](const char* text) { return !is_set_to_false(text); };
  static constexpr const char* kByCost = "the cost model chooses the algorithm; RUEDA_ALGORITHM forces one";
  static constexpr const char* kForAll = "RUEDA_GPU_OPERATIONS chooses for all collectives";
  const std::array<Rule, 15> rules = {{
      {"RUEDA_HEARTBEAT_SECONDS", always, "RUEDA_PEER_TIMEOUT_SECONDS holds for silence of every kind"},
      {"HOROVOD_CONTROLLER", unless_gloo,
       "rueda has one controller of its own; RUEDA_CPU_OPERATIONS=mpi sends data through MPI"},
      {"HOROVOD_CPU_OPERATIONS", neither, "rueda runs its own collectives on CPUs, or those of MPI"},
      {"HOROVOD_GPU_ALLREDUCE", unless_known, "only NCCL and MPI are known; see RUEDA_GPU_OPERATIONS"},
      {"HOROVOD_GPU_ALLGATHER", always, kForAll},
      {"HOROVOD_GPU_BROADCAST", always, kForAll},
      {"HOROVOD_GPU_ALLTOALL", always, kForAll},
      {"HOROVOD_GPU_REDUCESCATTER", always, kForAll},
      {"HOROVOD_MPI_THREADS_DISABLE", always,
       "with RUEDA_CPU_OPERATIONS=mpi several threads call MPI, one at a time"},
      {"HOROVOD_ADASUM_MPI_CHUNK_SIZE", always, "Adasum does not go through MPI; see RUEDA_CHUNK_BYTES"},
      {"HOROVOD_CCL_CACHE", always, "rueda does not use oneCCL"},
      {"HOROVOD_BATCH_D2D_MEMCOPIES", is_set_to_false, "copies of fused tensors are always batched"},
      {"HOROVOD_ENABLE_ASYNC_COMPLETION", is_set_to_false, "operations always complete asynchronously"},
      {"HOROVOD_HIERARCHICAL_ALLGATHER", when_on, kByCost},
      {"HOROVOD_TORUS_ALLREDUCE", when_on, kByCost},
  }};
  std::vector<std::string> sentences;
  for (const Rule& rule : rules) {
    const char* text = get_env(rule.variable);
    if (text != nullptr && !trimmed(text).empty() && rule.is_ignored(text))
      sentences.push_back(ignored(rule.variable, trimmed(text), rule.why));
  }
  const auto level = find(get_env, "HOROVOD_LOG_LEVEL", true);
  if (level && !find(get_env, "RUEDA_LOG_LEVEL", false) &&
      std::ranges::find(kLogLevelNames, lower(level->text)) == kLogLevelNames.end())
    sentences.push_back(ignored(level->variable, level->text, "it is not a log level, so 'warning' is used"));
  if (const auto config = parse_as_written(get_env); config.is_ok() && is_shutdown_too_early(config.value()))
    sentences.push_back(variable_of(get_env, "stall_shutdown_s") + " is less than " +
                        variable_of(get_env, "stall_warning_s") + ", will not shutdown. It is " +
                        number_text(config.value().stall_shutdown_s) + " s, the check time " +
                        number_text(config.value().stall_warning_s) + " s.");
  return sentences;
}

}  // namespace rueda
