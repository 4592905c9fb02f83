#include "bench/job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>

#include "bench/link_commands.h"
#include "bench/measure.h"
#include "bench/network_namespaces.h"
#include "bench/temporary_folder.h"
#include "launch/cores.h"
#include "launch/job_runner.h"
#include "rueda/store/world.h"

namespace rueda::bench {
namespace {

int fail(const Status& status) {
  fmt::print(stderr, "rueda bench: {}\n", status.why);
  return status.code == Code::kInvalidArgument ? 2 : 1;
}

// ---- a rank ----

void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

// rueda_init reads settings from the environment. The user's own settings apply where the job sets nothing.
void apply_settings(const Request& request, const Job& job) {
  if (job.transport != "auto") set("RUEDA_TRANSPORTS", job.transport);
  if (!request.algorithm.empty()) set("RUEDA_ALGORITHM", request.algorithm);
  if (request.what == "burst") set("RUEDA_FUSION_THRESHOLD", job.mode == "unfused" ? "0" : "67108864");
  if (request.what == "replay" && job.strategy == "ring") set("RUEDA_ALGORITHM", "ring");
  if (request.what == "replay" && job.strategy == "two-level") set("RUEDA_ALGORITHM", "two_level");
}

// The launcher has started this rank on the machine. Moves it to its simulated host, which
// has per_host ranks.
Status move_to_host(const Request& request, const Job& job) {
  const int rank = std::atoi(getenv("RUEDA_RANK"));
  const int host = rank / request.per_host;
  if (host >= std::ssize(job.namespaces))
    return {Code::kInternal, "there are more ranks than the hosts were made for"};
  if (Status entered = enter_namespace(job.namespaces[static_cast<size_t>(host)]); !entered.is_ok())
    return entered;
  const int first = host * request.per_host;
  set("RUEDA_HOSTNAME", fmt::format("host{}", host));
  set("RUEDA_LOCAL_RANK", std::to_string(rank - first));
  set("RUEDA_LOCAL_SIZE", std::to_string(std::min(request.per_host, job.ranks - first)));
  set("RUEDA_INTERFACE", host_address(host));
  set("RUEDA_STORE", "file://" + std::filesystem::path(job.report).parent_path().string() + "/store");
  unsetenv("RUEDA_STORE_SERVED");
  return Status::ok();
}

Status measure(const Context& context) {
  if (context.request.what == "latency") return measure_latency(context);
  if (context.request.what == "burst") return measure_burst(context);
  if (context.request.what == "replay") return measure_replay(context);
  return measure_collective(context);
}

// Becomes the user's program, on this host. The program finds its world as under rueda run.
int become(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  unsetenv(kJobVariable);
  execvp(argv.front(), argv.data());
  return fail({Code::kInvalidArgument, fmt::format("cannot run {}: {}; check the command after --",
                                                   command.front(), std::strerror(errno))});
}

// Shared buffers that nobody has asked for are left out unless every rank has them. Collective.
Status choose_memory(Rank& rank, Request& request) {
  if (request.is_memory_chosen || std::ranges::find(request.memory, "shared") == request.memory.end())
    return Status::ok();
  const Result<Buffer> tried = Buffer::make(rank.library(), "shared", 1);
  const Result<bool> agreed = rank.all_agree(tried.is_ok());
  if (!agreed.is_ok() || agreed.value()) return agreed.status();
  std::erase(request.memory, "shared");
  if (rank.is_first())
    fmt::print(stderr, "rueda bench: shared buffers are not measured: {}\n",
               tried.is_ok() ? "another rank has none." : tried.status().why);
  return Status::ok();
}

int run_rank(const Request& given, const Job& job, const std::string& own_path, bool is_direct) {
  Request request = given;
  if (!job.namespaces.empty())
    if (Status moved = move_to_host(request, job); !moved.is_ok()) return fail(moved);
  apply_settings(request, job);
  if (!request.command.empty()) return become(request.command);
  Result<std::unique_ptr<Rank>> joined = Rank::join(own_path);
  if (!joined.is_ok()) return fail(about_transport(joined.status(), job.transport, request.transports));
  Rank& rank = *joined.value();
  if (Status chosen = choose_memory(rank, request); !chosen.is_ok()) return fail(chosen);
  Report report(request.what, job.report, !rank.is_first());
  if (is_direct && !request.json.empty()) {
    const Status writable = rank.is_first() ? check_writable(request.json, "--json") : Status::ok();
    const Result<bool> agreed = rank.all_agree(writable.is_ok());
    if (!writable.is_ok()) return fail(writable);
    if (!agreed.is_ok()) return fail(agreed.status());
    if (!agreed.value()) return 2;  // rank 0 reports the reason
  }
  if (is_direct && rank.is_first()) fmt::print("{}\n", table_header(request.what));
  const Context context{.rank = rank,
                        .request = request,
                        .job = job,
                        .report = report,
                        .is_clock_shared = job.is_one_machine || rank.library().cross_size() == 1};
  if (Status status = measure(context); !status.is_ok()) return fail(status);
  if (is_direct && rank.is_first() && !request.json.empty())
    if (Status status = write_json(request.json, request.arguments, report.rows()); !status.is_ok())
      return fail(status);
  if (is_direct && !are_all_correct(report.rows())) return 1;
  return 0;
}

// ---- the launcher ----

int start(const Request& request, const Job& job, const std::string& own_path) {
  std::filesystem::create_directory(std::filesystem::path(job.report).parent_path() / "store");
  set(kJobVariable, encode(job));
  launch::RunOptions options;
  options.size = job.ranks;
  options.hosts = {{"localhost", job.ranks}};
  options.command = {own_path, "bench"};
  options.command.insert(options.command.end(), request.arguments.begin(), request.arguments.end());
  options.output.style.kind = launch::PrefixStyle::Kind::kNone;
  options.binary = own_path;
  options.binds_cores = static_cast<size_t>(job.ranks) <= launch::usable_cpus().size();
  const int status = launch::JobRunner(std::move(options)).run();
  unsetenv(kJobVariable);
  return status;
}

int run_job(const Request& request, Job job, const std::string& own_path, std::vector<Row>& rows) {
  const Result<TemporaryFolder> folder = TemporaryFolder::make("rueda-bench");
  if (!folder.is_ok()) return fail(folder.status());
  job.report = folder.value().path() + "/rows";
  std::optional<NetworkNamespaces> namespaces;
  if (request.what == "replay") {
    const int hosts = (job.ranks + request.per_host - 1) / request.per_host;
    Result<NetworkNamespaces> ready =
        NetworkNamespaces::make(hosts, request.rate, request.congestion, request.faults);
    if (!ready.is_ok()) return fail(ready.status());
    namespaces = std::move(ready).value();
    job.namespaces = namespaces->paths();
  }
  const Result<AppendedRows> appended = AppendedRows::make(job.report);
  if (!appended.is_ok()) return fail(appended.status());
  const int status = start(request, job, own_path);
  Result<std::vector<Row>> found = appended.value().read();
  if (!found.is_ok()) return fail(found.status());
  rows.insert(rows.end(), found.value().begin(), found.value().end());
  return status;
}

int run_all(const Request& request, const std::string& own_path) {
  if (!request.json.empty())
    if (Status writable = check_writable(request.json, "--json"); !writable.is_ok()) return fail(writable);
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  for (const int ranks : request.ranks)
    if (ranks > cores && request.what != "replay")
      fmt::print(
          stderr,
          "rueda bench: {} ranks share {} cores here, so these times say little about a larger machine\n",
          ranks, cores);
  if (request.command.empty()) fmt::print("{}\n", table_header(request.what));
  std::fflush(stdout);
  std::vector<Row> rows;
  int status = 0;
  for (const Job& job : jobs_of(request)) {
    status = run_job(request, job, own_path, rows);
    if (status != 0) break;
  }
  if (!request.json.empty() && !rows.empty())
    if (Status written = write_json(request.json, request.arguments, rows); !written.is_ok())
      return fail(written);
  if (status == 0 && !are_all_correct(rows))
    return fail({Code::kInternal, "a result was wrong on some rank (see the table); please report it"});
  return status;
}

}  // namespace

int run(const Request& request, const std::string& own_path) {
  const char* given = getenv(kJobVariable);
  if (given != nullptr) {
    const Result<Job> job = decode_job(given);
    return job.is_ok() ? run_rank(request, job.value(), own_path, false) : fail(job.status());
  }
  const Result<store::World> world = store::detect_own_world();
  if (!world.is_ok()) return fail(world.status());
  if (world.value().launcher == "single") return run_all(request, own_path);
  if (request.what == "replay")
    return fail({Code::kUnsupported, "replay starts its own ranks; run it without a launcher"});
  Job job = jobs_of(request).front();
  job.is_one_machine = false;
  return run_rank(request, job, own_path, true);
}

}  // namespace rueda::bench
