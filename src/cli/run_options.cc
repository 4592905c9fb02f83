#include "cli/run_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <climits>
#include <cstdlib>
#include <optional>

#include "cli/config_file.h"
#include "cli/elastic_options.h"
#include "cli/job_hosts.h"
#include "cli/number_checks.h"
#include "cli/parse_error.h"
#include "cli/words.h"
#include "rueda/base/config_table.h"
#include "rueda/base/limits.h"
#include "rueda/base/numbers.h"
#include "rueda/base/release.h"

namespace rueda::cli {
namespace {

using launch::PrefixStyle;
using launch::RunOptions;
using launch::Tuning;

struct Raw {
  RunOptions options;
  int size = 0;  // 0 = not given
  std::string hosts, host_file, ranks, config_file, ssh_args;
  bool is_silent_prefix = false, has_timestamp = false, is_horovod_output = false;
  bool is_version = false, is_check_build = false;
  bool leaves_allocation = false;
  bool is_mpi = false, is_gloo = false;
  launch::MpirunOptions mpirun;
  std::optional<std::string> mpi_args, binding_args;
  ElasticWords elastic;
  std::vector<std::string> without_effect;  // options and settings that are accepted and ignored
};

void on_off(CLI::App* app, const std::string& name, std::optional<bool>& target, const std::string& help) {
  app->add_flag_function(
      "--" + name + ",!--no-" + name, [&target](int64_t count) { target = count > 0; }, help);
}

// An empty value usually comes from a shell variable that is not set.
std::string is_not_empty(const std::string& value) {
  return value.empty() ? "is empty; give a value or leave the option out" : "";
}

void add_job_options(CLI::App& app, Raw& raw) {
  RunOptions& options = raw.options;
  app.add_option("--np,--num-proc", raw.size,
                 "-np N: number of processes (default: all slots of the hosts given)")
      ->check(whole_number(1, kMaxRanks));
  app.add_option("-H,--hosts", raw.hosts,
                 "hosts and their slots, as in a:2,b:2 (default: those that Slurm, LSF or PBS has given, or "
                 "this machine)")
      ->check(is_not_empty);
  app.add_option("--hostfile", raw.host_file, "file of lines \"name slots=2\"")->check(is_not_empty);
  app.add_option("-p,--ssh-port", options.ssh.port, "port of the ssh servers")->check(whole_number(1, 65535));
  app.add_option("-i,--ssh-identity-file", options.ssh.identity_file, "private key for ssh");
  app.add_option("-F,--ssh-config", options.ssh.config_file,
                 "configuration file for ssh instead of the user's");
  app.add_option("--ssh-args", raw.ssh_args, "further options for ssh, separated by blanks");
  app.add_option("--ssh-fan-out", options.ssh_fan_out,
                 "hosts to which each machine opens ssh: further ones are reached from those (64 in all, or "
                 "32 each if there are more)")
      ->check(whole_number(2, kMaxRanks));
  app.add_flag(
      "--no-allocation,--no-srun", raw.leaves_allocation,
      "ignore what Slurm, LSF or PBS has given: without -H all ranks run here, and other hosts are reached "
      "through ssh");
  app.add_option("--network-interfaces,--network-interface", options.tuning.network_interface,
                 "network interface or address to use (default: the address from which the hosts see this "
                 "one connect)")
      ->multi_option_policy(CLI::MultiOptionPolicy::Join)
      ->delimiter(',');
  app.add_flag("--mpi", raw.is_mpi,
               "start the ranks through mpirun, and run their collectives through its MPI (docs/mpi.md)");
  app.add_option("--mpirun", raw.mpirun.program, "the mpirun to use with --mpi (mpirun)")
      ->check(is_not_empty);
  app.add_option("--mpi-args", raw.mpi_args, "further options for mpirun, separated by blanks");
  app.add_option("--binding-args", raw.binding_args, "options of mpirun that bind ranks to cores");
  app.add_flag("--gloo", raw.is_gloo)->group("");
  app.add_flag_callback(
      "--bind-cores", [&] { options.tuning.bind_cores = true; },
      "give each rank its own share of its host's cores (default: every rank may use all)");
  app.add_option("--start-timeout", options.tuning.start_timeout_s,
                 "seconds in which all ranks must have started (30)");
  app.add_option("--grace", options.tuning.grace_s, "seconds between SIGTERM and SIGKILL (5)");
  app.add_option(
      "--agent-timeout", options.tuning.agent_timeout_s,
      "seconds of silence after which a remote host is lost (twice RUEDA_PEER_TIMEOUT_SECONDS: 60)");
  app.add_option("--max-restarts", options.tuning.max_restarts,
                 "start the whole job again so often after a failure (0)")
      ->check(whole_number(0, 1'000'000));
  app.add_option("--restart-pause", options.tuning.restart_pause_s,
                 "seconds before the first of these restarts; twice as long before each further one, up to "
                 "30 (1)");
  app.add_option("--config-file", raw.config_file, "settings in YAML or JSON; flags win");
  app.add_flag("-v,--version", raw.is_version, "print the version");
  app.add_flag("--check-build", raw.is_check_build, "-cb: print what this installation can do");
  app.add_flag("--watch-stdin", options.is_stdin_watched)->group("");
  app.add_option("--stage-file", options.stage_file)->group("");
  app.add_option("--collect-dir", options.collect_dir)->group("");
  // As ssh, for a host and a command: where Ray or Spark start the agents.
  app.add_option("--agent-program", options.ssh.program)->group("");
}

void add_output_options(CLI::App& app, Raw& raw) {
  launch::OutputOptions& output = raw.options.output;
  app.add_option("--log-dir", output.log_dir,
                 "also write D/rank-0000.out and .err, as the ranks wrote them, and .prom, their metrics; D "
                 "may be a URL such as "
                 "s3://bucket/run (Python's fsspec)")
      ->check(is_not_empty);
  app.add_option("--output-filename", output.output_dir,
                 "also write D/rank.0/stdout and stderr, with prefixes")
      ->check(is_not_empty);
  app.add_option("--ranks", raw.ranks, "ranks whose output is shown: 0,3 (default: all)");
  app.add_flag("--no-prefix", raw.is_silent_prefix, "show the lines without a prefix");
  app.add_flag("--prefix-timestamp,--prefix-output-with-timestamp", raw.has_timestamp, "time in the prefix");
  app.add_flag("--horovod-output", raw.is_horovod_output, "use the prefixes and messages of horovodrun");
  app.add_flag("--verbose", raw.options.is_verbose, "report each step of the start");
}

// Options that horovodrun ignores, too, if a job has a fixed size.
void add_ignored_options(CLI::App& app, Raw& raw) {
  const auto ignore = [&](const std::string& name, int values, const std::string& why) {
    const auto note = [&raw, name, why](const std::vector<std::string>&) {
      raw.without_effect.push_back(fmt::format("{} has no effect: {}", name, why));
    };
    app.add_option_function<std::vector<std::string>>(name, note)->expected(values)->group("");
  };
  ignore("--blacklist-cooldown-range", 2, "a slot that has failed rests for 1, 2, 4 ... 60 s");
}

void add_tuning_options(CLI::App& app, Raw& raw) {
  Tuning& tuning = raw.options.tuning;
  app.add_option("--fusion-threshold-mb", tuning.fusion_threshold_mb,
                 "largest fused transfer in MiB; 0 turns fusion off");
  app.add_option("--cycle-time-ms", tuning.cycle_time_ms, "longest wait for more tensors to fuse");
  app.add_option("--cache-capacity", tuning.cache_capacity)->group("");
  on_off(&app, "hierarchical-allreduce", tuning.hierarchical_allreduce, "two-level allreduce of GPU tensors");
  on_off(&app, "hierarchical-allgather", tuning.hierarchical_allgather, "hint: two-level allgather");
  on_off(&app, "torus-allreduce", tuning.torus_allreduce, "hint: torus allreduce");
  on_off(&app, "autotune", tuning.autotune,
         "learned plans try other buckets while the job trains (as RUEDA_TUNE)");
  app.add_option("--autotune-log-file", tuning.autotune_log_file, "write what the tuner tried to this file");
  app.add_option("--autotune-warmup-samples", tuning.autotune_warmup_samples)->group("");
  app.add_option("--autotune-steps-per-sample", tuning.autotune_steps_per_sample)->group("");
  app.add_option("--autotune-bayes-opt-max-samples", tuning.autotune_bayes_opt_max_samples)->group("");
  app.add_option("--autotune-gaussian-process-noise", tuning.autotune_gaussian_process_noise)->group("");
  app.add_option("--timeline-filename", tuning.timeline_filename, "write a timeline to this file");
  on_off(&app, "timeline-mark-cycles", tuning.timeline_mark_cycles, "mark cycles in the timeline");
  on_off(&app, "stall-check", tuning.stall_check, "report tensors that some ranks do not submit (on)");
  app.add_option("--stall-check-warning-time-seconds", tuning.stall_warning_s,
                 "seconds before such a report (60)");
  app.add_option("--stall-check-shutdown-time-seconds", tuning.stall_shutdown_s,
                 "seconds before the job is ended (1800; 0: never)");
  app.add_option("--wire", tuning.wire,
                 "how float32 sums travel between hosts: float32, bf16, fp16 or int8 (as RUEDA_WIRE)");
  app.add_option("--log-level", tuning.log_level, "TRACE, DEBUG, INFO, WARNING, ERROR or FATAL");
  app.add_flag_callback("--log-with-timestamp,--no-log-hide-timestamp",
                        [&] { tuning.log_with_timestamp = true; });
  app.add_flag_callback("--log-without-timestamp,--log-hide-timestamp",
                        [&] { tuning.log_with_timestamp = false; });
  app.add_option("--thread-affinity", tuning.thread_affinity,
                 "cores of the engine threads, by local rank: 0,8");
  app.add_option("--num-nccl-streams", tuning.num_nccl_streams)->group("");
  app.add_option("--gloo-timeout-seconds", tuning.gloo_timeout_s, "silence after which a peer is lost (30)");
  app.add_option("--metrics-port", tuning.metrics_port,
                 "local rank N answers Prometheus on port N + this one of its host's loopback, or of "
                 "RUEDA_METRICS_ADDRESS");
  // These flags need no action: there is one controller, nothing is cached between jobs, and TCP
  // is always allowed.
  app.add_flag("--disable-cache,--tcp,--mpi-threads-disable,--no-mpi-threads-disable")->group("");
}

struct Split {
  std::vector<std::string> options, command;
};

// To find the end of the options, one must know which of them take a value.
Split split_command(const CLI::App& app, const std::vector<std::string>& arguments) {
  Split split;
  size_t i = 0;
  for (; i < arguments.size(); ++i) {
    const std::string word = normalised(arguments[i]);
    if (word == "--" || word.size() < 2 || word.front() != '-') break;
    const bool is_long = word.starts_with("--");
    const std::string name = is_long ? word.substr(0, word.find('=')) : word.substr(0, 2);
    const CLI::Option* option = app.get_option_no_throw(name);
    int values = option != nullptr ? option->get_items_expected_max() : 0;
    if (values > 0 && is_long && name != word) {
      split.options.insert(split.options.end(),
                           {name, word.substr(name.size() + 1)});  // the value may be empty
      --values;
    } else {
      split.options.push_back(word);
      if (name != word) --values;
    }
    for (; values > 0 && i + 1 < arguments.size(); --values) split.options.push_back(arguments[++i]);
  }
  if (i < arguments.size() && arguments[i] == "--") ++i;
  split.command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
  return split;
}

// Options of horovodrun that are recognised only so that they can be refused with a reason.
Status refuse_known(const std::vector<std::string>& options) {
  for (const std::string& word : options) {
    const std::string_view name = std::string_view(word).substr(0, word.find('='));
    if (name == "--jsrun")
      return {
          Code::kUnsupported,
          "MPI support has not been built for jsrun. Leave --jsrun out, and start the command with jsrun."};
  }
  return Status::ok();
}

Result<std::set<Rank>> parse_ranks(const std::string& text) {
  std::set<Rank> ranks;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::optional<int> rank = number_of<int>(std::string_view(text).substr(begin, end - begin));
    if (!rank || *rank < 0)
      return Status(Code::kInvalidArgument,
                    fmt::format("--ranks {} is not a list of ranks such as 0,3", text));
    ranks.insert(*rank);
    begin = end + 1;
  }
  return ranks;
}

void set_style(Raw& raw) {
  PrefixStyle& style = raw.options.output.style;
  if (raw.is_horovod_output) style.kind = PrefixStyle::Kind::kHorovod;
  if (raw.is_silent_prefix) style.kind = PrefixStyle::Kind::kNone;
  style.has_time = raw.has_timestamp;
}

Status set_mpirun(Raw& raw) {
  raw.mpirun.args = words_of(raw.mpi_args.value_or(""));
  raw.mpirun.binding = words_of(raw.binding_args.value_or(""));
  if (raw.is_mpi && raw.is_gloo)
    return {Code::kInvalidArgument, "Argument use_gloo and use_mpi only allow one set True."};
  if (raw.is_mpi && !raw.options.collect_dir.empty())
    return {Code::kUnsupported,
            "results of functions cannot be collected with --mpi, because mpirun starts the ranks"};
  if (raw.is_mpi) {
    for (std::string& sentence : launch::ignored_by_mpirun(raw.options))
      raw.without_effect.push_back(std::move(sentence));
  } else {
    for (const auto& [text, name] :
         {std::pair(raw.mpi_args, "--mpi-args"), std::pair(raw.binding_args, "--binding-args")})
      if (text) raw.without_effect.push_back(fmt::format("{} has no effect: it goes with --mpi", name));
  }
  return Status::ok();
}

bool has_ssh_options(const Raw& raw) {
  const launch::SshOptions& ssh = raw.options.ssh;
  return ssh.port != 0 || !ssh.identity_file.empty() || !ssh.config_file.empty() || !raw.ssh_args.empty();
}

void set_ssh(Raw& raw) {
  raw.options.ssh.args = words_of(raw.ssh_args);
  const char* kubernetes_agent = getenv("OMPI_MCA_plm_rsh_agent");
  const bool is_ssh = raw.options.ssh.program == launch::SshOptions{}.program;
  if (is_ssh && kubernetes_agent != nullptr && std::string_view(kubernetes_agent) == "/etc/mpi/kubexec.sh")
    raw.options.ssh.program = kubernetes_agent;
}

// Reads the settings as the ranks will: from the options, then from the environment. Settings that the ranks
// would refuse are refused here.
Result<Config> settings_of_ranks(const Tuning& tuning) {
  const launch::Variables said = launch::tuning_variables(tuning);
  return parse_config([&](const char* name) -> const char* {
    const auto entry = std::ranges::find(said, name, [](const auto& one) { return one.first; });
    return entry != said.end() ? entry->second.c_str() : getenv(name);
  });
}

// The ranks end a job for silence, and say more than the launcher can. It waits longer, also because ssh
// comes back up to as long after an outage as this has lasted.
void set_agent_timeout(Raw& raw, double longest_outage_s) {
  const double given = raw.options.tuning.agent_timeout_s.value_or(
      std::max(launch::kLeastAgentTimeoutS, 2 * longest_outage_s));
  raw.options.agent_timeout_s = given;
  if (given < longest_outage_s)
    raw.without_effect.push_back(fmt::format(
        "--agent-timeout {} ends the job in an outage of the network that its ranks would survive: "
        "RUEDA_PEER_TIMEOUT_SECONDS is {}",
        given, longest_outage_s));
}

// The user's own command, as an example of what to write.
std::string example_of(const std::vector<std::string>& command) {
  const std::string script = command.front().ends_with(".py") ? command.front() : "train.py";
  return "write rueda run -np 4 python " + script;
}

Status complete(Raw& raw) {
  RunOptions& options = raw.options;
  if (!raw.config_file.empty()) {
    Result<std::string> text = read_file(raw.config_file);
    if (!text.is_ok()) return text.status();
    Result<ConfigFile> file = parse_config_file(text.value(), raw.config_file);
    if (!file.is_ok()) return file.status();
    fill_gaps(options.tuning, file.value().tuning);
    raw.is_mpi = raw.is_mpi || (file.value().is_mpi && !raw.is_gloo);
    for (const std::string& key : file.value().unknown)
      raw.without_effect.push_back(
          fmt::format("{} in {} has no effect: it is not a known setting", key, raw.config_file));
  }
  if (Status valid = launch::validate(options.tuning); !valid.is_ok()) return valid;
  if (options.command.empty())
    return {Code::kInvalidArgument, "no command was given; write rueda run -np 4 python train.py"};
  const HostRequest wanted{raw.hosts, raw.host_file, raw.size, raw.leaves_allocation, has_ssh_options(raw)};
  const Result<bool> are_hosts_named = find_hosts(wanted, options);
  if (!are_hosts_named.is_ok()) return are_hosts_named.status();
  if (raw.size == 0 && !are_hosts_named.value())
    return {Code::kInvalidArgument, "the number of processes is missing; " + example_of(options.command)};
  options.size = raw.size;
  if (raw.size == 0)
    for (const launch::HostSlots& host : options.hosts) options.size += host.slots;
  const Result<Config> config = settings_of_ranks(options.tuning);
  if (!config.is_ok()) return {Code::kInvalidArgument, config.status().why};
  options.start_timeout_s = config.value().start_timeout_s;
  options.answers_status = config.value().status;
  options.max_restarts =
      static_cast<int>(std::min<int64_t>(options.tuning.max_restarts.value_or(0), INT_MAX));
  options.restart_pause_s = options.tuning.restart_pause_s.value_or(options.restart_pause_s);
  options.grace_s = options.tuning.grace_s.value_or(options.grace_s);
  options.binds_cores = options.tuning.bind_cores.value_or(false);
  set_agent_timeout(raw, config.value().peer_timeout_s);
  if (!raw.ranks.empty()) {
    Result<std::set<Rank>> shown = parse_ranks(raw.ranks);
    if (!shown.is_ok()) return shown.status();
    if (!shown.value().empty() && *shown.value().rbegin() >= options.size)
      return {Code::kInvalidArgument, fmt::format("--ranks {} names ranks that this job of {} does not have",
                                                  raw.ranks, options.size)};
    options.output.shown = std::move(shown.value());
  }
  set_style(raw);
  set_ssh(raw);
  if (Status status = set_mpirun(raw); !status.is_ok()) return status;
  const ElasticPlace place{.is_mpi = raw.is_mpi, .are_hosts_named = are_hosts_named.value()};
  if (Status status = set_elastic(raw.elastic, place, options, raw.without_effect); !status.is_ok())
    return status;
  if (options.hosts.empty()) return Status::ok();  // agents will offer them
  const Result<std::vector<launch::Placement>> places = launch::place_ranks(options.hosts, options.size);
  return places.is_ok() ? Status::ok() : places.status();
}

}  // namespace

