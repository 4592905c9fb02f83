#include "preflight/preflight.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "bench/rank.h"
#include "bench/report.h"
#include "preflight/inspect.h"
#include "preflight/launcher.h"
#include "preflight/outcome.h"
#include "rueda/store/world.h"

namespace rueda::preflight {
namespace {

constexpr int kProblem = 1, kCannotRun = 2;

int fail(const Status& status) {
  fmt::print(stderr, "rueda preflight: {}\n", status.why);
  return kCannotRun;
}

Status write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text << std::flush;
  if (file.good()) return Status::ok();
  return {Code::kUnavailable,
          fmt::format("{} cannot be written ({}); give another path", path, std::strerror(errno))};
}

// Returns the exit status.
int report(const Request& request, const Outcome& outcome) {
  const bool is_json_shown = request.json == "-";
  fmt::print("{}", is_json_shown ? json(outcome) : page(outcome));
  if (!request.json.empty() && !is_json_shown)
    if (Status written = write_file(request.json, json(outcome)); !written.is_ok()) return fail(written);
  if (!request.heat_map.empty())
    if (Status written = write_file(request.heat_map, heat_map(outcome)); !written.is_ok())
      return fail(written);
  return is_broken(outcome.findings) ? kProblem : 0;
}

// Before a job that may take minutes.
Status check_paths(const Request& request) {
  for (const auto& [path, option] :
       {std::pair(request.json, "--json"), std::pair(request.heat_map, "--heat-map")})
    if (!path.empty() && path != "-")
      if (Status writable = bench::check_writable(path, option); !writable.is_ok()) return writable;
  return Status::ok();
}

int print_facts(const std::string& own_path) {
  const Result<store::World> world = store::detect_own_world();
  if (!world.is_ok()) return fail(world.status());
  fmt::print("{}{}\n", kFactsMark, encode(inspect_host(world.value().host, own_path)));
  return 0;
}

// What ranks of a preflight do differently from those of training. Settings of the user stay.
void set_defaults() {
  setenv("RUEDA_DYNAMIC_PROCESS_SETS", "1", 1);   // sets of the first ranks, and of two ranks of a host
  setenv("RUEDA_STALL_CHECK_DISABLE", "1", 0);    // most ranks wait while the first ones measure
  setenv("RUEDA_PEER_TIMEOUT_SECONDS", "15", 0);  // who asks for a check does not want to wait
}

Result<Measured> measure_as_rank(const Request& request, const std::string& own_path, bool& is_first,
                                 int& ranks) {
  set_defaults();
  Result<std::unique_ptr<bench::Rank>> joined = bench::Rank::join(own_path, kExchangeLimitS);
  if (!joined.is_ok()) return joined.status();
  is_first = joined.value()->is_first();
  ranks = joined.value()->size();
  return measure(*joined.value(), own_path, request.rounds);
}

int run_as_rank(const Request& request, const std::string& own_path) {
  const Result<store::World> world = store::detect_own_world();
  if (!world.is_ok()) return fail(world.status());
  bool is_first = world.value().rank == 0;
  int ranks = world.value().size;
  const bool is_whole = request.role == Request::Role::kWhole;
  if (is_whole && is_first)
    if (Status writable = check_paths(request); !writable.is_ok()) return fail(writable);
  const Result<Measured> measured = measure_as_rank(request, own_path, is_first, ranks);
  if (!is_whole) {  // the launcher reads it
    if (is_first && measured.is_ok()) fmt::print("{}{}\n", kMeasuredMark, encode(measured.value()));
    if (is_first && !measured.is_ok()) fmt::print("{}{}\n", kFailedMark, measured.status().why);
    if (!is_first && !measured.is_ok()) fmt::print(stderr, "{}\n", measured.status().why);
    return 0;
  }
  if (measured.is_ok())
    return is_first ? report(request, judge(measured.value(), ranks, request.least_gbit_per_s, {})) : 0;
  if (!is_first) {
    fmt::print(stderr, "rueda preflight: {}\n", measured.status().why);
    return kProblem;
  }
  // The ranks do not become a world, or not for long. What this host knows of itself is reported all the
  // same.
  Measured own;
  own.hosts.push_back(inspect_host(world.value().host, own_path));
  return report(request,
                judge(own, ranks, request.least_gbit_per_s,
                      {{"no-job", {}, fmt::format("the ranks did not finish: {}", measured.status().why)}}));
}

}  // namespace

bool is_rank() {
  const Result<store::World> world = store::detect_own_world();
  return !world.is_ok() || world.value().launcher != "single";
}

int run(const Request& request, const std::string& own_path) {
  if (request.role == Request::Role::kFacts) return print_facts(own_path);
  if (request.role == Request::Role::kMeasure || is_rank()) return run_as_rank(request, own_path);
  if (Status writable = check_paths(request); !writable.is_ok()) return fail(writable);
  return report(request, launch_and_judge(request, own_path));
}

}  // namespace rueda::preflight
