#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "bench/sizes.h"
#include "cli/commands.h"
#include "cli/run_options.h"
#include "preflight/preflight.h"
#include "rueda/base/numbers.h"

namespace rueda::cli {
namespace {

constexpr const char* kPreflight = R"(rueda preflight [options]: checks the hosts of a job before it starts

  rueda preflight -H a:8,b:8      starts ranks as rueda run would; -np, --hostfile, ssh and Slurm as there
  mpirun -np 16 rueda preflight   under mpirun, srun, torchrun, rueda run, in pods: as the ranks of that job

It compares releases, wheels, packages, GPUs, limits and clocks of the hosts, measures bandwidth and latency
of pairs of hosts through librueda.so, and names the slow host, the slow link and the host that does not
answer.

  --json FILE        also write the results to FILE; - prints them instead of the page
  --heat-map FILE    also write a picture of all pairs (SVG)
  --min-rate RATE    demand so much of every pair, each way: 10gbit
  --rounds N         rounds of disjoint pairs (default: all up to 64 hosts, 2 log2 of more)

All other options are those of rueda run, except a command; --log-dir has no effect.
Exit status: 0 all well, 1 problems found, 2 it could not run.
)";

using preflight::Request;

constexpr std::array<std::string_view, 4> kWithValue = {"--json", "--heat-map", "--min-rate", "--rounds"};

struct Own {
  Request request;
  bool is_help = false;
  Arguments others;  // for rueda run
};

Status take_value(Own& own, const std::string& option, const std::string& value) {
  if (value.empty())
    return {Code::kInvalidArgument, option + " is empty; give a value or leave the option out"};
  if (option == "--json") own.request.json = value;
  if (option == "--heat-map") own.request.heat_map = value;
  if (option == "--min-rate") {
    const Result<int64_t> rate = bench::parse_rate(value);
    if (!rate.is_ok()) return {Code::kInvalidArgument, "--min-rate: " + rate.status().why};
    own.request.least_gbit_per_s = static_cast<double>(rate.value()) / 1e9;
  }
  if (option == "--rounds") {
    own.request.rounds = number_of<int>(value).value_or(0);
    if (own.request.rounds < 1)
      return {Code::kInvalidArgument, fmt::format("--rounds {} is not a number from 1 on", value)};
  }
  return Status::ok();
}

// Splits our own options from those of rueda run.
Result<Own> split(const Arguments& arguments) {
  Own own;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (word == "--help" || word == "-h")
      own.is_help = true;
    else if (word == "--facts")  // only rueda itself gives these two
      own.request.role = Request::Role::kFacts;
    else if (word == "--measure")
      own.request.role = Request::Role::kMeasure;
    else if (std::ranges::find(kWithValue, name) == kWithValue.end())
      own.others.push_back(word);
    else if (equals == std::string::npos && i + 1 == arguments.size())
      return Status(Code::kInvalidArgument, name + " needs a value; see rueda preflight --help");
    else if (Status taken = take_value(
                 own, name, equals == std::string::npos ? arguments[++i] : word.substr(equals + 1));
             !taken.is_ok())
      return taken;
  }
  return own;
}

// Without hosts of a user or a scheduler, two ranks here.
bool names_no_ranks(const Arguments& words) {
  constexpr std::array<std::string_view, 7> kPlaces = {"-H",   "-np",        "-n",        "--hosts",
                                                       "--np", "--num-proc", "--hostfile"};
  return std::ranges::none_of(words, [&](const std::string& word) {
    return std::ranges::any_of(kPlaces, [&](std::string_view place) {
      return word == place || word.starts_with(std::string(place) + "=");
    });
  });
}

Status take_job(Own& own) {
  constexpr const char* kCommand = "preflight";  // rueda run wants one; each of our jobs has its own
  const auto parse = [&](const Arguments& more) {
    Arguments words = more;  // what follows a command is the command's
    words.insert(words.end(), own.others.begin(), own.others.end());
    words.insert(words.end(), {"--", kCommand});
    return parse_run(words, {"rueda preflight", {kWithValue.begin(), kWithValue.end()}});
  };
  Result<RunRequest> run = parse({});
  if (!run.is_ok() && names_no_ranks(own.others)) run = parse({"-np", "2"});
  if (!run.is_ok()) return run.status();
  if (run.value().mpirun)
    return {Code::kUnsupported, "--mpi starts no preflight; write mpirun -np N rueda preflight"};
  own.request.job = std::move(run.value().options);
  own.request.job.output.log_dir.clear();  // its jobs have no output of their own
  own.request.job.output.output_dir.clear();
  const std::vector<launch::HostSlots>& hosts = own.request.job.hosts;
  if (own.request.least_gbit_per_s > 0 && hosts.size() == 1 && hosts[0].name == "localhost")
    return {Code::kInvalidArgument,
            "--min-rate demands a rate of every pair of hosts, and this is only one host; name the hosts of "
            "the job with -H or --hostfile"};
  if (own.request.job.command != Arguments{kCommand})
    return {Code::kInvalidArgument,
            fmt::format("{} is no option, and preflight starts no command; see rueda preflight --help",
                        own.request.job.command.empty() ? "this" : own.request.job.command.front())};
  return Status::ok();
}

}  // namespace

int preflight_command(const Arguments& arguments) {
  const auto refuse = [](const Status& status) {
    fmt::print(stderr, "rueda preflight: {}\n", status.why);
    return kUsageError;
  };
  Result<Own> own = split(arguments);
  if (!own.is_ok()) return refuse(own.status());
  if (own.value().is_help) {
    fmt::print("{}", kPreflight);
    return 0;
  }
  Request& request = own.value().request;
  const bool is_rank = request.role != Request::Role::kWhole || preflight::is_rank();
  if (is_rank && !own.value().others.empty())
    return refuse(
        {Code::kInvalidArgument, fmt::format("{} has no effect in a job that is started already; give it to "
                                             "the launcher",
                                             own.value().others.front())});
  if (!is_rank)
    if (const Status taken = take_job(own.value()); !taken.is_ok()) return refuse(taken);
  request.job.binary = own_path();
  return preflight::run(request, own_path());
}

}  // namespace rueda::cli