Result<RunRequest> parse_run(const std::vector<std::string>& arguments, const Caller& caller) {
  Raw raw;
  CLI::App app(
      "Starts a command as several ranks, on this machine or on several, through ssh or Slurm's srun.",
      "rueda run");
  add_job_options(app, raw);
  add_output_options(app, raw);
  add_tuning_options(app, raw);
  add_elastic_options(app, raw.elastic);
  add_ignored_options(app, raw);
  Split split = split_command(app, arguments);
  if (Status known = refuse_known(split.options); !known.is_ok()) return known;
  std::vector<std::string> reversed(split.options.rbegin(),
                                    split.options.rend());  // CLI11 expects this order
  // CLI11 throws exceptions. None of them leaves this function.
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    return RunRequest{.options = {}, .text = "rueda run -np N [options] command [arguments]\n" + app.help()};
  } catch (const CLI::ParseError& error) {
    return Status(Code::kInvalidArgument, sentence_of(error, app, caller.command, caller.options));
  }
  if (raw.is_version) {
    const char* const release = raw.is_horovod_output ? kHorovodRelease : kRelease;
    return RunRequest{.options = {}, .text = fmt::format("{}\n", release)};
  }
  if (raw.is_check_build) return RunRequest{.options = {}, .text = "", .is_check_build = true};
  raw.options.command = with_assignments(std::move(split.command));
  if (Status status = complete(raw); !status.is_ok()) return status;
  RunRequest request{
      .options = std::move(raw.options), .text = "", .without_effect = std::move(raw.without_effect)};
  if (raw.is_mpi) request.mpirun = std::move(raw.mpirun);
  return request;
}

}  // namespace rueda::cli
